"""drumbeat.testing: what users' own tests stand on does the same every time."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import drumbeat
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import AttemptOutcome, JobStatus
from drumbeat.pool.worker.context import JobContext
from drumbeat.settings import STORE_VARIABLE
from drumbeat.testing import TestPool, immediate, pool


async def test_jobs_are_done_in_order_and_the_clock_moves_on_to_delayed_ones() -> None:
    async with pool() as papers:
        await papers.push("later", delay=3600)
        await papers.push("low")
        await papers.push("high", priority=1)
        began = papers.clock.now()

        ran = await papers.run_until_empty(lambda payload: payload)

        assert [each.result for each in ran] == ["high", "low", "later"]
        assert papers.clock.now() - began == timedelta(hours=1)


async def test_the_clock_moves_on_to_a_delayed_job_behind_many_that_cannot_be_run() -> None:
    async with pool() as papers:
        await papers.push_many(range(10_000), capability="gpu")
        await papers.push("later", delay=3600)

        ran = await papers.run_until_empty(lambda payload: payload)

        assert [each.result for each in ran] == ["later"]


async def test_the_clock_moves_on_past_a_rate_and_a_pause() -> None:
    async with pool() as papers:
        await papers.push_many(range(3), group="mail", group_rate={"count": 1, "per": 60})
        await papers.pause(until=papers.clock.now() + timedelta(hours=1))
        began = papers.clock.now()

        ran = await papers.run_until_empty(lambda payload: payload)

        assert [each.result for each in ran] == [0, 1, 2]
        assert papers.clock.now() - began == timedelta(hours=1, minutes=2)


async def test_failures_are_tried_again_after_their_backoff() -> None:
    tried: list[Any] = []

    async def flaky(payload: Any, context: JobContext) -> str:
        tried.append(context.attempt)
        if context.attempt < 3:
            raise OSError("not yet")
        return "at last"

    async with pool() as papers:
        job_id = await papers.push(1)

        ran = await papers.run_until_empty(flaky)

        assert [each.outcome for each in ran] == [AttemptOutcome.FAILED, AttemptOutcome.FAILED, AttemptOutcome.DONE]
        assert (tried, await papers.result(job_id)) == ([1, 2, 3], "at last")


async def test_each_type_has_its_handler_and_jobs_may_push_jobs() -> None:
    async with pool() as papers:

        async def split(n: int) -> None:
            await papers.push_many(range(n), type="part")

        await papers.push(3, type="split")

        ran = await papers.run_until_empty({"split": split, "part": lambda n: n * n})

        assert [each.result for each in ran] == [None, 0, 1, 4]


async def test_what_nobody_can_claim_is_left() -> None:
    async with pool() as papers:
        job_id = await papers.push(1, capability="gpu")

        assert await papers.run_until_empty(lambda payload: None) == []
        assert (await papers.job(job_id)).status is JobStatus.PENDING
        assert len(await papers.run_until_empty(lambda payload: None, capabilities=("gpu",))) == 1


async def test_a_pool_that_never_empties_is_given_up() -> None:
    async with pool() as papers:

        async def again(payload: Any) -> None:
            await papers.push(payload)

        await papers.push(1)

        with pytest.raises(InvalidInput, match="after 5 attempts"):
            await papers.run_until_empty(again, most=5)


@drumbeat.task(rate="10/m")
def limited() -> None: ...


@drumbeat.task(unique=True, max_attempts=2, name="send")
def send(to: str, subject: str = "hello") -> str:
    if to == "nobody":
        raise ConnectionError("no such mailbox")
    return f"{to}: {subject}"


async def test_a_call_of_a_task_is_pushed_with_the_tasks_options() -> None:
    async with pool() as jobs:
        first, same = [await jobs.push(send.bind("a@x")) for _ in range(2)]
        later = await jobs.push(send.bind("b@x", subject="hi"), delay=3600)
        await jobs.push(send.with_options(max_attempts=3).bind("nobody"))
        began = jobs.clock.now()

        ran = await jobs.run_until_empty(send)

        assert first == same != later
        assert [each.result for each in ran if each.outcome is AttemptOutcome.DONE] == ["a@x: hello", "b@x: hi"]
        assert [each.job.type for each in ran if each.outcome is AttemptOutcome.FAILED] == ["send"] * 3
        assert jobs.clock.now() - began == timedelta(hours=1)
        with pytest.raises(InvalidInput, match="unknown option 'prio'"):
            await jobs.push(send.bind("a@x"), prio=1)


async def test_a_push_of_a_tasks_call_may_limit_the_tasks_own_group() -> None:
    async with pool() as jobs:
        job = await jobs.job(await jobs.push(limited.bind(), group_limit=2))

        assert (job.group, job.group_limit) == (limited.task_name, 2)


def double(n: int) -> int:
    return n * 2


@pytest.mark.parametrize("handler", ["every type", "by type"])
async def test_jobs_of_a_paused_type_stay_until_it_is_resumed(handler: str) -> None:
    handlers: Any = {"every type": double, "by type": {"mail": double, "sms": double}}[handler]
    async with pool() as jobs:
        await jobs.push_many([1, 2], type="mail")
        await jobs.push(3, type="mail", delay=3600)
        await jobs.push(4, type="sms")
        await jobs.pause(types=["mail"])
        began = jobs.clock.now()

        assert [each.result for each in await jobs.run_until_empty(handlers)] == [8]
        assert jobs.clock.now() == began
        await jobs.resume(types=["mail"])
        assert [each.result for each in await jobs.run_until_empty(handlers)] == [2, 4, 6]


@drumbeat.task(name="child")
def child(n: int) -> int:
    return n


@drumbeat.task(name="parent")
def parent(n: int) -> str:
    return child.push(n).status()


@drumbeat.task(name="parent_in_loop")
async def parent_in_loop(n: int) -> str:
    return await (await child.apush(n)).astatus()


@drumbeat.task(name="parent_in_thread")
async def parent_in_thread(n: int) -> str:
    return await asyncio.to_thread(lambda: child.push(n).status())


@drumbeat.task(name="parent_of_workflow")
def parent_of_workflow(n: int) -> str:
    return child.job(n).push().status()


@pytest.fixture
def settings_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of the settings, which no test touches."""
    monkeypatch.setenv(STORE_VARIABLE, f"sqlite:///{tmp_path}/settings.db")
    return tmp_path / "settings.db"


@pytest.mark.parametrize("task", [parent, parent_in_loop, parent_in_thread, parent_of_workflow])
async def test_a_task_that_a_handler_pushes_runs_in_the_test_pool(task: Any, settings_store: Path) -> None:
    async with pool("default") as jobs:
        await jobs.push(task.bind(5))

        ran = await jobs.run_until_empty({task.task_name: task, "child": child})

        assert [each.result for each in ran] == ["pending", 5]
    assert not settings_store.exists()


async def test_a_task_of_another_pool_that_a_handler_pushes_stays_there(settings_store: Path) -> None:
    async with pool("papers") as papers:
        await papers.push(parent.bind(5))

        await papers.run_until_empty(parent)

        assert [job.type for job in await papers.list()] == ["parent"]
        assert [job.type for job in await TestPool(papers.store, papers.clock, "default").list()] == ["child"]
    assert not settings_store.exists()


async def test_in_an_immediate_block_a_task_that_a_handler_pushes_runs_at_once(settings_store: Path) -> None:
    async with pool("default") as jobs:
        await jobs.push(parent.bind(5))

        with immediate() as queue:
            [ran] = await jobs.run_until_empty(parent)

        assert (ran.result, [job.type for job in queue.jobs]) == ("done", ["child"])
