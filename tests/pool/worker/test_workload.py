"""Job workers: what they claim, run, settle, renew, give back, and how they leave."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import DrumbeatError, StoreUnavailable
from drumbeat.core.job import LONGEST_WAIT, AttemptOutcome, JobId, JobOutcome, JobStatus, NewJob, Token
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import ExitCode, Holder, WorkerId, WorkerStatus
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.context import JobContext, JobFailure
from drumbeat.pool.worker.in_flight import InFlight
from drumbeat.pool.worker.options import ExecutorKind, Mode, WorkPlan
from drumbeat.pool.worker.workload import IDLE
from drumbeat.store.interface import ClaimRequest
from pool.working import ME, POOL, Shop, me, seconds, settle


async def double(n: int) -> int:
    return 2 * n


class Gate:
    """A handler that waits until it is let through."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun: list[Any] = []
        self.cancelled: list[Any] = []

    async def __call__(self, payload: Any) -> Any:
        self.begun.append(payload)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(payload)
            raise
        return payload


async def test_a_draining_worker_does_every_job_and_leaves(shop: Shop) -> None:
    ids = await shop.desk.push_many(range(250))

    code = await shop.work(shop.workload(double, mode=Mode.DRAIN, concurrency=7))

    assert code is ExitCode.CLEAN
    assert [(await shop.job(job_id)).result for job_id in ids] == [2 * n for n in range(250)]
    assert (await shop.store.workers.get(POOL, ME)).status is WorkerStatus.TERMINATED


async def test_once_is_one_job(shop: Shop) -> None:
    first, second = await shop.desk.push_many([1, 2])
    workload = shop.workload(double, mode=Mode.ONCE)

    code = await shop.work(workload)

    assert (code, workload.figures.operations) == (ExitCode.CLEAN, 1)
    assert (await shop.status(first), await shop.status(second)) == (JobStatus.DONE, JobStatus.PENDING)


async def silent_claims(shop: Shop, count: int, lease: float) -> list[str]:
    """Jobs that somebody claimed who is never heard of again, and whose leases have run out."""
    ids = await shop.desk.push_many(range(count))
    await shop.desk.claim_many(count, lease=seconds(lease), worker_id="silent")
    await shop.passes(lease + 1)
    return [*ids]


@pytest.mark.parametrize("extended", [False, True])
async def test_a_draining_worker_takes_over_every_claim_that_has_run_out(shop: Shop, extended: bool) -> None:
    ids = await silent_claims(shop, 501, lease=20)
    if extended:
        assert [*await shop.store.queue.expire()] == []
    workload = shop.workload(double, mode=Mode.DRAIN, concurrency=7)

    code = await shop.work(workload)

    assert (code, {await shop.status(job_id) for job_id in ids}) == (ExitCode.CLEAN, {JobStatus.DONE})
    assert (workload.in_flight.tally.ended, workload.in_flight.tally.done, workload.in_flight.tally.failed) == (501, 501, 0)


async def test_what_it_takes_back_is_told_with_the_pool_it_belongs_to(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    await shop.store.pools.create(pool(PoolId("letters"), PoolKind.JOBS))
    letters = Pool(shop.store, shop.clock, "letters", "somebody")
    await letters.push_many(range(3))
    await letters.claim_many(3, lease=seconds(20), worker_id=ME)
    await silent_claims(shop, 2, lease=20)
    await shop.store.queue.expire()
    await shop.passes(21)

    await shop.work(shop.workload(double, mode=Mode.DRAIN))

    said = sorted(record.getMessage() for record in caplog.records if "took back" in record.getMessage())
    assert [each.partition(":")[0] for each in said] == ["took back 2 jobs of pool papers", "took back 3 jobs of pool letters"]


async def test_a_draining_worker_leaves_while_others_keep_their_claims(shop: Shop) -> None:
    late, kept = await silent_claims(shop, 2, lease=20)
    job = await shop.job(late)
    assert job.holder is not None
    workload = shop.workload(double, mode=Mode.DRAIN)
    life = shop.life(workload)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(life.run())
        await shop.begun()
        waits = not task.done()
        await shop.store.queue.renew(job.holder, [(await shop.job(each)).token for each in (late, kept)], seconds(3600))
        for _ in range(100):
            await shop.passes(1)

    assert waits
    assert (task.result(), workload.in_flight.tally.ended) == (ExitCode.CLEAN, 0)
    assert await shop.status(late) is JobStatus.CLAIMED


async def test_a_draining_worker_does_not_wait_for_claims_it_could_not_take_over(shop: Shop) -> None:
    async def other(n: int) -> int:
        return n

    await silent_claims(shop, 1, lease=3600)
    workload = shop.workload(double, other, mode=Mode.DRAIN)

    assert await shop.work(workload) is ExitCode.CLEAN


@pytest.mark.parametrize("mode", [Mode.ONCE, Mode.DRAIN])
async def test_nothing_to_do_is_a_clean_end(shop: Shop, mode: Mode) -> None:
    workload = shop.workload(double, mode=mode)

    assert await shop.work(workload) is ExitCode.CLEAN
    assert workload.figures.operations == 0


async def test_never_more_run_than_there_is_room_for(shop: Shop) -> None:
    await shop.desk.push_many(range(10))
    gate = Gate()

    async with shop.working(shop.workload(gate, concurrency=3)):
        begun = len(gate.begun)
        gate.open.set()
        await settle()

    assert begun == 3
    assert sorted(gate.begun) == list(range(10))


async def test_a_waiting_worker_hears_of_a_push(shop: Shop) -> None:
    async with shop.working(shop.workload(double)):
        await settle()
        job_id = await shop.desk.push(4)
        await settle()

        assert (await shop.job(job_id)).result == 8


async def test_a_delayed_job_is_done_when_its_time_has_come(shop: Shop) -> None:
    async with shop.working(shop.workload(double)):
        job_id = await shop.desk.push(4, delay=60)
        await shop.passes(59)
        early = await shop.status(job_id)
        await shop.passes(2)

        assert (early, await shop.status(job_id)) == (JobStatus.PENDING, JobStatus.DONE)


def fail_plainly() -> None:
    raise ValueError("no such paper")


def fail_for_good() -> None:
    raise JobFailure("the paper is withdrawn", fatal=True)


def leave() -> None:
    raise SystemExit(3)


async def leave_async() -> None:
    raise SystemExit(3)


async def cancel_oneself() -> None:
    raise asyncio.CancelledError


def not_json() -> object:
    return object()


def busy_for_a_number() -> None:
    raise JobFailure("busy", retry_in=30)


def busy_for_ever() -> None:
    raise JobFailure("busy", retry_in=timedelta.max)


def busy_for_less_than_nothing() -> None:
    raise JobFailure("busy", retry_in=timedelta.min)


def busy_for_words() -> None:
    raise JobFailure("busy", retry_in="a while")  # type: ignore[arg-type]


def busy_for_no_number() -> None:
    raise JobFailure("busy", retry_in=float("nan"))


class Unspeakable(Exception):
    """Has no words for itself."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class UnspeakableFailure(JobFailure):
    """Has none either."""

    def __init__(self) -> None:
        """Leaves out what a failure is made of."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def fail_without_words() -> None:
    raise Unspeakable


def fail_without_anything() -> None:
    raise UnspeakableFailure


async def leave_the_generator() -> None:
    raise GeneratorExit


async def leave_in_a_group() -> None:
    raise BaseExceptionGroup("several", [KeyboardInterrupt()])


def note_a_number(context: JobContext) -> None:
    context.progress(0.5, 42)
    raise ValueError("after its note")


@pytest.mark.parametrize(
    ("handler", "status", "says"),
    [
        (fail_plainly, JobStatus.PENDING, "ValueError: no such paper"),
        (fail_for_good, JobStatus.POISONED, "the paper is withdrawn"),
        (leave, JobStatus.PENDING, "the handler raised SystemExit: 3"),
        (leave_async, JobStatus.PENDING, "the handler raised SystemExit: 3"),
        (cancel_oneself, JobStatus.PENDING, "CancelledError"),
        (not_json, JobStatus.POISONED, "expected result to be JSON, got object"),
        (busy_for_a_number, JobStatus.PENDING, "busy"),
        (busy_for_ever, JobStatus.PENDING, "busy"),
        (busy_for_less_than_nothing, JobStatus.POISONED, "busy"),
        (busy_for_words, JobStatus.PENDING, "busy (expected retry_in to be seconds or a timedelta, got 'a while')"),
        (busy_for_no_number, JobStatus.PENDING, "busy (expected retry_in to be seconds or a timedelta, got nan)"),
        (fail_without_words, JobStatus.PENDING, "Unspeakable"),
        (fail_without_anything, JobStatus.POISONED, "its outcome could not be determined: RuntimeError"),
        (leave_the_generator, JobStatus.PENDING, "the handler raised GeneratorExit"),
        (leave_in_a_group, JobStatus.PENDING, "the handler raised BaseExceptionGroup"),
        (note_a_number, JobStatus.PENDING, "ValueError: after its note"),
    ],
)
async def test_a_failing_handler_never_takes_the_worker_down(shop: Shop, handler: Any, status: JobStatus, says: str) -> None:
    bad = await shop.desk.push({}, type=handler.__name__, backoff={"first": 3600, "most": 3600})
    good = await shop.desk.push(1, type="double")

    code = await shop.work(shop.workload(handler, double, mode=Mode.DRAIN))

    job = await shop.job(bad)
    assert code is ExitCode.CLEAN
    assert (job.status, await shop.status(good)) == (status, JobStatus.DONE)
    assert says in (job.last_error or "")


@pytest.mark.parametrize(
    ("retry_in", "wait"),
    [
        (30, seconds(30)),
        (0.5, seconds(0.5)),
        (seconds(7), seconds(7)),
        pytest.param(10**400, LONGEST_WAIT, id="too big a number"),
        (timedelta.max, LONGEST_WAIT),
    ],
)
async def test_a_handler_says_in_seconds_or_as_a_timedelta_when_to_try_again(
    shop: Shop, retry_in: Any, wait: timedelta
) -> None:
    async def busy() -> None:
        raise JobFailure("busy", retry_in=retry_in)

    job_id = await shop.desk.push({})
    async with shop.working(shop.workload(busy)):
        job = await shop.job(job_id)

        assert job.not_before is not None
        assert job.not_before - shop.clock.now() == wait


async def test_a_job_that_fails_again_and_again_never_hangs_its_worker(shop: Shop) -> None:
    async def fail(payload: Any) -> None:
        raise ValueError(payload)

    job_id = await shop.desk.push({}, max_attempts=70, backoff={"most": 0})
    async with shop.working(shop.workload(fail)):
        await settle(2000)

        job = await shop.job(job_id)
        assert (job.status, job.failures) == (JobStatus.POISONED, 70)


async def test_a_timeout_beyond_all_time_is_none(shop: Shop) -> None:
    [job_id] = await shop.store.queue.push(POOL, [NewJob(payload=1, timeout=timedelta.max)])

    await shop.work(shop.workload(double, mode=Mode.DRAIN))

    assert (await shop.job(job_id)).result == 2


async def test_a_task_that_dies_with_its_job_ends_the_worker(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*given: Any) -> None:
        raise RuntimeError("nobody expected this")

    workload = shop.workload(double, mode=Mode.DRAIN)
    monkeypatch.setattr(workload.in_flight, "finish", die)
    await shop.desk.push(1)

    assert await shop.work(workload) is ExitCode.FATAL


async def test_a_failure_keeps_the_handlers_own_traceback_and_not_ours(shop: Shop) -> None:
    job_id = await shop.desk.push({})

    await shop.work(shop.workload(fail_plainly, mode=Mode.ONCE))

    error = (await shop.job(job_id)).last_error or ""
    assert "in fail_plainly" in error
    assert "drumbeat/pool" not in error


async def test_failures_wait_longer_each_time_and_poison_at_the_limit(shop: Shop) -> None:
    async def fail(payload: Any) -> None:
        raise ValueError(payload)

    job_id = await shop.desk.push({}, max_attempts=3, backoff={"first": 10, "jitter": 0})

    async with shop.working(shop.workload(fail)):
        waits = []
        for wait in (10, 20):
            job = await shop.job(job_id)
            waits.append((job.failures, job.not_before and job.not_before - shop.clock.now()))
            await shop.passes(wait)

        assert waits == [(1, seconds(10)), (2, seconds(20))]
        assert await shop.status(job_id) is JobStatus.POISONED


async def test_an_attempt_that_takes_too_long_has_failed(shop: Shop) -> None:
    gate = Gate()
    job_id = await shop.desk.push("slow", timeout=5, max_attempts=1)

    async with shop.working(shop.workload(gate)):
        await shop.passes(5.1)

        job = await shop.job(job_id)
        assert (job.status, job.last_error, gate.cancelled) == (JobStatus.POISONED, "took longer than 5 s", ["slow"])
        assert [attempt.outcome for attempt in await shop.desk.attempts(job_id)] == [AttemptOutcome.TIMED_OUT]


async def test_a_long_job_keeps_its_lease(shop: Shop) -> None:
    gate = Gate()
    job_id = await shop.desk.push("long")

    async with shop.working(shop.workload(gate)):
        await shop.passes(600)
        taken = await shop.store.queue.expire()
        gate.open.set()
        await settle()

        assert taken == []
        assert await shop.status(job_id) is JobStatus.DONE


async def test_a_cancelled_job_is_stopped_by_its_worker(shop: Shop) -> None:
    gate = Gate()
    job_id = await shop.desk.push("unwanted")

    async with shop.working(shop.workload(gate)):
        await shop.desk.cancel(job_id)
        await shop.passes(21)

        assert gate.cancelled == ["unwanted"]
        assert await shop.status(job_id) is JobStatus.CANCELLED


async def test_a_worker_that_cannot_ask_what_to_stop_stops_what_the_renewal_of_its_leases_reports_as_cancelled(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(shop.store.jobs, "to_stop", away)
    gate = Gate()
    unwanted, wanted = await shop.desk.push("unwanted"), await shop.desk.push("wanted")

    async with shop.working(shop.workload(gate, lease=seconds(30), concurrency=2)):
        await shop.passes(5)
        await shop.desk.cancel(unwanted)
        await shop.passes(4)
        before_renewal = list(gate.cancelled)
        await shop.passes(2)

        assert (before_renewal, gate.cancelled) == ([], ["unwanted"])
        assert await shop.status(unwanted) is JobStatus.CANCELLED
        assert await shop.status(wanted) is JobStatus.CLAIMED
        gate.open.set()


async def test_a_running_job_hears_of_its_cancellation_within_about_a_second_and_once(shop: Shop) -> None:
    told: list[str] = []

    async def tidy_up(payload: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await shop.clock.sleep(seconds(5))
            told.append("tidied up")
            raise

    job_id = await shop.desk.push("unwanted")
    async with shop.working(shop.workload(tidy_up)):
        await shop.passes(3)
        await shop.desk.cancel(job_id)
        await shop.passes(1)
        stopping = await shop.status(job_id)
        for _ in range(6):
            await shop.passes(1)

        assert (stopping, told) == (JobStatus.CLAIMED, ["tidied up"])
        assert await shop.status(job_id) is JobStatus.CANCELLED


async def test_a_worker_whose_jobs_are_done_at_once_never_asks_what_to_stop(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(shop.store.jobs, "to_stop", lambda worker_id: asked.append(worker_id))

    async with shop.working(shop.workload(double)):
        pushed = [await shop.desk.push(0)]
        for n in range(1, 5):
            await shop.passes(1)
            pushed.append(await shop.desk.push(n))
        await shop.passes(1)

    assert [await shop.status(job_id) for job_id in pushed] == [JobStatus.DONE] * 5
    assert asked == []


async def test_a_job_that_was_taken_away_is_stopped_and_its_result_dropped(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    job_id = await shop.desk.push("taken")

    async with shop.working(shop.workload(gate)):
        await shop.store.queue.release(me(), "somebody thought it lost")
        other = await shop.desk.claim()
        await shop.passes(21)

        assert other is not None
        assert gate.cancelled == ["taken"]
        assert (await shop.job(job_id)).lease_owner == "somebody"
    assert "was taken from this worker; stopping its handler" in caplog.text


async def test_a_draining_worker_whose_last_job_was_taken_away_leaves(shop: Shop) -> None:
    gate = Gate()
    await shop.desk.push("taken")

    async with shop.working(shop.workload(gate, mode=Mode.DRAIN, prefetch=2)) as life:
        await shop.store.queue.release(me(), "somebody thought it lost")
        await shop.desk.claim()
        await shop.passes(21)

        assert (gate.cancelled, life.work_is_done) == (["taken"], True)


async def test_a_late_result_is_refused_and_logged(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    job_id = await shop.desk.push("late")

    async with shop.working(shop.workload(gate)):
        await shop.store.queue.release(me(), "somebody thought it lost")
        other = await shop.desk.claim()
        gate.open.set()
        await settle()

        assert other is not None
        assert await shop.status(job_id) is JobStatus.CLAIMED
    assert f"the result of job {job_id} came too late" in caplog.text


async def test_a_drain_finishes_what_runs_and_gives_back_what_does_not(shop: Shop) -> None:
    gate = Gate()
    first, second = await shop.desk.push_many(["runs", "waits"])
    workload = shop.workload(gate, prefetch=1)

    async with shop.working(workload) as life:
        life.request_stop("drain")
        await settle()
        midway = (await shop.status(first), await shop.status(second))
        gate.open.set()
        await settle()

    assert midway == (JobStatus.CLAIMED, JobStatus.PENDING)
    given_back = await shop.job(second)
    assert await shop.status(first) is JobStatus.DONE
    assert (given_back.attempts, given_back.failures, given_back.crashes) == (0, 0, 0)


async def test_what_a_claim_brings_after_the_drain_began_is_given_back(shop: Shop) -> None:
    gate, answer = Gate(), asyncio.Event()
    claim = shop.store.queue.claim

    async def slow(claiming: Any) -> Any:
        claimed = await claim(claiming)
        if claimed:
            await answer.wait()
        return claimed

    shop.store.queue.claim = slow  # type: ignore[method-assign]
    async with shop.working(shop.workload(gate)) as life:
        job_id = await shop.desk.push("too late")
        await settle()
        taken = await shop.status(job_id)
        life.request_stop("drain")
        await settle()
        answer.set()
        await settle()

    job = await shop.job(job_id)
    assert taken is JobStatus.CLAIMED
    assert (job.status, job.attempts, gate.begun) == (JobStatus.PENDING, 0, [])


async def test_a_job_that_is_being_settled_is_not_taken_for_lost(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    answer = asyncio.Event()
    settling = shop.store.queue.settle

    async def slow(*given: Any) -> Any:
        settled = await settling(*given)
        await answer.wait()
        return settled

    shop.store.queue.settle = slow  # type: ignore[method-assign, assignment]
    async with shop.working(shop.workload(double)):
        job_id = await shop.desk.push(1)
        await shop.passes(21)
        answer.set()
        await settle()

        assert await shop.status(job_id) is JobStatus.DONE
    assert "was taken from this worker" not in caplog.text


async def test_at_the_drain_limit_jobs_are_stopped_and_given_back(shop: Shop) -> None:
    gate = Gate()
    job_id = await shop.desk.push("endless")

    async with shop.working(shop.workload(gate)) as life:
        life.request_stop("drain")
        await shop.passes(601)

    job = await shop.job(job_id)
    assert (job.status, job.attempts, job.failures, gate.cancelled) == (JobStatus.PENDING, 0, 0, ["endless"])


async def test_a_second_signal_gives_everything_back_at_once(shop: Shop) -> None:
    gate = Gate()
    job_id = await shop.desk.push("running")

    async with shop.working(shop.workload(gate)) as life:
        life.request_stop("SIGTERM")
        await settle()
        life.request_stop("SIGTERM")
        await settle(1000)

    assert await shop.status(job_id) is JobStatus.PENDING


async def test_a_worker_is_recycled_after_so_many_jobs(shop: Shop) -> None:
    ids = await shop.desk.push_many(range(10))

    code = await shop.work(shop.workload(double, max_jobs=4, concurrency=3))

    done = [job_id for job_id in ids if await shop.status(job_id) is JobStatus.DONE]
    assert (code, len(done)) == (ExitCode.CLEAN, 4)


async def test_a_worker_that_has_grown_too_big_leaves(shop: Shop) -> None:
    await shop.desk.push_many(range(10))

    code = await shop.work(shop.workload(double, max_memory_mb=1, concurrency=1))

    assert code is ExitCode.CLEAN


async def test_progress_is_kept(shop: Shop) -> None:
    gate = Gate()

    async def slow(payload: str, context: JobContext) -> None:
        context.progress(0.25, "a quarter")
        await gate(payload)

    job_id = await shop.desk.push("x")

    async with shop.working(shop.workload(slow)):
        job = await shop.job(job_id)

        assert (job.progress, job.progress_note) == (0.25, "a quarter")


async def test_a_note_is_kept_as_text_and_a_refused_one_is_no_matter(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    gates = {"text": Gate(), "refused": Gate()}

    async def slow(payload: str, context: JobContext) -> None:
        context.progress(0.5, 42)
        await gates[payload](payload)

    first = await shop.desk.push("text")
    async with shop.working(shop.workload(slow, concurrency=2)):
        noted = (await shop.job(first)).progress_note
        _break(shop.store.jobs, "progress")
        second = await shop.desk.push("refused")
        await shop.passes(1)
        gates["refused"].open.set()
        await settle()

        assert (noted, await shop.status(second)) == ("42", JobStatus.DONE)
    assert f"failed to record the progress of job {second}: ValueError: an odd row" in caplog.text


def _break(table: Any, name: str) -> None:
    """From now on it raises what no store should."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("an odd row")

    setattr(table, name, call)


@pytest.mark.parametrize(("table", "call"), [("queue", "expire"), ("queue", "renew"), ("queue", "wait"), ("jobs", "to_stop")])
async def test_a_row_that_cannot_be_read_never_takes_a_worker_down(shop: Shop, table: str, call: str) -> None:
    gate = Gate()
    long = await shop.desk.push("long")
    async with shop.working(shop.workload(gate, concurrency=2)):
        _break(getattr(shop.store, table), call)
        await shop.passes(45)
        later = await shop.desk.push("later")
        await shop.passes(11)
        gate.open.set()
        await settle()

        assert (await shop.status(long), await shop.status(later)) == (JobStatus.DONE, JobStatus.DONE)
    assert (await shop.store.workers.get(POOL, ME)).exit_code is ExitCode.CLEAN


async def test_while_the_store_is_away_the_work_goes_on_and_is_settled_later(shop: Shop) -> None:
    gate = Gate()
    job_id = await shop.desk.push("patient")

    async with shop.working(shop.workload(gate)):
        with shop.store.unavailable():
            gate.open.set()
            await shop.passes(15)
        await shop.passes(6)

        assert await shop.status(job_id) is JobStatus.DONE


async def test_a_claim_whose_answer_was_lost_is_taken_up(shop: Shop) -> None:
    workload = shop.workload(double)
    async with shop.working(workload):
        await settle()
        job_id = await shop.desk.push(3)
        shop.store.fail_next(1, kept=True)
        await settle()
        lost = await shop.status(job_id)
        await shop.passes(1)

        assert (lost, await shop.status(job_id)) == (JobStatus.CLAIMED, JobStatus.DONE)


async def test_a_lost_claim_that_cannot_be_read_takes_no_worker_down(shop: Shop) -> None:
    async with shop.working(shop.workload(double)):
        await settle()
        await shop.desk.push(3)
        shop.store.fail_next(1, kept=True)
        _break(shop.store.jobs, "list")
        await shop.passes(1)
        later = await shop.desk.push(4)
        await shop.passes(11)

        assert (await shop.job(later)).result == 8


async def test_a_claim_whose_answer_was_lost_is_given_back_by_a_drain(shop: Shop) -> None:
    async with shop.working(shop.workload(double)) as life:
        job_id = await shop.desk.push(3)
        shop.store.fail_next(1, kept=True)
        await settle()
        life.request_stop("drain")
        await shop.passes(1)

    job = await shop.job(job_id)
    assert (job.status, job.attempts, job.crashes) == (JobStatus.PENDING, 0, 0)


async def test_a_result_the_store_will_not_have_fails_its_job_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = await shop.desk.push_many([1, 2])

    async def odd(n: int) -> Any:
        return n

    monkeypatch.setattr("drumbeat.pool.plugins.as_json", lambda value, *_: object() if value == 2 else value)
    await shop.work(shop.workload(odd, mode=Mode.DRAIN, concurrency=2))

    assert (await shop.status(good), await shop.status(bad)) == (JobStatus.DONE, JobStatus.POISONED)
    assert "its result could not be stored" in ((await shop.job(bad)).last_error or "")


async def test_a_refused_result_ends_no_drain_and_counts_as_failed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await shop.desk.push_many(range(5))

    async def odd(n: int) -> Any:
        return n

    monkeypatch.setattr("drumbeat.pool.plugins.as_json", lambda value, *_: object() if value == 1 else value)
    workload = shop.workload(odd, mode=Mode.DRAIN, prefetch=0)
    code = await shop.work(workload)

    statuses = [await shop.status(job_id) for job_id in ids]
    assert statuses == [JobStatus.POISONED if n == 1 else JobStatus.DONE for n in range(5)]
    assert (code, workload.figures.operations, workload.figures.errors) == (ExitCode.CLEAN, 5, 1)
    assert workload.in_flight.tally.done == 4
    assert "its result could not be stored" in (workload.figures.error or "")


@pytest.mark.parametrize("refusal", [DrumbeatError("not this one"), TypeError("not this one")])
async def test_a_verdict_that_cannot_be_told_at_all_takes_no_worker_down(
    shop: Shop, caplog: pytest.LogCaptureFixture, refusal: Exception
) -> None:
    bad, good = await shop.desk.push_many([1, 2])
    settling = shop.store.queue.settle

    async def picky(holder: Any, verdicts: Any, claiming: Any = None) -> Any:
        if any(verdict.token.job_id == bad for verdict in verdicts):
            raise refusal
        return await settling(holder, verdicts, claiming)

    shop.store.queue.settle = picky  # type: ignore[method-assign]
    code = await shop.work(shop.workload(double, mode=Mode.DRAIN, concurrency=2))

    assert (code, await shop.status(good)) == (ExitCode.CLEAN, JobStatus.DONE)
    assert f"failed to record the outcome of job {bad}" in caplog.text


async def test_a_worker_takes_back_what_a_dead_one_held(shop: Shop) -> None:
    job_id = await shop.desk.push(21)
    await shop.desk.claim(lease=seconds(30), worker_id="dead")

    async with shop.working(shop.workload(double)):
        await shop.passes(61)
        assert (await shop.job(job_id)).lease_extended
        await shop.passes(61)

        job = await shop.job(job_id)
        assert (job.status, job.result, job.crashes) == (JobStatus.DONE, 42, 1)


async def test_only_types_with_a_handler_are_claimed(shop: Shop) -> None:
    other = await shop.desk.push(1, type="other")
    mine = await shop.desk.push(1, type="double")

    await shop.work(shop.workload(double, fail_plainly, mode=Mode.DRAIN))

    assert (await shop.status(other), await shop.status(mine)) == (JobStatus.PENDING, JobStatus.DONE)


class Stuck:
    """A handler in a thread, which waits until it is let go, whatever it is told; with another payload it is done at once."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, payload: str) -> None:
        if payload == "stuck":
            self.go.wait(30)


async def test_a_thread_that_cannot_be_stopped_takes_up_room_until_it_ends(shop: Shop) -> None:
    stuck = Stuck()
    first = await shop.desk.push("stuck", timeout=5, max_attempts=1)
    second = await shop.desk.push("next")
    workload = shop.workload(stuck, executor=ExecutorKind.THREADS)
    async with shop.working(workload):
        await shop.passes(6)
        midway = (await shop.status(first), await shop.status(second), workload.figures.active)
        stuck.go.set()
        async with asyncio.timeout(60):
            while await shop.status(second) is not JobStatus.DONE:
                await asyncio.sleep(0.002)

        assert midway == (JobStatus.POISONED, JobStatus.PENDING, 1)
        assert (await shop.status(second), workload.figures.active) == (JobStatus.DONE, 0)


@pytest.mark.parametrize("mode", [Mode.LOOP, Mode.DRAIN])
async def test_a_worker_whose_room_is_all_taken_by_what_cannot_be_stopped_leaves_to_be_replaced(shop: Shop, mode: Mode) -> None:
    stuck = Stuck()
    await shop.desk.push_many(["stuck", "stuck"], timeout=5, max_attempts=1)
    waiting = await shop.desk.push("next")
    workload = shop.workload(stuck, executor=ExecutorKind.THREADS, mode=mode, concurrency=2)

    async with shop.working(workload) as life:
        for _ in range(12):
            await shop.passes(1)
        left = await shop.store.workers.get(POOL, ME)

        assert (left.status, left.exit_code, life.work_is_done) == (WorkerStatus.TERMINATED, ExitCode.CLEAN, True)
        assert await shop.status(waiting) is JobStatus.PENDING
        stuck.go.set()


async def test_a_thread_that_heeds_its_stop_late_costs_no_worker(shop: Shop) -> None:
    stuck = Stuck()
    await shop.desk.push("stuck", timeout=5, max_attempts=1)

    workload = shop.workload(stuck, executor=ExecutorKind.THREADS)
    async with shop.working(workload) as life:
        for _ in range(7):
            await shop.passes(1)
        lingering = workload.figures.active
        stuck.go.set()
        while workload.figures.active:
            await asyncio.sleep(0.002)
        for _ in range(20):
            await shop.passes(1)

        assert (lingering, life.work_is_done) == (1, False)


async def test_a_draining_worker_with_room_hears_of_a_push_while_a_long_job_runs(shop: Shop) -> None:
    gate = Gate()

    async def work(payload: Any) -> None:
        if payload == "long":
            await gate(payload)

    await shop.desk.push("long")
    async with shop.working(shop.workload(work, mode=Mode.DRAIN, concurrency=2)) as life:
        short = await shop.desk.push("short")
        await shop.passes(1)
        midway = await shop.status(short)
        working_on = not life.work_is_done
        gate.open.set()
        await settle()

        assert (midway, working_on, life.work_is_done) == (JobStatus.DONE, True, True)


async def test_a_worker_for_one_job_hears_of_no_other(shop: Shop) -> None:
    asked: list[str] = []
    _count(shop.store.queue, "wait", asked)
    gate = Gate()
    only = await shop.desk.push("only")

    async with shop.working(shop.workload(gate, mode=Mode.ONCE, concurrency=2)):
        await shop.passes(30)
        gate.open.set()
        await settle()

    assert await shop.status(only) is JobStatus.DONE
    assert asked == []


async def test_quick_jobs_are_settled_many_at_a_time(shop: Shop) -> None:
    await shop.desk.push_many(range(1000))
    calls = 0
    settling = shop.store.queue.settle

    async def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return await settling(*args)

    shop.store.queue.settle = counted  # type: ignore[method-assign, assignment]
    await shop.work(shop.workload(double, mode=Mode.DRAIN, concurrency=10))

    assert calls < 100


async def test_while_the_store_writes_half_of_the_outcomes_the_worker_runs_the_other_half(shop: Shop) -> None:
    await shop.desk.push_many(range(3000))
    ran = 0
    beside: list[int] = []  #: of the outcomes of one call, as many as jobs ran while the store wrote them
    settling = shop.store.queue.settle

    async def quick(n: int) -> None:
        nonlocal ran
        ran += 1

    async def slow(holder: Any, verdicts: Any, claiming: Any = None) -> Any:
        answer = await settling(holder, verdicts, claiming)
        before = ran
        await settle()
        beside.append(min(len(verdicts), ran - before))
        return answer

    shop.store.queue.settle = slow  # type: ignore[method-assign]
    await shop.work(shop.workload(quick, mode=Mode.DRAIN, concurrency=100))

    assert ran == 3000
    assert sum(beside) > 1500, beside
    assert len(beside) < 40, "and outcomes are still written many at a time"


async def test_an_idle_worker_asks_little(shop: Shop) -> None:
    asked: list[str] = []
    for name in ("claim", "settle", "renew", "expire"):
        _count(shop.store.queue, name, asked)

    async with shop.working(shop.workload(double)):
        asked.clear()
        await shop.passes(600)

        assert len(asked) <= 600 / 5


def _count(table: Any, name: str, asked: list[str]) -> None:
    before = getattr(table, name)

    async def call(*args: Any, **kwargs: Any) -> Any:
        asked.append(name)
        return await before(*args, **kwargs)

    setattr(table, name, call)


async def test_two_workers_never_do_the_same_job(shop: Shop) -> None:
    done: list[int] = []

    async def note(n: int) -> None:
        await asyncio.sleep(0)
        done.append(n)

    await shop.desk.push_many(range(300))
    await asyncio.gather(
        *(shop.work(shop.workload(note, worker_id=f"w{n}", mode=Mode.DRAIN, concurrency=3), f"w{n}") for n in range(3))
    )

    assert sorted(done) == list(range(300))


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_an_idle_worker_that_is_asked_to_drain_leaves_at_once_and_not_with_its_next_heartbeat(
    shop: Shop, concurrency: int
) -> None:
    async with shop.working(shop.workload(Gate(), concurrency=concurrency)) as life:
        await shop.passes(2)
        await shop.store.workers.ask_to_drain(POOL, [ME], "scale down", seconds(600))
        late = await shop.desk.push("late")
        await shop.passes(3)
        left = await shop.store.workers.get(POOL, ME)

        assert (left.status, left.exit_code, life.work_is_done) == (WorkerStatus.TERMINATED, ExitCode.CLEAN, False)
        assert await shop.status(late) is JobStatus.PENDING


async def test_a_worker_whose_neighbour_is_asked_to_drain_stays(shop: Shop) -> None:
    async with shop.working(shop.workload(Gate(), worker_id="w2"), "w2"), shop.working(shop.workload(Gate())):
        await shop.store.workers.ask_to_drain(POOL, [WorkerId("w2")], "scale down", seconds(600))
        for _ in range(3):
            await shop.passes(1)

        rows = {row.worker_id: row.status for row in await shop.store.workers.list(POOL)}
        assert rows == {"w2": WorkerStatus.TERMINATED, ME: WorkerStatus.ACTIVE}


async def test_where_no_news_can_be_heard_a_worker_leaves_after_its_wait(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(pool_id: PoolId, within: timedelta) -> bool:
        await shop.clock.sleep(within)
        return False

    monkeypatch.setattr(shop.store.queue, "wait", deaf)
    async with shop.working(shop.workload(Gate())):
        await shop.store.workers.ask_to_drain(POOL, [ME], "scale down", seconds(600))
        for _ in range(int(IDLE.total_seconds()) + 2):
            await shop.passes(1)

        assert (await shop.store.workers.get(POOL, ME)).status is WorkerStatus.TERMINATED


async def suspects(shop: Shop, count: int) -> list[str]:
    """Jobs that ran together on a worker that died, and must run alone now."""
    ids = await shop.desk.push_many([*range(count)], max_crashes=1)
    dead = Holder(pool_id=POOL, worker_id=WorkerId("dead"), instance="dead")
    await shop.store.queue.claim(ClaimRequest(pool_id=POOL, holder=dead, lease=seconds(600), limit=count))
    assert [job.suspicions for job in await shop.store.queue.release(dead, "killed")] == [1] * count
    return [*ids]


@pytest.mark.parametrize(("concurrency", "prefetch"), [(1, None), (3, None), (3, 2)])
async def test_suspects_are_run_one_by_one_and_a_draining_worker_leaves_once_all_are_done(
    shop: Shop, concurrency: int, prefetch: int | None
) -> None:
    together, most = 0, 0

    async def watched(payload: object) -> object:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0)
        together -= 1
        return payload

    ids = await suspects(shop, 4)
    plain = await shop.desk.push("plain")

    code = await shop.work(shop.workload(watched, mode=Mode.DRAIN, concurrency=concurrency, prefetch=prefetch))

    assert code is ExitCode.CLEAN
    assert [await shop.status(job_id) for job_id in (*ids, plain)] == [JobStatus.DONE] * 5
    assert most == 1


async def test_a_suspect_whose_claim_went_unanswered_runs_alone_too(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = shop.store.queue.settle
    lost: list[object] = []
    together: list[set[object]] = []
    running: set[object] = set()

    async def unanswered_once(*arguments: Any) -> Any:
        answer = await exchange(*arguments)
        if not lost and any(job.must_run_alone for job in answer.claimed):
            lost.append(answer)
            await shop.desk.push("beside")
            raise StoreUnavailable("the answer was lost")
        return answer

    async def watched(payload: object) -> None:
        running.add(payload)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        together.append({*running})
        running.remove(payload)

    monkeypatch.setattr(shop.store.queue, "settle", unanswered_once)
    [suspect] = (await suspects(shop, 2))[:1]
    await shop.desk.push("first", priority=9)

    await shop.work(shop.workload(watched, mode=Mode.DRAIN, concurrency=3))

    assert lost
    assert (await shop.job(suspect)).status is JobStatus.DONE
    assert [each for each in together if 0 in each or 1 in each] == [{0}, {1}]


async def test_jobs_that_a_worker_could_not_begin_in_time_are_given_back_unsuspected(shop: Shop) -> None:
    """They had been claimed ahead when the machine stood still; the store may not have taken them back yet."""

    async def stalls(payload: str) -> None:
        if payload == "stalls":
            shop.clock.jump(seconds(30))

    [_, _, *late] = await shop.desk.push_many(["quick", "stalls", "late", "late too"])

    await shop.work(shop.workload(stalls, mode=Mode.DRAIN, lease=seconds(20)))

    found = [await shop.job(each) for each in late]
    assert [(job.status, job.attempts, job.suspicions) for job in found] == [(JobStatus.DONE, 1, 0)] * 2


async def test_a_busy_worker_finishes_what_it_holds_to_try_a_suspect_alone(shop: Shop) -> None:
    gate = Gate()
    [busy] = await shop.desk.push_many(["busy"])

    async with shop.working(shop.workload(gate, concurrency=2)):
        [suspect] = (await suspects(shop, 2))[:1]
        await shop.passes(1)
        assert (await shop.job(suspect)).status is JobStatus.PENDING
        await shop.passes(61)
        waiting = await shop.desk.push("waits for the turn to be over")
        await shop.passes(1)
        assert (await shop.job(waiting)).status is JobStatus.PENDING
        gate.open.set()
        await shop.passes(61)

        assert {await shop.status(each) for each in (busy, suspect, waiting)} == {JobStatus.DONE}


async def test_a_job_claimed_ahead_begins_when_its_handler_is_called(shop: Shop) -> None:
    gate = Gate()
    first, second = await shop.desk.push_many([1, 2])

    async with shop.working(shop.workload(gate, prefetch=1)):
        running, ahead = await shop.job(first), await shop.job(second)

        assert (running.status, running.attempts, running.begun_at is not None) == (JobStatus.CLAIMED, 1, True)
        assert (ahead.status, ahead.attempts, ahead.begun_at) == (JobStatus.CLAIMED, 0, None)
        gate.open.set()
        await shop.passes(1)
        assert [(await shop.job(each)).attempts for each in (first, second)] == [1, 1]


async def test_a_job_claimed_ahead_that_was_taken_away_is_not_begun(shop: Shop) -> None:
    gate = Gate()
    first, second = await shop.desk.push_many([1, 2])

    async with shop.working(shop.workload(gate, prefetch=1)):
        taken = [job for job in await shop.store.queue.release(me(), "somebody thought it lost") if job.job_id == second]
        assert [job.attempts for job in taken] == [0]
        other = await shop.store.queue.claim(
            ClaimRequest(pool_id=POOL, holder=Holder(pool_id=POOL, worker_id=WorkerId("other")), lease=seconds(600), limit=2)
        )
        gate.open.set()
        await shop.passes(1)

        assert gate.begun == [1]
        assert {job.job_id for job in other} == {first, second}


async def test_the_next_job_runs_after_a_job_that_was_taken_away_before_it_began(shop: Shop) -> None:
    gate = Gate()
    first, taken, last = await shop.desk.push_many(["first", "taken", "last"], max_attempts=1)

    async with shop.working(shop.workload(gate, prefetch=2)):
        released = JobOutcome(token=(await shop.job(taken)).token, outcome=AttemptOutcome.RELEASED)
        await shop.store.queue.settle(me(), [released])
        assert await shop.desk.claim() is not None
        gate.open.set()
        gate.open = asyncio.Event()
        await settle()
        assert gate.begun == ["first", "last"]
        gate.open.set()
        await settle()

        assert gate.cancelled == []
        assert [await shop.status(each) for each in (first, last)] == [JobStatus.DONE] * 2


async def test_the_next_job_runs_after_a_job_that_did_not_begin_before_its_lease_ran_out(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begin = Gate(), shop.store.queue.begin
    lost: list[Token] = []

    async def never_for_lost(holder: Holder, tokens: list[Token]) -> Any:
        if {*tokens} & {*lost}:
            raise StoreUnavailable("no answer")
        return await begin(holder, tokens)

    async def no_renewal(*_: Any) -> Any:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(shop.store.queue, "begin", never_for_lost)
    monkeypatch.setattr(shop.store.queue, "renew", no_renewal)
    early = await shop.desk.push("early", max_attempts=1)
    async with shop.working(shop.workload(gate, prefetch=2, lease=seconds(20))):
        late = await shop.desk.push("late", max_attempts=1)
        await settle()
        lost.append((await shop.job(late)).token)
        await shop.passes(15)
        last = await shop.desk.push("last", max_attempts=1)
        await settle()
        gate.open.set()
        gate.open = asyncio.Event()
        for _ in range(60):
            await shop.passes(0.1)
        assert gate.begun == ["early", "last"]
        gate.open.set()
        await settle()

        assert gate.cancelled == []
        assert [await shop.status(each) for each in (early, last)] == [JobStatus.DONE] * 2


async def test_a_job_that_its_worker_claims_again_after_losing_it_runs_once_at_a_time(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    job_id = await shop.desk.push("again")
    workload = shop.workload(gate, concurrency=2)

    async with shop.working(workload):
        await shop.store.queue.release(me(), "somebody thought it lost")
        await settle()

        assert (gate.begun, gate.cancelled, workload.in_flight.running) == (["again"] * 2, ["again"], 1)
        gate.open.set()
        await settle()
        assert await shop.status(job_id) is JobStatus.DONE
        assert workload.in_flight.held_count == 0
    assert f"job {job_id} was taken from this worker, which has claimed it again; stopping its earlier handler" in caplog.text


def test_a_job_that_must_run_alone_is_claimed_only_when_no_other_outcome_is_left_to_write() -> None:
    held = InFlight(WorkPlan(concurrency=100), ManualClock(), timedelta(minutes=1))
    held.next_is_alone = True
    held.verdicts = [JobOutcome(token=Token(job_id=JobId(f"j{n}"), epoch=1), outcome=AttemptOutcome.DONE) for n in range(97)]

    rooms = []
    while held.verdicts:
        held.take_verdicts()
        rooms.append(held.room(0))

    assert rooms == [0, 1]
