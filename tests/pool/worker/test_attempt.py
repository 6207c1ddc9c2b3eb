"""One attempt at a job: how long it may take, and how much of its error is kept."""

import asyncio
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.pool.middleware import AttemptCall
from drumbeat.pool.plugins import NO_PLUGINS
from drumbeat.pool.worker.attempt import AttemptRunner
from drumbeat.pool.worker.executors import LoopExecutor
from drumbeat.pool.worker.failures import LONGEST, shortened
from drumbeat.pool.worker.handlers import Handler, describe
from drumbeat.pool.worker.in_flight import InFlightJob
from drumbeat.pool.worker.options import Mode
from pool.working import Shop

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("of_the_job", "of_the_worker", "after"),
    [(None, 5 * SECOND, 5 * SECOND), (3 * SECOND, 5 * SECOND, 3 * SECOND), (9 * SECOND, 5 * SECOND, 9 * SECOND)],
    ids=["the job names none", "the job's is shorter", "the job's is longer"],
)
async def test_a_job_has_its_own_timeout_or_else_its_workers(
    clock: ManualClock, of_the_job: timedelta | None, of_the_worker: timedelta, after: timedelta
) -> None:
    begun = asyncio.Event()

    async def stuck() -> None:
        begun.set()
        await asyncio.Event().wait()

    attempts = AttemptRunner(
        handlers={"": describe(stuck)}, executor=LoopExecutor(), clock=clock, chance=lambda: 0.5, timeout=of_the_worker
    )
    job = Job(job_id=JobId("j"), pool_id=PoolId("p"), payload=None, status=JobStatus.CLAIMED, timeout=of_the_job)
    async with asyncio.TaskGroup() as group:
        verdict = group.create_task(attempts.run(InFlightJob(job=job, token=job.token)))
        await begun.wait()
        await clock.advance(after - SECOND)
        assert not verdict.done()
        await clock.advance(SECOND)

    assert verdict.result().outcome is AttemptOutcome.TIMED_OUT
    assert verdict.result().error == f"took longer than {after.total_seconds():g} s"


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class SlowToImport(LoopExecutor):
    """Takes its time to import a handler."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.imported = asyncio.Event(), asyncio.Event()

    async def prepare(self, handler: Handler) -> None:
        self.asked.set()
        await self.imported.wait()


@pytest.mark.parametrize(
    ("takes", "outcome", "result", "error"),
    [
        (30 * SECOND, AttemptOutcome.DONE, 7, None),
        (timedelta(minutes=5), AttemptOutcome.FAILED, None, "in a child process took longer than 5 min"),
    ],
    ids=["slow", "hangs"],
)
async def test_the_timeout_begins_when_the_handler_is_imported(
    clock: ManualClock, takes: timedelta, outcome: AttemptOutcome, result: int | None, error: str | None
) -> None:
    executor = SlowToImport()
    attempts = AttemptRunner(handlers={"": describe(lambda: 7)}, executor=executor, clock=clock, chance=lambda: 0.5)
    job = Job(job_id=JobId("j"), pool_id=PoolId("p"), payload=None, status=JobStatus.CLAIMED, timeout=SECOND)
    async with asyncio.TaskGroup() as group:
        verdict = group.create_task(attempts.run(InFlightJob(job=job, token=job.token)))
        await settle()
        assert executor.asked.is_set()
        await clock.advance(takes)
        executor.imported.set()

    said = verdict.result()
    assert (said.outcome, said.result, (error or "") in (said.error or "")) == (outcome, result, True)


def test_of_a_long_error_the_beginning_and_the_end_are_kept() -> None:
    kept = shortened("the beginning" + "x" * 10 * LONGEST + "the end")

    assert kept.startswith("the beginning")
    assert kept.endswith("the end")
    assert len(kept) <= LONGEST + 3


async def test_a_job_that_is_stopped_while_a_hook_runs_after_it_keeps_its_outcome(clock: ManualClock) -> None:
    begun = asyncio.Event()

    class Slow:
        async def after_attempt(self, attempt: AttemptCall) -> None:
            begun.set()
            await asyncio.Event().wait()

    attempts = AttemptRunner(
        handlers={"": describe(lambda: 7)},
        executor=LoopExecutor(),
        clock=clock,
        chance=lambda: 0.5,
        plugins=NO_PLUGINS.with_middleware([Slow()]),
    )
    job = Job(job_id=JobId("j"), pool_id=PoolId("p"), payload=None, status=JobStatus.CLAIMED)
    held = InFlightJob(job=job, token=job.token)
    async with asyncio.TaskGroup() as group:
        held.task = group.create_task(attempts.run(held))
        await begun.wait()
        held.stop(AttemptOutcome.CANCELLED)

    assert held.task.result() == JobOutcome(token=job.token, outcome=AttemptOutcome.DONE, result=7)
    await attempts.executor.close()


async def test_an_outage_of_the_store_while_the_results_of_parents_are_read_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = await Shop().opened()
    read, failures = shop.store.jobs.parents, iter([StoreUnavailable("the connection was lost")] * 3)

    async def unsure(job_id: JobId) -> Sequence[Job]:
        for failure in failures:
            raise failure
        return await read(job_id)

    async def child(payload: Any) -> Any:
        return payload

    monkeypatch.setattr(shop.store.jobs, "parents", unsure)
    parent = await shop.desk.push("one")
    waiting = await shop.desk.push({"args": [None], "kwargs": {}, "outputs": {"0": parent}}, after=[parent], max_attempts=1)
    await shop.work(shop.workload(child, mode=Mode.DRAIN))

    job = await shop.job(waiting)
    assert (job.status, job.failures, job.result) == (JobStatus.DONE, 0, {"args": ["one"], "kwargs": {}})
    assert next(failures, None) is None


async def test_a_job_whose_attempt_has_ended_is_freed_at_once_without_the_garbage_collector(clock: ManualClock) -> None:
    async def seven() -> int:
        return 7

    attempts = AttemptRunner(
        handlers={"": describe(seven)}, executor=LoopExecutor(), clock=clock, chance=lambda: 0.5, steps=AsyncMock()
    )
    job = Job(job_id=JobId("j"), pool_id=PoolId("p"), payload=None, status=JobStatus.CLAIMED)
    held = InFlightJob(job=job, token=job.token, tell=lambda *_: None)
    context = weakref.ref(held.context)

    assert (await attempts.run(held)).result == 7
    del held
    assert context() is None
