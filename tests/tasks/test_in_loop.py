"""Calls that wait are refused where an event loop runs, which they would block."""

from pathlib import Path

import pytest

import drumbeat
from drumbeat.core.errors import InvalidInput, JobEnded
from drumbeat.core.job import JobStatus
from drumbeat.tasks.queue import StoreQueue
from tasks.examples import add


@drumbeat.task(max_attempts=1, timeout=60)
async def wait_for_another(n: int) -> int:
    return add.push(n).result(timeout=60)


@drumbeat.task(max_attempts=1)
async def count_parents(context: drumbeat.JobContext) -> int:
    return len(context.parents_blocking())


async def test_a_result_is_awaited_within_a_loop(sqlite: StoreQueue) -> None:
    pushed = await add.apush(1)
    workflow = await drumbeat.chain(add.job(1), add.job(2)).apush()

    for waiting in (pushed, workflow):
        with pytest.raises(InvalidInput, match=r"^result\(\) would block the event loop .*; use await job\.aresult\(…\)$"):
            waiting.result(timeout=60)


def test_an_async_task_that_waits_for_a_result_fails_at_once(sqlite: StoreQueue) -> None:
    pushed = wait_for_another.push(1)

    with drumbeat.connect_blocking() as worker:
        worker.work("default", {wait_for_another.task_name: wait_for_another})

    with pytest.raises(JobEnded, match=r"use await job\.aresult"):
        pushed.result()


def test_an_async_task_reads_its_parents_with_await(sqlite: StoreQueue) -> None:
    parent = add.job(1)
    pushed = count_parents.job().after(parent).push()

    handlers = {task.task_name: task for task in (add, count_parents)}
    sqlite.loop.run(sqlite.connection.work("default", handlers))

    assert pushed.job().status is JobStatus.POISONED
    assert pushed.job().last_error == (
        "parents_blocking() would block the event loop of an async handler; use await context.parents()"
    )


async def test_a_blocking_connection_neither_waits_nor_works_within_a_loop(tmp_path: Path) -> None:
    with drumbeat.connect_blocking(f"sqlite:///{tmp_path}/jobs.db") as db:
        papers = db.pool("papers")
        job_id = papers.push(1)

        with pytest.raises(InvalidInput, match=r"^result\(\) would block .* use drumbeat.connect and await pool.result"):
            papers.result(job_id)
        with pytest.raises(InvalidInput, match=r"^work\(\) would block .* use drumbeat.connect and await db.work"):
            db.work("papers", print)
