"""Durable steps that fail: which failures are final, and that a step returns the same value whether it runs or is read back."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from drumbeat import JobContext, StepFailed, sleep, step
from drumbeat.core.job import AttemptOutcome, JobStatus
from drumbeat.pool.worker.options import ExecutorKind, Mode
from drumbeat.testing import TestPool
from pool.working import Shop

DONE, FAILED = AttemptOutcome.DONE, AttemptOutcome.FAILED
DAY = timedelta(days=1)


class Calls:
    """Functions for steps; ``charge`` fails at its first call."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def charge(self) -> str:
        self.names.append("charge")
        if self.names.count("charge") == 1:
            raise ConnectionError("declined")
        return "charged"

    async def refuse(self) -> str:
        self.names.append("refuse")
        if self.names.count("refuse") == 1:
            raise OSError("the mail server is down")
        return "refused"

    async def ship(self) -> str:
        self.names.append("ship")
        await asyncio.sleep(0)
        return "shipped"


@pytest.fixture
def calls() -> Calls:
    return Calls()


async def test_a_failure_is_final_once_the_next_step_begins_even_if_that_one_fails(pool: TestPool, calls: Calls) -> None:
    async def order() -> str:
        try:
            await step(calls.charge)
        except StepFailed:
            return await step(calls.refuse)
        return await step(calls.ship)

    job_id = await pool.push(None)
    await pool.run_until_empty(order)

    assert calls.names == ["charge", "refuse", "refuse"]
    assert (await pool.job(job_id)).result == "refused"


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (OSError("no file \udcff"), "OSError: no file \\udcff"),
        (ValueError("a\0b"), "ValueError: a\\0b"),
        (Unreadable(), "Unreadable: (its message cannot be read: ValueError)"),
        (ValueError("x" * 100_000), None),
    ],
    ids=["half a surrogate", "NUL", "no text", "too long"],
)
async def test_a_caught_failure_is_stored_whatever_its_text(pool: TestPool, error: Exception, kept: str | None) -> None:
    async def fail() -> None:
        raise error

    async def order() -> str:
        with contextlib.suppress(StepFailed):
            await step(fail)
        return await step(Calls().ship)

    job_id = await pool.push(None)
    await pool.run_until_empty(order)

    [failed, shipped] = await pool.store.job_steps.list(job_id)
    assert ((await pool.job(job_id)).result, shipped.error) == ("shipped", None)
    assert failed.error is not None
    assert len(failed.error) < 5000
    assert kept in (None, failed.error)


async def test_a_caught_failure_is_in_the_store_before_the_next_step_is_called(pool: TestPool, calls: Calls) -> None:
    seen: list[str | None] = []

    async def look(job_id: Any) -> None:
        seen.extend(each.error for each in await pool.store.job_steps.list(job_id))

    async def order(context: JobContext) -> None:
        with contextlib.suppress(StepFailed):
            await step(calls.charge)
        await step(look, context.job_id)

    await pool.push(None)
    await pool.run_until_empty(order)

    assert seen == ["ConnectionError: declined"]


async def test_a_handler_that_compensates_and_raises_again_goes_the_same_way_next_time(pool: TestPool, calls: Calls) -> None:
    async def order() -> str:
        try:
            return await step(calls.charge)
        except StepFailed:
            await step(calls.ship)
            raise

    job_id = await pool.push(None, max_attempts=2)
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [FAILED, FAILED]
    assert calls.names == ["charge", "ship"]
    assert "declined" in ((await pool.job(job_id)).last_error or "")


@pytest.mark.parametrize("first", ["charge", "ship"])
async def test_a_failure_beside_another_step_that_nobody_catches_is_tried_again(
    pool: TestPool, calls: Calls, first: str
) -> None:
    async def order() -> list[str]:
        functions = [calls.charge, calls.ship] if first == "charge" else [calls.ship, calls.charge]
        return list(await asyncio.gather(*map(step, functions)))

    job_id = await pool.push(None)
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [FAILED, DONE]
    assert sorted((await pool.job(job_id)).result) == ["charged", "shipped"]
    assert calls.names.count("charge") == 2


async def test_a_failure_beside_a_sleep_that_nobody_catches_is_tried_again(pool: TestPool, calls: Calls) -> None:
    async def order() -> str:
        charged, _ = await asyncio.gather(step(calls.charge), sleep(DAY))
        return charged

    job_id = await pool.push(None)
    await pool.run_until_empty(order)

    assert (await pool.job(job_id)).result == "charged"


async def test_a_failure_in_a_task_of_its_own_that_the_handler_catches_is_final(pool: TestPool, calls: Calls) -> None:
    async def order() -> str:
        charged, _ = await asyncio.gather(step(calls.charge), step(calls.ship), return_exceptions=True)
        return await step(calls.refuse) if isinstance(charged, StepFailed) else str(charged)

    job_id = await pool.push(None)
    await pool.run_until_empty(order)

    assert (await pool.job(job_id)).result == "refused"
    assert calls.names == ["charge", "ship", "refuse", "refuse"]


async def test_a_failure_in_the_background_that_the_handler_has_not_seen_is_not_final(pool: TestPool, calls: Calls) -> None:
    async def order() -> str:
        charging = asyncio.create_task(step(calls.charge))  # noqa: TID251 - as handlers do
        await asyncio.sleep(0)
        await step(calls.ship)
        await step(calls.ship, step_name="ship again")
        return await charging

    job_id = await pool.push(None)
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [FAILED, DONE]
    assert (await pool.job(job_id)).result == "charged"


async def gathered(*steps: Any) -> None:
    await asyncio.gather(*steps)


async def in_time(first: Any, second: Any) -> None:
    await asyncio.wait_for(first, 10)  # noqa: TID251 - as handlers do
    await asyncio.wait_for(second, 10)  # noqa: TID251


@pytest.mark.parametrize("go_on", [gathered, in_time])
async def test_a_caught_failure_is_final_also_if_the_handler_goes_on_in_other_tasks(
    pool: TestPool, calls: Calls, go_on: Any
) -> None:
    async def order() -> str:
        try:
            return await step(calls.charge)
        except StepFailed:
            await go_on(step(calls.ship), step(calls.refuse))
            return "refunded"

    job_id = await pool.push(None)
    await pool.run_until_empty(order)

    assert (await pool.job(job_id)).result == "refunded"
    assert calls.names == ["charge", "ship", "refuse", "refuse"]


async def test_a_step_after_a_caught_failure_beside_a_sleep_runs_once(shop: Shop, calls: Calls) -> None:
    async def branch() -> None:
        with contextlib.suppress(StepFailed):
            await step(calls.charge)
        await step(calls.ship)

    async def order() -> None:
        await asyncio.gather(branch(), sleep(DAY))

    job_id = await shop.desk.push(None)
    await shop.work(shop.workload(order, mode=Mode.DRAIN))

    assert (await shop.job(job_id)).status is JobStatus.PENDING
    assert sorted(each.name.rpartition(".")[2] for each in await shop.desk.steps(job_id)) == ["charge", "ship", "sleep"]


@pytest.mark.parametrize("executor", [ExecutorKind.ASYNC, ExecutorKind.THREADS])
async def test_every_executor_knows_the_handlers_own_task(shop: Shop, calls: Calls, executor: ExecutorKind) -> None:
    async def order() -> str:
        charged, _ = await asyncio.gather(step(calls.charge), step(calls.ship), return_exceptions=True)
        await step(calls.ship, step_name="ship again")
        raise ValueError(f"charged: {not isinstance(charged, StepFailed)}")

    job_id = await shop.desk.push(None, max_attempts=2)
    await shop.work(shop.workload(order, mode=Mode.DRAIN, executor=executor))

    assert calls.names.count("charge") == 1
    assert "charged: False" in ((await shop.job(job_id)).last_error or "")


async def untyped_keys() -> Any:
    return {1: "x"}


async def typed_keys() -> dict[int, str]:
    return {1: "x"}


async def untyped_tuple() -> Any:
    return ("a", "b")


async def typed_tuple() -> tuple[str, str]:
    return ("a", "b")


class Point(NamedTuple):
    x: int
    y: int


async def named_tuple() -> Point:
    return Point(1, 2)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (named_tuple, Point(1, 2)),
        (untyped_keys, {"1": "x"}),
        (typed_keys, {1: "x"}),
        (untyped_tuple, ["a", "b"]),
        (typed_tuple, ("a", "b")),
    ],
)
async def test_a_step_returns_the_same_value_when_it_runs_and_when_it_is_read_back(
    pool: TestPool, function: Any, value: Any
) -> None:
    values: list[Any] = []

    async def order() -> None:
        values.append(await step(function))
        await sleep(DAY)

    await pool.push(None)
    await pool.run_until_empty(order)

    assert values == [value, value]


async def test_a_plain_handler_may_sleep_in_one_thread_while_a_step_runs_in_another(shop: Shop) -> None:
    began, sleeps = threading.Event(), threading.Event()

    def work() -> str:
        began.set()
        assert sleeps.wait(30)
        return "worked"

    def rest(context: JobContext) -> None:
        assert began.wait(30)
        threading.Timer(0.2, sleeps.set).start()
        context.sleep_blocking(DAY)

    def order(context: JobContext) -> None:
        with ThreadPoolExecutor(2) as threads:
            working, resting = threads.submit(context.step_blocking, work), threads.submit(rest, context)
            working.result()
            resting.result()

    job_id = await shop.desk.push(None)
    await shop.work(shop.workload(order, mode=Mode.DRAIN))

    job = await shop.job(job_id)
    assert (job.status, job.failures, job.last_error) == (JobStatus.PENDING, 0, None), "it is suspended"
    assert {each.name.rpartition(".")[2] for each in await shop.desk.steps(job_id)} == {"work", "sleep"}
