"""Middleware: hooks around pushes and attempts, their headers, and what becomes of their errors."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from drumbeat import testing
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import AttemptOutcome, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.envelope import MARK
from drumbeat.pool.middleware import HOOKS, AttemptCall, Middleware, MiddlewareChain, PushCall, load_middleware
from drumbeat.pool.plugins import NO_PLUGINS
from drumbeat.pool.worker.assemble import job_workload
from drumbeat.pool.worker.context import JobContext, JobFailure
from drumbeat.pool.worker.handlers import describe
from drumbeat.pool.worker.options import WorkPlan
from pool.working import Shop, me, settle

SEEN: list[str] = []  #: what the middleware in this module has seen, when loaded by name


class Recorder(Middleware):
    """Writes down which hooks were called, in order."""

    def __init__(self, name: str = "", seen: list[str] | None = None) -> None:
        self.name = name
        self.seen = SEEN if seen is None else seen

    def before_push(self, push: PushCall) -> None:
        self.seen.append(f"{self.name}before_push")
        for job in push.jobs:
            job.headers["by"] = job.headers.get("by", "") + self.name

    async def after_push(self, push: PushCall) -> None:
        self.seen.append(f"{self.name}after_push")

    async def before_attempt(self, attempt: AttemptCall) -> None:
        self.seen.append(f"{self.name}before_attempt {attempt.job.payload} {attempt.headers}")

    def after_attempt(self, attempt: AttemptCall) -> None:
        outcome = None if attempt.outcome is None else attempt.outcome.outcome
        self.seen.append(f"{self.name}after_attempt {outcome}")

    def on_retry(self, attempt: AttemptCall) -> None:
        self.seen.append(f"{self.name}on_retry")

    async def on_poison(self, attempt: AttemptCall) -> None:
        self.seen.append(f"{self.name}on_poison")


class Broken:
    """Every hook fails, in one of two ways."""

    def __getattr__(self, name: str) -> Any:
        if name not in HOOKS:
            raise AttributeError(name)

        def fail(call: object) -> None:
            raise RuntimeError(f"{name} is broken")

        async def fail_later(call: object) -> None:
            raise RuntimeError(f"{name} is broken")

        return fail if name.startswith("before") else fail_later


async def test_hooks_are_called_around_a_push_and_an_attempt() -> None:
    seen: list[str] = []
    async with testing.pool(middleware=[Recorder("1 ", seen), Recorder("2 ", seen)]) as pool:
        await pool.push(7)
        await pool.run_until_empty(lambda payload: payload)

    headers = {"by": "1 2 "}
    assert seen == [
        "1 before_push",
        "2 before_push",
        "2 after_push",
        "1 after_push",
        f"1 before_attempt 7 {headers}",
        f"2 before_attempt 7 {headers}",
        "2 after_attempt done",
        "1 after_attempt done",
    ]


async def test_a_failed_attempt_is_told_as_a_retry_and_the_last_as_poison() -> None:
    seen: list[str] = []

    def fail(payload: int) -> None:
        raise ValueError(payload)

    async with testing.pool(middleware=[Recorder("", seen)]) as pool:
        await pool.push(7, max_attempts=2)
        await pool.run_until_empty(fail)

    told = [each for each in seen if "push" not in each and "before" not in each]
    assert told == ["on_retry", "after_attempt failed", "on_poison", "after_attempt failed"]


async def test_a_fatal_failure_is_told_as_poison_at_once() -> None:
    seen: list[str] = []

    def fail() -> None:
        raise JobFailure("no use", fatal=True)

    async with testing.pool(middleware=[Recorder("", seen)]) as pool:
        await pool.push(7)
        await pool.run_until_empty(fail)

    assert "on_poison" in seen
    assert "on_retry" not in seen


async def test_a_handler_sees_the_headers_and_the_payload_as_it_was_pushed() -> None:
    found: list[object] = []

    def handle(payload: object, context: JobContext) -> None:
        found.extend([payload, dict(context.headers)])

    async with testing.pool(middleware=[Recorder("a")]) as pool:
        job_id = await pool.push({"id": 1})
        shown = (await pool.job(job_id)).payload
        await pool.run_until_empty(handle)

    assert found == [{"id": 1}, {"by": "a"}]
    assert shown == {"id": 1}


async def test_the_payload_is_shown_without_its_headers_everywhere() -> None:
    async with testing.pool(middleware=[Recorder("a")]) as pool:
        await pool.push_many([1, 2])

        assert [job.payload for job in await pool.list()] == [1, 2]
        claimed = await pool.claim()
        assert claimed is not None
        assert claimed.payload == 1
        await pool.complete(claimed, {MARK: "mine"})
        assert await pool.result(claimed.job_id) == {MARK: "mine"}


async def test_without_middleware_a_payload_is_stored_as_it_is() -> None:
    async with testing.pool() as pool:
        job_id = await pool.push({"id": 1})

        assert (await pool.store.jobs.get(job_id)).payload == {"id": 1}


@pytest.mark.parametrize("payload", [{MARK: {}, "value": 1}, {MARK: {"headers": {"a": "b"}}, "value": 1}, {MARK: 3}])
async def test_a_payload_that_looks_like_an_envelope_comes_back_as_it_was(payload: Any) -> None:
    found: list[object] = []

    def handle(payload: object) -> object:
        found.append(payload)
        return payload

    async with testing.pool() as pool:
        job_id = await pool.push(payload)
        (ran,) = await pool.run_until_empty(handle)
        result = await pool.result(job_id)

    assert found == [payload]
    assert ran.outcome is AttemptOutcome.DONE
    assert result == payload


async def test_errors_of_hooks_lose_no_job_and_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def fail_once(payload: int, context: JobContext) -> int:
        if context.attempt == 1:
            raise ValueError(payload)
        return payload

    async with testing.pool(middleware=[Broken()]) as pool:
        ids = await pool.push_many(range(3))
        await pool.run_until_empty(fail_once)
        jobs = await pool.list()

    assert [job.job_id for job in jobs] == list(ids)
    assert all(job.status is JobStatus.DONE for job in jobs)
    told = [record for record in caplog.records if "middleware hook" in record.message]
    assert len(told) == 5
    assert all(record.levelno == logging.WARNING for record in told)


async def test_an_error_of_one_hook_does_not_keep_the_next_from_being_called() -> None:
    seen: list[str] = []
    async with testing.pool(middleware=[Broken(), Recorder("", seen)]) as pool:
        await pool.push(1)

    assert seen == ["before_push", "after_push"]


async def test_a_hook_that_raises_a_cancellation_of_its_own_loses_no_job(caplog: pytest.LogCaptureFixture) -> None:
    class Cancelling(Middleware):
        def before_push(self, push: PushCall) -> None:
            raise asyncio.CancelledError

        async def before_attempt(self, attempt: AttemptCall) -> None:
            raise asyncio.CancelledError

        async def after_attempt(self, attempt: AttemptCall) -> None:
            exporter = asyncio.get_running_loop().create_future()
            exporter.cancel()
            await exporter

    seen: list[str] = []
    async with testing.pool(middleware=[Recorder("", seen), Cancelling()]) as pool:
        job_id = await pool.push(1, max_attempts=1)
        (ran,) = await pool.run_until_empty(lambda payload: payload)

        assert (ran.outcome, await pool.result(job_id)) == (AttemptOutcome.DONE, 1)
    assert seen[-1] == "after_attempt done"
    assert caplog.text.count("failed: CancelledError()") == 3


async def test_a_task_that_is_cancelled_while_a_hook_runs_ends() -> None:
    begun, seen = asyncio.Event(), list[str]()

    class Slow:
        async def before_push(self, push: PushCall) -> None:
            begun.set()
            await asyncio.Event().wait()

    async with testing.pool(middleware=[Slow(), Recorder("", seen)]) as pool, asyncio.TaskGroup() as group:
        task = group.create_task(pool.push(1))
        await begun.wait()
        task.cancel()

    assert (task.cancelled(), seen) == (True, [])


def test_a_plain_hook_that_raises_a_cancellation_does_not_stop_a_blocking_push() -> None:
    class Cancelling:
        def before_push(self, push: PushCall) -> None:
            raise asyncio.CancelledError

    ids = MiddlewareChain([Cancelling()]).around_blocking_push(PoolId("p"), [NewJob(payload=1)], lambda jobs: [JobId("j1")])

    assert ids == ["j1"]


async def test_a_hook_that_hangs_is_cancelled(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Stuck:
        async def before_attempt(self, attempt: AttemptCall) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr("drumbeat.pool.middleware.SLOWEST_HOOK", 0)
    async with testing.pool(middleware=[Stuck()]) as pool:
        job_id = await pool.push(1)
        await pool.run_until_empty(lambda payload: payload)

        assert await pool.result(job_id) == 1
    assert "middleware hook" in caplog.text


@pytest.mark.parametrize("headers", [{"a": 1}, {"a": "x" * 9000}, {1: "a"}, "text", None])
async def test_headers_that_cannot_be_stored_are_dropped_and_the_job_is_pushed(
    headers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless:
        def before_push(self, push: PushCall) -> None:
            push.jobs[0].headers = headers

    async with testing.pool(middleware=[Careless()]) as pool:
        job_id = await pool.push(1)

        assert (await pool.store.jobs.get(job_id)).payload == 1
    assert "headers dropped: expected a dict of texts" in caplog.text


async def test_a_push_that_fails_is_told_with_its_error() -> None:
    errors: list[object] = []

    class Seeing:
        def after_push(self, push: PushCall) -> None:
            errors.append(push.error)

    async with testing.pool(middleware=[Seeing()]) as pool:
        with pytest.raises(InvalidInput):
            await pool.push(1, job_id="j000000000001")

    assert isinstance(errors[0], InvalidInput)


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["nowhere:Thing"], "cannot import 'nowhere'"),
        (["pool.test_middleware:Missing"], "has no 'Missing'; expected an object with hooks"),
        (["pool.test_middleware"], "expected module:object"),
    ],
)
def test_middleware_that_cannot_be_loaded_is_named(specs: Sequence[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load_middleware(specs)


def test_an_object_without_hooks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="an object with one of before_push"):
        MiddlewareChain([object()])


def test_a_class_is_loaded_as_an_object_of_it() -> None:
    (found,) = load_middleware(["pool.test_middleware:Recorder"])

    assert type(found).__name__ == "Recorder"


async def test_a_job_poisoned_by_a_crash_is_told_by_the_worker_that_takes_it_back() -> None:
    told: list[tuple[str, object, object]] = []

    class Alarm:
        def before_push(self, push: PushCall) -> None:
            push.jobs[0].headers["a"] = "b"

        def on_poison(self, attempt: AttemptCall) -> None:
            told.append((attempt.job.job_id, attempt.headers, attempt.outcome and attempt.outcome.outcome))

    async with testing.pool(middleware=[Alarm()]) as pool:
        job_id = await pool.push(1, max_crashes=1)
        await pool.claim(lease=timedelta(minutes=1))
        worker = Holder(pool_id=pool.pool_id, worker_id=WorkerId("w"), instance="i")
        plugins = NO_PLUGINS.with_middleware([Alarm()])
        workload = job_workload(pool.store, await pool.get(), worker, WorkPlan(), pool.clock, handlers={}, plugins=plugins)
        async with asyncio.TaskGroup() as group:
            hooks = group.create_task(workload._claims.taken_back.run())
            for _ in range(2):
                await pool.clock.advance(timedelta(minutes=2))
                await workload._claims.expire()
            await workload._claims.taken_back.until_called()
            hooks.cancel()

        assert (await pool.job(job_id)).status is JobStatus.POISONED
    assert told == [(job_id, {"a": "b"}, AttemptOutcome.CRASHED)]


async def test_a_slow_hook_for_a_job_that_was_taken_back_delays_no_lease() -> None:
    shop, begun, go = await Shop().opened(), asyncio.Event(), asyncio.Event()

    class SlowAlarm:
        async def on_poison(self, attempt: AttemptCall) -> None:
            begun.set()
            await go.wait()

    async def work() -> str:
        await go.wait()
        return "done"

    lost = await shop.desk.push(1, max_crashes=1)
    await shop.desk.claim(lease=timedelta(minutes=1))
    long = await shop.desk.push(2)
    plugins = NO_PLUGINS.with_middleware([SlowAlarm()])
    handlers = {"": describe(work)}
    workload = job_workload(shop.store, shop.home, me(), WorkPlan(), shop.clock, handlers=handlers, plugins=plugins)
    async with shop.working(workload):
        taken: list[object] = []
        for _ in range(2):  # the store extends an expired lease once
            await shop.passes(600)
            taken += await shop.store.queue.expire()

        assert (begun.is_set(), taken, await shop.status(lost)) == (True, [], JobStatus.POISONED)
        go.set()
        await settle()
        assert await shop.status(long) is JobStatus.DONE
