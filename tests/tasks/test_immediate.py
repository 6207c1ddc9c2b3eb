"""Immediate mode: in a test, a push runs the task at once, and nothing needs a store."""

import asyncio
import re

import pytest

import drumbeat
from drumbeat.core.errors import InvalidInput, JobEnded
from drumbeat.core.job import JobStatus
from drumbeat.testing import immediate, pool
from tasks.examples import Order, add, not_json, send, ship, total

tried: list[int] = []


@drumbeat.task(max_attempts=3)
def flaky(context: drumbeat.JobContext, until: int) -> int:
    tried.append(context.attempt)
    if context.attempt < until:
        raise OSError("not yet")
    return context.attempt


@drumbeat.task
async def split(n: int) -> list[int]:
    await asyncio.sleep(0)
    return [add.push(n).result(), (await add.apush(n, 3)).job().result]


@drumbeat.task
def split_plainly(n: int) -> list[int]:
    return split.push(n).result()


@drumbeat.task(max_attempts=1)
async def break_down() -> None:
    raise ConnectionError("no line")


@drumbeat.task
def mistyped() -> Order:
    return 5  # type: ignore[return-value]


def test_a_push_runs_at_once_and_has_a_result() -> None:
    with immediate() as queue:
        pushed = add.push(1)
        many = add.push_many([add.bind(5), add.bind(6, second=0)])

        assert (pushed.result(), pushed.status(), [each.result() for each in many]) == (3, JobStatus.DONE, [7, 6])
        assert [job.type for job in queue.jobs] == [add.task_name] * 3
        assert add.push_in(3600, 1).result() == 3


async def test_it_works_within_a_loop_and_for_tasks_that_push_tasks() -> None:
    with immediate():
        assert await (await ship.apush(Order(1))).aresult() == [Order(1)]
        assert ship.push(Order(2)).result() == [Order(2)]
        assert split_plainly.push(1).result() == [3, 4]
        assert await (await split_plainly.apush(1)).aresult() == [3, 4]
        assert send.push("a@x").result() == "a@x: hello, attempt 1"


def test_a_failed_task_is_tried_again_and_its_error_comes_with_the_result() -> None:
    tried.clear()
    with immediate() as queue:
        assert flaky.push(3).result() == 3
        failed = flaky.push(9)

        assert (failed.status(), tried, len(queue.jobs)) == (JobStatus.POISONED, [1, 2, 3, 1, 2, 3], 2)
        with pytest.raises(JobEnded, match="is poisoned: OSError: not yet"):
            failed.result()


async def test_a_traceback_begins_in_the_task() -> None:
    with immediate():
        jobs = [each.job() for each in (break_down.push(), await break_down.apush(), flaky.push(9), await flaky.apush(9))]
    async with pool() as tested:
        await tested.push({"args": []}, type=break_down.task_name, max_attempts=1)
        [ran] = await tested.run_until_empty(break_down)

    for error in (*(job.last_error for job in jobs), ran.error):
        files = re.findall(r'File "(.*?)"', str(error))
        assert files == [__file__]


def test_an_error_can_be_raised_by_the_push() -> None:
    tried.clear()
    with immediate(raise_errors=True) as queue, pytest.raises(OSError, match="not yet"):
        flaky.push(9)

    assert (tried, [job.status for job in queue.jobs]) == ([1], [JobStatus.POISONED])


def test_what_no_queue_takes_is_refused_here_too() -> None:
    with immediate():
        with pytest.raises(InvalidInput, match="expected first to be JSON, got object"):
            add.push(object())  # type: ignore[arg-type]
        with pytest.raises(JobEnded, match="expected result to be JSON, got object"):
            not_json.push().result()
        assert total.push((1, 2)).job().payload == {"args": [[1, 2]], "kwargs": {}}


def test_a_result_that_does_not_fit_its_annotation_names_task_and_job() -> None:
    with immediate(), pytest.raises(InvalidInput, match=r"^task .*\.mistyped, job immediate-1: result is not a valid Order: "):
        mistyped.push().result()


def test_the_mode_ends_with_its_block_and_can_be_nested() -> None:
    from drumbeat.tasks.queue import queues

    with immediate() as outer:
        with immediate() as inner:
            add.push(1)
        add.push(2)
        assert (len(inner.jobs), len(outer.jobs)) == (1, 1)

    assert queues.replacement is None


async def test_a_pool_for_tests_runs_tasks_too() -> None:
    async with pool() as jobs:
        job_id = await jobs.push({"args": [1]}, type=add.task_name)

        ran = await jobs.run_until_empty(add)

        assert ([each.result for each in ran], await jobs.result(job_id)) == ([3], 3)


@drumbeat.task(max_attempts=2)
def leave() -> None:
    raise SystemExit(3)


@drumbeat.task(max_attempts=2)
async def give_up() -> None:
    raise asyncio.CancelledError


@drumbeat.task
async def wait_for_ever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(("task", "error"), [(leave, "the handler raised SystemExit: 3"), (give_up, "CancelledError")])
async def test_a_task_that_leaves_or_gives_up_has_failed_as_in_a_worker(task: drumbeat.Task[[], None], error: str) -> None:
    with immediate():
        for pushed in (task.push(), await task.apush()):
            job = pushed.job()
            assert (job.status, job.attempts) == (JobStatus.POISONED, 2)
            assert error in str(job.last_error)


async def test_a_test_can_be_cancelled_while_it_awaits_a_task() -> None:
    with immediate() as queue:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await wait_for_ever.apush()
        assert queue.jobs == []
