"""Workflows of tasks: results as arguments, chains, groups, progress, and what is refused; without a store and on each."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

import drumbeat
from drumbeat.core.errors import InvalidInput, JobEnded, NotFound
from drumbeat.core.job import JobStatus
from drumbeat.tasks.queue import PlannedJob, StoreQueue, pool_batches
from drumbeat.testing import immediate, pool
from tasks.examples import Order, add, ship, total

ran: list[str] = []


@drumbeat.task
def note(name: str) -> str:
    ran.append(name)
    return name


@drumbeat.task(max_attempts=1)
def fail(name: str) -> str:
    raise drumbeat.JobFailure(name, fatal=True)


@drumbeat.task
async def parents_of(context: drumbeat.JobContext) -> list[object]:
    return [parent.result for parent in await context.parents()]


@drumbeat.task
def parents_of_plain(context: drumbeat.JobContext) -> list[object]:
    return [parent.result for parent in context.parents_blocking()]


@drumbeat.task
def joined(orders: list[Order]) -> str:
    return ", ".join(str(order.number) for order in orders)


@drumbeat.task(unique=True)
def once(name: str) -> str:
    return name


def work(store: StoreQueue, *names: str) -> None:
    """Run the jobs of these pools until none is left."""
    handlers = {each.task_name: each for each in (add, total, joined, ship, note, fail, parents_of, parents_of_plain, once)}
    for _ in range(3):
        for name in names or ("default",):
            store.loop.run(store.connection.work(name, handlers))


def test_a_result_is_an_argument_of_the_next_job(every_store: StoreQueue) -> None:
    first = add.job(1)
    pushed = first.then(add, second=first.output).push()
    assert pushed.status() is JobStatus.WAITING

    work(every_store)

    assert pushed.result(timeout=60) == 6


def test_a_group_hands_its_results_on_as_a_list(every_store: StoreQueue) -> None:
    numbers = drumbeat.group(*(add.job(n) for n in range(5)))

    pushed = numbers.then(total).push()
    work(every_store)

    assert pushed.result(timeout=60) == sum(range(5)) + 10


def test_a_chain_runs_its_stages_in_order_and_reports_progress(every_store: StoreQueue) -> None:
    ran.clear()
    flow = drumbeat.chain(note.job("a"), [note.job("b1"), note.job("b2")], note.job("c"), parents_of.job(), workflow_id="w")

    pushed = flow.push()
    before = pushed.progress()
    work(every_store)

    assert (before.share, before.counts) == (0.0, {JobStatus.PENDING: 1, JobStatus.WAITING: 4})
    assert (ran[0], sorted(ran[1:3]), ran[3]) == ("a", ["b1", "b2"], "c")
    assert (pushed.result(timeout=60), pushed.progress().share, pushed.workflow_id) == (["c"], 1.0, "w")


def test_tasks_of_several_pools_wait_for_each_other(every_store: StoreQueue) -> None:
    middle = ship.job(Order(7))
    flow = drumbeat.chain(note.job("first"), middle, joined.with_options(pool="mail").job(middle.output))

    pushed = flow.push()
    again = flow.push()
    work(every_store, "default", "orders", "mail")

    assert pushed.result(timeout=60) == "7"
    assert [job.pool for job in pushed.jobs] == ["default", "orders", "mail"]
    assert [job.job_id for job in again.jobs] == [job.job_id for job in pushed.jobs]
    assert pushed.progress().counts == {JobStatus.DONE: 3}


def test_a_workflow_is_cancelled_and_jobs_are_added_to_it(sqlite: StoreQueue) -> None:
    pushed = drumbeat.chain(note.job("a"), note.job("b")).push()
    added = note.job("c").after(pushed.last[0], if_failed="run").push(pushed.workflow_id)

    assert (pushed.progress().total, added.workflow_id) == (3, pushed.workflow_id)
    pushed.cancel()

    assert added.status() is JobStatus.CANCELLED
    assert pushed.progress().counts == {JobStatus.CANCELLED: 3}
    with pytest.raises(JobEnded, match="cancelled"):
        pushed.result()


def test_what_a_failed_parent_means_is_an_option(sqlite: StoreQueue) -> None:
    bad = fail.job("broken")
    skipped, anyway = note.job("skipped").after(bad, if_failed="skip"), parents_of_plain.job().after(bad, if_failed="run")
    pushed = drumbeat.Workflow([bad, skipped, anyway]).push()

    work(sqlite)

    assert [job.status() for job in pushed.last] == [JobStatus.POISONED, JobStatus.CANCELLED, JobStatus.DONE]
    assert pushed.last[2].result() == [None]


async def test_coroutines_push_and_wait(sqlite: StoreQueue) -> None:
    pushed = await add.job(1).then(add).apush()
    flow = await drumbeat.chain(note.job("a"), note.job("b")).apush()
    await asyncio.to_thread(work, sqlite)

    assert (await pushed.aresult(60), await flow.aresult(60)) == (5, "b")
    assert (await flow.aprogress()).share == 1.0
    await flow.acancel()


def test_wrong_workflows_are_refused_and_nothing_is_pushed(sqlite: StoreQueue) -> None:
    a, b = note.job("a"), note.job("b")
    a.after(b.after(a))
    with pytest.raises(InvalidInput, match=rf"circle, got job-\w+ \({re.escape(note.task_name)}\) → job-"):
        a.push()
    with pytest.raises(NotFound, match="there is no job 'nobody' to wait for"):
        note.job("c").after("nobody").push()
    with pytest.raises(InvalidInput, match="unique"):
        once.job("a").then(note)
    with pytest.raises(InvalidInput, match="unique"):
        once.job(note.job("a").output)
    with pytest.raises(InvalidInput, match="expected at least one job in stage 2, got none"):
        drumbeat.chain(note.job("a"), [])
    with pytest.raises(InvalidInput, match="expected jobs of tasks, such as"):
        drumbeat.chain(note.job("a"), note)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="expected if_failed to be one of block, skip, run"):
        note.job("a").after(note.job("b"), if_failed="retry")
    with pytest.raises(InvalidInput, match="expected workflow_id to be text that is not empty"):
        note.job("a").push(workflow_id="")
    with pytest.raises(InvalidInput, match="expected workflow_id to be text that is not empty"):
        drumbeat.chain(note.job("a"), note.job("b"), workflow_id="")
    with pytest.raises(InvalidInput, match="in one store"):
        note.with_options(store="memory:").job("a").then(note).push()
    with pytest.raises(InvalidInput, match="missing a required argument: 'first'"):
        add.job()  # type: ignore[call-arg]

    assert sqlite.loop.run(sqlite.connection.pool("default").size()) == 0


@pytest.mark.parametrize("given", [len, None, "tasks.examples.add", add.job(1)])
def test_only_a_task_can_come_then(given: Any) -> None:
    for before in (add.job(1), drumbeat.group(add.job(1), add.job(2))):
        with pytest.raises(InvalidInput, match=r"^then: expected a task, such as a function below @drumbeat\.task, got "):
            before.then(given)


@pytest.mark.parametrize("write", [str, "{}".format, "{:>9}".format, "page %s".__mod__])
def test_a_result_that_is_not_known_yet_cannot_be_part_of_a_text(write: Callable[[object], str]) -> None:
    with pytest.raises(InvalidInput, match=r"^<result of <job .*note>> is not known yet, so it cannot be part of a text;"):
        write(note.job("a").output)


def test_what_is_wrong_with_a_group_is_said() -> None:
    with pytest.raises(InvalidInput, match=r"^callback: expected a job of a task, .* got <task .*; .* write group\(…\)\.then"):
        drumbeat.group(add.job(1), callback=total)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match=r"^callback: expected a job made by new_job, .* got <task "):
        drumbeat.group(drumbeat.new_job(1), callback=total)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match=r"such as fetch.job\(url\), got <task .*> in the group$"):
        drumbeat.group(add)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match=r"^expected at least one job in the group, got none"):
        drumbeat.group()


def test_a_unique_job_is_waited_for_where_it_runs_already(sqlite: StoreQueue) -> None:
    first = once.push("a")
    pushed = drumbeat.chain(once.job("a"), note.with_options(pool="mail").job("b")).push()

    assert pushed.jobs[0].job_id == first.job_id
    work(sqlite, "default", "mail")

    assert pushed.result(timeout=60) == "b"


def test_few_batches_are_made_of_many_pools() -> None:
    first, second, third, last = (add.with_options(pool=name).job(n) for n, name in enumerate("abab"))
    third.after(first)
    last.after(second, third)

    planned = [job.planned("w") for job in drumbeat.Workflow([last]).jobs]
    batches = [*pool_batches(planned)]

    assert [(name, [each.new.job_id for each in batch]) for name, batch in batches] in (
        [("a", [first.job_id, third.job_id]), ("b", [second.job_id, last.job_id])],
        [("b", [second.job_id]), ("a", [first.job_id, third.job_id]), ("b", [last.job_id])],
    )
    assert all(isinstance(each, PlannedJob) for each in planned)


def test_a_job_is_pushed_after_its_parent_in_another_pool() -> None:
    first, second, third = (add.with_options(pool=name).job(n) for n, name in enumerate("aba"))
    second.after(first)
    third.after(second)

    batches = [*pool_batches([job.planned("w") for job in drumbeat.Workflow([third]).jobs])]

    pushed = [(name, [each.new.job_id for each in batch]) for name, batch in batches]
    assert pushed == [("a", [first.job_id]), ("b", [second.job_id]), ("a", [third.job_id])]


def test_workflows_run_at_once_in_immediate_mode() -> None:
    with immediate() as queue:
        assert add.job(1).then(add).push().result() == 5
        assert drumbeat.group(add.job(1), add.job(2)).then(total).push().result() == 7
        flow = drumbeat.chain(note.job("a"), parents_of.job()).push()
        assert (flow.result(), flow.progress().share, len(queue.jobs)) == (["a"], 1.0, 7)
        bad = fail.job("broken")
        pushed = drumbeat.Workflow([note.job("b").after(bad), note.job("c").after(bad, if_failed="skip")]).push()
        assert [job.status() for job in pushed.last] == [JobStatus.WAITING, JobStatus.CANCELLED]
        flow.cancel()


async def test_workflows_run_at_once_in_immediate_mode_within_a_loop() -> None:
    with immediate():
        flow = await drumbeat.chain(note.job("a"), parents_of.job()).apush()
        assert (await flow.aresult(), (await flow.aprogress()).total) == (["a"], 2)
        assert await (await parents_of_plain.job().after(note.job("a")).apush()).aresult() == ["a"]
        await flow.acancel()


async def test_jobs_without_tasks_are_chained_for_a_pool() -> None:
    async with pool() as papers:
        jobs = drumbeat.chain(drumbeat.new_job("a"), drumbeat.group(drumbeat.new_job("b"), callback=drumbeat.new_job("c")))
        ids = await papers.push_jobs(jobs)

        assert [(await papers.job(each)).status for each in ids] == [JobStatus.PENDING, JobStatus.WAITING, JobStatus.WAITING]
        await papers.run_until_empty(lambda payload: payload)
        assert [job.result for job in await papers.parents(ids[2])] == ["a", "b"]
        assert [job.job_id for job in await papers.children(ids[0])] == [ids[1], ids[2]]


def test_a_job_that_needs_all_results_cannot_run_after_any_parent() -> None:
    with pytest.raises(InvalidInput, match="expected any_of only for a job without results of other jobs as arguments"):
        note.job("a").then(note).after(note.job("b"), any_of=True)


def test_a_group_with_a_callback_keeps_its_workflow(sqlite: StoreQueue) -> None:
    called = drumbeat.group(add.job(1), add.job(2), workflow_id="sums").then(total).push()
    chained = drumbeat.chain(drumbeat.group(add.job(1), add.job(2), workflow_id="more"), note.job("x")).push()

    assert (called.workflow_id, called.job().workflow_id) == ("sums", "sums")
    assert (chained.workflow_id, chained.progress().total) == ("more", 3)


def test_the_result_of_a_job_behind_a_failed_one_names_that_one(every_store: StoreQueue) -> None:
    flow = drumbeat.chain(fail.job("first"), note.job("second"), note.job("third")).push()
    work(every_store)

    with pytest.raises(JobEnded, match=f"waits for job {flow.jobs[0].job_id}, which is poisoned.*requeue that job to go on"):
        flow.result(timeout=60)
