"""Durable steps that run beside a sleep, a wait, a transaction or an outage of the store."""

import asyncio
import contextlib
import threading
from datetime import timedelta
from typing import Any

import pytest

from drumbeat import JobContext, JobFailure, StepFailed, sleep, step, wait_for
from drumbeat.core.job import AttemptOutcome, JobStatus
from drumbeat.pool.worker.log_context import CURRENT_JOB
from drumbeat.pool.worker.options import ExecutorKind, Mode
from drumbeat.testing import TestPool
from pool.working import Shop, settle

DONE, FAILED, SUSPENDED = AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.SUSPENDED
DAY = timedelta(days=1)


async def gathered(*work: Any) -> None:
    await asyncio.gather(*work)


async def grouped(*work: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)


@pytest.mark.parametrize("together", [gathered, grouped])
@pytest.mark.parametrize("fatal", [False, True])
async def test_a_step_that_fails_beside_a_wait_fails_the_attempt(pool: TestPool, together: Any, fatal: bool) -> None:
    calls: list[str] = []

    async def charge() -> None:
        calls.append("charge")
        for _ in range(50):  # until the other task waits for the event
            await asyncio.sleep(0)
        raise JobFailure("no such card", fatal=fatal)

    async def order() -> None:
        await together(step(charge), wait_for("approval", timeout=3 * DAY))

    job_id = await pool.push(None, max_attempts=2)
    ran = await pool.run_until_empty(order)

    assert [(each.outcome, each.error) for each in ran] == [(FAILED, "no such card")] * (1 if fatal else 2)
    assert ((await pool.job(job_id)).status, len(calls)) == (JobStatus.POISONED, len(ran))


async def test_a_step_with_a_bad_result_beside_a_sleep_fails_the_attempt(pool: TestPool) -> None:
    async def odd() -> object:
        for _ in range(50):
            await asyncio.sleep(0)
        return object()

    async def order() -> None:
        await asyncio.gather(step(odd), sleep(DAY))

    await pool.push(None)
    [ran] = await pool.run_until_empty(order)

    assert ran.outcome is FAILED
    assert "to be JSON" in (ran.error or "")


@pytest.mark.parametrize("together", [gathered, grouped])
async def test_an_error_that_follows_from_the_suspension_does_not_fail_the_attempt(pool: TestPool, together: Any) -> None:
    async def nap() -> None:
        try:
            await sleep(DAY)
        except BaseException as exc:
            raise ValueError("cannot clean up") from exc

    async def order() -> str:
        await together(nap())
        return "slept"

    await pool.push(None, max_attempts=1)
    ran = await pool.run_until_empty(order)

    assert [(each.outcome, each.result) for each in ran] == [(SUSPENDED, None), (DONE, "slept")]


async def test_sleeps_in_a_task_group_suspend_the_job(pool: TestPool) -> None:
    async def order() -> str:
        await grouped(sleep(DAY), sleep(2 * DAY))
        return "slept"

    await pool.push(None, max_attempts=1)
    ran = await pool.run_until_empty(order)

    assert ran[-1].result == "slept"
    assert {each.outcome for each in ran[:-1]} == {SUSPENDED}


@pytest.mark.parametrize("slept", ["sleep", "wait_for"])
async def test_a_long_step_beside_a_sleep_or_a_wait_does_not_prolong_it(pool: TestPool, slept: str) -> None:
    async def pack(context: JobContext) -> None:
        while context.steps is None or context.steps.suspension is None:
            await asyncio.sleep(0)
        await pool.clock.advance(DAY / 4)

    async def order(context: JobContext) -> None:
        beside = sleep(DAY) if slept == "sleep" else wait_for("approval", timeout=DAY)
        await asyncio.gather(step(pack, context), beside)

    await pool.push(None, max_attempts=1)
    before = pool.clock.now()
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [SUSPENDED, DONE if slept == "sleep" else FAILED]
    assert pool.clock.now() == before + DAY


@pytest.mark.parametrize("executor", [ExecutorKind.ASYNC, ExecutorKind.THREADS])
async def test_a_plain_step_runs_in_a_thread_of_the_worker_and_sees_its_job(shop: Shop, executor: ExecutorKind) -> None:
    def look() -> list[Any]:
        thread, context = threading.current_thread(), CURRENT_JOB.get()
        return [thread.name.startswith("handler-"), thread.daemon, context is not None and context.job_id]

    async def order() -> list[Any]:
        return await step(look)

    job_id = await shop.desk.push(None)
    await shop.work(shop.workload(order, mode=Mode.DRAIN, executor=executor))

    assert (await shop.job(job_id)).result == [True, True, job_id]


async def test_a_plain_step_that_does_not_stop_takes_up_a_slot(shop: Shop) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        may_end.wait()

    async def order() -> None:
        await step(block)

    job_id = await shop.desk.push(None, timeout=5, max_attempts=1)
    workload = shop.workload(order, concurrency=2)
    try:
        async with shop.working(workload):
            await asyncio.to_thread(begun.wait)
            await shop.passes(6)

            assert (await shop.status(job_id), workload.figures.active) == (JobStatus.POISONED, 1)
            may_end.set()
    finally:
        may_end.set()


async def test_a_step_that_ends_in_a_long_outage_of_the_store_is_recorded_after_it(shop: Shop) -> None:
    gate, calls = asyncio.Event(), list[str]()

    async def charge() -> str:
        calls.append("charge")
        await gate.wait()
        return "charged"

    async def order() -> str:
        return await step(charge)

    job_id = await shop.desk.push(None, max_attempts=1)
    workload = shop.workload(order, lease=timedelta(seconds=30))
    async with shop.working(workload):
        with shop.store.unavailable():
            gate.set()
            await shop.passes(40)
        await shop.passes(6)

        job = await shop.job(job_id)
        assert (job.status, job.result, job.attempts, calls) == (JobStatus.DONE, "charged", 1, ["charge"])


async def test_a_step_of_a_lost_job_does_not_wait_for_the_end_of_an_outage(shop: Shop) -> None:
    gate = asyncio.Event()

    async def order() -> None:
        await step(gate.wait)

    job_id = await shop.desk.push(None)
    workload = shop.workload(order)
    async with shop.working(workload):
        token = (await shop.job(job_id)).token
        with shop.store.unavailable():
            gate.set()
            await settle()
            workload.in_flight.forget(token)
            await settle()
            held_up = workload.in_flight.running
            await shop.passes(6)

            assert (held_up, workload.in_flight.running) == (1, 0)


async def test_a_failure_that_a_plain_handler_catches_is_kept(shop: Shop) -> None:
    def charge() -> None:
        raise ValueError("no such card")

    def order(context: JobContext) -> str:
        with contextlib.suppress(StepFailed):
            context.step_blocking(charge, step_name="charge")
        return context.step_blocking(lambda: "sent", step_name="send")

    job_id = await shop.desk.push(None)
    await shop.work(shop.workload(order, mode=Mode.DRAIN))

    assert (await shop.job(job_id)).result == "sent"
    assert [(each.name, each.error) for each in await shop.desk.steps(job_id)] == [
        ("charge", "ValueError: no such card"),
        ("send", None),
    ]
