"""Durable steps of a job: what is run once, what is kept, and how a job goes on."""

import asyncio
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest

from drumbeat import JobContext, JobFailure, StepFailed, sleep, step, wait_for
from drumbeat.core.errors import AlreadyExists, InvalidInput, Refused, StoreUnavailable
from drumbeat.core.job import AttemptOutcome, JobStatus
from drumbeat.core.job_step import StepKind
from drumbeat.pool.worker.options import ExecutorKind, Mode
from drumbeat.pool.worker.workload import JobWorkload
from drumbeat.testing import TestPool
from pool.working import Shop, me, seconds, settle

DONE, FAILED, SUSPENDED = AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.SUSPENDED
DAY = timedelta(days=1)


class Shelf:
    """Functions for steps, which count their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken: set[str] = set()

    async def charge(self, amount: int) -> dict[str, int]:
        self._called("charge")
        return {"charged": amount}

    def pack(self, item: str) -> str:
        self._called("pack")
        return f"packed {item}"

    async def send(self) -> str:
        self._called("send")
        return "sent"

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.broken:
            self.broken.discard(name)
            raise ValueError(f"cannot {name}")


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


async def test_a_finished_step_is_not_run_again_when_the_attempt_fails(pool: TestPool, shelf: Shelf) -> None:
    shelf.broken.add("send")

    async def order(amount: int) -> list[Any]:
        return [await step(shelf.charge, amount), await step(shelf.pack, item="book"), await step(shelf.send)]

    job_id = await pool.push(7)
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [FAILED, DONE]
    assert (ran[0].error or "").startswith("ValueError: cannot send")
    assert ran[1].result == [{"charged": 7}, "packed book", "sent"]
    assert shelf.calls == ["charge", "pack", "send", "send"]
    steps = await pool.steps(job_id)
    assert [(each.position, each.name.rpartition(".")[2], each.epoch) for each in steps] == [
        (1, "charge", 1),
        (2, "pack", 1),
        (3, "send", 2),
    ]


@dataclass(frozen=True)
class Receipt:
    number: int
    day: date


async def test_a_kept_result_has_the_type_that_the_step_is_annotated_with(pool: TestPool) -> None:
    seen: list[Any] = []

    async def bill(number: int) -> Receipt:
        return Receipt(number, date(2026, 1, number))

    async def order() -> None:
        seen.append(await step(bill, 3, step_name="bill"))
        if len(seen) == 1:
            raise JobFailure("once more")

    await pool.push(None)
    await pool.run_until_empty(order)

    assert seen == [Receipt(3, date(2026, 1, 3))] * 2


async def test_a_changed_order_of_steps_poisons_the_job_with_one_clear_line(pool: TestPool, shelf: Shelf) -> None:
    versions = iter(["old", "new", "old again"])

    async def order() -> Any:
        version = next(versions)
        if version == "new":
            return await step(shelf.send)
        charged = await step(shelf.charge, 1)
        if version == "old":
            raise JobFailure("later")
        return charged

    job_id = await pool.push(None, max_attempts=5)
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [FAILED, FAILED]
    assert ran[1].error == (
        "expected step 1 of this job to be step 'Shelf.charge', as an earlier attempt recorded, got step 'Shelf.send': "
        "the code has changed; restore the order of steps and requeue the job, or push a new one"
    )
    assert ((await pool.job(job_id)).status, shelf.calls) == (JobStatus.POISONED, ["charge"])
    await pool.requeue(job_id)

    [done] = await pool.run_until_empty(order)
    assert (done.outcome, done.result, shelf.calls) == (DONE, {"charged": 1}, ["charge"])


async def test_a_failure_that_the_handler_catches_is_kept_once_it_goes_on(pool: TestPool, shelf: Shelf) -> None:
    shelf.broken.add("charge")
    caught: list[str] = []

    async def order() -> str:
        try:
            await step(shelf.charge, 1)
        except StepFailed as exc:
            caught.append(exc.error)
        await step(shelf.send)
        if len(caught) == 1:
            raise JobFailure("once more")
        return "gave up"

    job_id = await pool.push(None)
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [FAILED, DONE]
    assert (caught, shelf.calls) == (["ValueError: cannot charge"] * 2, ["charge", "send"])
    assert [each.error for each in await pool.steps(job_id)] == ["ValueError: cannot charge", None]


async def test_a_fatal_failure_in_a_step_is_fatal(pool: TestPool) -> None:
    async def refuse() -> None:
        raise JobFailure("no such card", fatal=True)

    async def order() -> None:
        await step(refuse)

    job_id = await pool.push(None)
    [ran] = await pool.run_until_empty(order)

    assert (ran.outcome, (await pool.job(job_id)).status) == (FAILED, JobStatus.POISONED)


async def test_a_result_that_is_no_json_or_too_large_poisons_the_job(pool: TestPool) -> None:
    values = {"odd": object(), "large": "x" * 2_000_000}

    async def order(which: str) -> None:
        await step(lambda: values[which], step_name="read")

    for which, said in (("odd", "expected the result of step 'read' to be JSON"), ("large", "at most 1048576 bytes")):
        job_id = await pool.push(which)
        [ran] = await pool.run_until_empty(order)
        assert said in (ran.error or "")
        assert (await pool.job(job_id)).status is JobStatus.POISONED


async def test_a_step_inside_of_a_step_is_refused(pool: TestPool, shelf: Shelf) -> None:
    async def outer() -> None:
        await step(shelf.send)

    async def order() -> None:
        await step(outer, step_name="outer")

    await pool.push(None)
    [ran] = await pool.run_until_empty(order)

    assert "got step 'Shelf.send' inside of step 'outer'" in (ran.error or "")


async def test_outside_of_a_job_there_are_no_steps(shelf: Shelf) -> None:
    for call in (step(shelf.send), sleep(1), wait_for("approval")):
        with pytest.raises(InvalidInput, match="expected a call in a job, got one outside"):
            await call


async def test_a_long_sleep_ends_the_attempt_and_costs_none(pool: TestPool, shelf: Shelf) -> None:
    attempts: list[int] = []

    async def order(context: JobContext) -> str:
        attempts.append(context.attempt)
        await step(shelf.charge, 1)
        await sleep(DAY)
        await sleep(0.5)
        return await step(shelf.send)

    job_id = await pool.push(None, max_attempts=1)
    before = pool.clock.now()
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [SUSPENDED, DONE]
    assert (shelf.calls, attempts) == (["charge", "send"], [1, 1])
    assert pool.clock.now() == before + DAY + seconds(0.5)
    steps = await pool.steps(job_id)
    assert [each.kind for each in steps] == [StepKind.STEP, StepKind.SLEEP, StepKind.SLEEP, StepKind.STEP]
    assert steps[1].until == before + DAY


async def test_a_job_waits_for_an_event_and_gets_its_value(pool: TestPool, shelf: Shelf) -> None:
    async def order() -> Any:
        await step(shelf.charge, 1)
        answer = await wait_for("approval")
        await step(shelf.send)
        return answer

    job_id = await pool.push(None)
    assert [each.outcome for each in await pool.run_until_empty(order)] == [SUSPENDED]
    assert await pool.run_until_empty(order) == []

    await pool.send_event(job_id, "approval", {"by": "Ada"})
    [ran] = await pool.run_until_empty(order)

    assert (ran.outcome, ran.result, shelf.calls) == (DONE, {"by": "Ada"}, ["charge", "send"])
    with pytest.raises(AlreadyExists, match=f"event 'approval' was sent to job {job_id} before; the first one counts"):
        await pool.send_event(job_id, "approval", "no")
    with pytest.raises(Refused, match="expected a job that has not ended"):
        await pool.send_event(job_id, "another")


async def test_an_event_that_was_sent_earlier_is_received_at_once(pool: TestPool) -> None:
    async def order() -> list[Any]:
        return [await wait_for("b"), await wait_for("a")]

    job_id = await pool.push(None)
    for name in "ab":
        await pool.send_event(job_id, name, name.upper())

    [ran] = await pool.run_until_empty(order)

    assert (ran.outcome, ran.result) == (DONE, ["B", "A"])


async def test_an_event_sent_while_the_handler_runs_is_not_missed(pool: TestPool) -> None:
    async def order(context: JobContext) -> Any:
        if context.job.events_sent == 0:
            await pool.send_event(context.job_id, "approval", "quick")
        return await wait_for("approval")

    await pool.push(None)
    ran = await pool.run_until_empty(order)

    assert [(each.outcome, each.result) for each in ran] == [(SUSPENDED, None), (DONE, "quick")]


async def test_a_wait_that_takes_too_long_raises_and_can_be_repeated(pool: TestPool) -> None:
    async def order() -> str:
        try:
            return str(await wait_for("approval", timeout=DAY))
        except TimeoutError as exc:
            first = str(exc)
        try:
            return str(await wait_for("approval", timeout=60))
        except TimeoutError as exc:
            return f"{first}; {exc}"

    await pool.push(None)
    before = pool.clock.now()
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [SUSPENDED, SUSPENDED, DONE]
    assert ran[-1].result == "no event 'approval' was sent within 24 h; no event 'approval' was sent within 60.0 s"
    assert pool.clock.now() == before + DAY + seconds(60)


async def test_a_job_receives_one_event_of_each_name(pool: TestPool) -> None:
    async def order() -> None:
        await wait_for("page")
        await wait_for("page")

    job_id = await pool.push(None)
    await pool.send_event(job_id, "page")
    [ran] = await pool.run_until_empty(order)

    assert (ran.error or "").startswith("expected another name of an event, got 'page' again")


@pytest.mark.parametrize("name", ["", 5])
async def test_an_event_without_a_name_is_refused_where_it_is_sent(pool: TestPool, name: Any) -> None:
    job_id = await pool.push(None)

    with pytest.raises(InvalidInput, match=f"expected the name of an event: text that is not empty, got {name!r}"):
        await pool.send_event(job_id, name)


async def test_steps_may_run_at_the_same_time(pool: TestPool, shelf: Shelf) -> None:
    tries: list[int] = []

    async def order() -> list[Any]:
        tries.append(1)
        results = await asyncio.gather(step(shelf.charge, 1), step(shelf.pack, "book"), step(shelf.send))
        if len(tries) == 1:
            raise JobFailure("once more")
        return list(results)

    await pool.push(None)
    ran = await pool.run_until_empty(order)

    assert ran[-1].result == [{"charged": 1}, "packed book", "sent"]
    assert sorted(shelf.calls) == ["charge", "pack", "send"]


async def test_steps_that_run_beside_a_sleep_are_finished_before_the_job_is_suspended(pool: TestPool, shelf: Shelf) -> None:
    go = asyncio.Event()

    async def slow() -> str:
        await go.wait()
        return await shelf.send()

    async def nap(duration: timedelta) -> None:
        asyncio.get_running_loop().call_soon(go.set)
        await sleep(duration)

    async def order() -> list[Any]:
        return [*await asyncio.gather(step(slow, step_name="slow"), nap(2 * DAY), nap(DAY), wait_for("never", timeout=3 * DAY))]

    job_id = await pool.push(None, max_attempts=1)
    ran = await pool.run_until_empty(order)

    assert [each.outcome for each in ran] == [SUSPENDED] * 3 + [FAILED]
    assert shelf.calls == ["send"]
    assert [each.kind for each in await pool.steps(job_id)] == ["step", "sleep", "sleep", "event"]
    assert (ran[-1].error or "").startswith("TimeoutError: no event 'never' was sent within 3 days")


async def test_a_handler_that_goes_on_after_a_suspension_is_suspended_all_the_same(pool: TestPool) -> None:
    async def order() -> str:
        try:
            await sleep(DAY)
        except BaseException:
            return "swallowed"
        return "slept"

    await pool.push(None)
    ran = await pool.run_until_empty(order)

    assert [(each.outcome, each.result) for each in ran] == [(SUSPENDED, None), (DONE, "slept")]


async def test_a_worker_that_died_leaves_its_finished_steps_to_the_next(shop: Shop, shelf: Shelf) -> None:
    stuck = asyncio.Event()

    async def order(context: JobContext) -> str:
        await step(shelf.charge, 1)
        await step(shelf.pack, "book")
        if context.attempt == 1:
            stuck.set()
            await asyncio.Event().wait()
        return await step(shelf.send)

    job_id = await shop.desk.push(None)
    async with shop.working(shop.workload(order, worker_id="w1"), "w1"):
        await stuck.wait()
        await shop.store.queue.release(me("w1"), "it died")
        async with shop.working(shop.workload(order, worker_id="w2"), "w2"):
            await settle()

    assert ((await shop.job(job_id)).result, shelf.calls) == ("sent", ["charge", "pack", "send"])
    assert [each.epoch for each in await shop.desk.steps(job_id)] == [1, 1, 2]


async def test_a_step_of_a_job_that_was_taken_away_is_not_recorded_and_stops_the_handler(shop: Shop, shelf: Shelf) -> None:
    ended, ends = asyncio.Event(), list[str]()

    async def order() -> None:
        await shop.store.queue.release(me("w1"), "it seems dead")
        try:
            await step(shelf.charge, 1)
            ends.append("went on")
        except asyncio.CancelledError:
            ends.append("stopped")
            raise
        finally:
            ended.set()

    job_id = await shop.desk.push(None, max_crashes=1)
    async with shop.working(shop.workload(order, worker_id="w1"), "w1"):
        await ended.wait()

    assert (ends, await shop.desk.steps(job_id), shelf.calls) == (["stopped"], [], ["charge"])


async def test_steps_of_many_jobs_are_written_together(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    record = shop.store.job_steps.record

    async def counted(holder: Any, steps: Any) -> Any:
        batches.append(len(steps))
        return await record(holder, steps)

    async def count(n: int) -> int:
        return n

    async def order(n: int) -> int:
        return await step(count, n) + await step(count, n)

    monkeypatch.setattr(shop.store.job_steps, "record", counted)
    ids = await shop.desk.push_many(range(100))
    await shop.work(shop.workload(order, mode=Mode.DRAIN, concurrency=50))

    assert [(await shop.job(job_id)).result for job_id in ids] == [2 * n for n in range(100)]
    assert (sum(batches), len(batches) < 20) == (200, True)


async def test_a_lost_answer_of_the_store_delays_a_step_and_loses_nothing(
    shop: Shop, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["lost", "refused", "given"])
    record = shop.store.job_steps.record

    async def unsure(holder: Any, steps: Any) -> Any:
        answer = next(answers)
        stale = await record(holder, steps) if answer != "refused" else ()
        if answer != "given":
            raise StoreUnavailable("the connection was lost")
        return stale

    async def order() -> str:
        return await step(shelf.send)

    monkeypatch.setattr(shop.store.job_steps, "record", unsure)
    job_id = await shop.desk.push(None)
    await shop.work(shop.workload(order, mode=Mode.DRAIN))

    assert ((await shop.job(job_id)).result, shelf.calls) == ("sent", ["send"])
    assert len(await shop.desk.steps(job_id)) == 1


async def test_a_step_that_the_store_refuses_fails_only_its_own_attempt(
    shop: Shop, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = shop.store.job_steps.record

    async def refusing(holder: Any, steps: Any) -> Any:
        if any(new.step.result == "bad" for new in steps):
            raise InvalidInput("cannot store bad")
        return await record(holder, steps)

    async def echo(word: str) -> str:
        return word

    async def order(word: str) -> str:
        return await step(echo, word)

    monkeypatch.setattr(shop.store.job_steps, "record", refusing)
    good, bad = await shop.desk.push_many(["good", "bad"])
    await shop.work(shop.workload(order, mode=Mode.DRAIN, concurrency=2))

    assert [(await shop.job(each)).status for each in (good, bad)] == [JobStatus.DONE, JobStatus.POISONED]
    assert (await shop.job(bad)).last_error == "cannot store bad"


@pytest.mark.parametrize("executor", [ExecutorKind.ASYNC, ExecutorKind.THREADS])
async def test_a_plain_function_has_steps_that_block(shop: Shop, shelf: Shelf, executor: ExecutorKind) -> None:
    def order(context: JobContext) -> list[Any]:
        packed = context.step_blocking(shelf.pack, "book")
        context.sleep_blocking(timedelta())
        return [packed, context.wait_for_blocking("approval")]

    job_id = await shop.desk.push(None)
    await shop.desk.send_event(job_id, "approval", "yes")
    await shop.work(shop.workload(order, mode=Mode.DRAIN, executor=executor))

    assert (await shop.job(job_id)).result == ["packed book", "yes"]


async def test_a_coroutine_in_a_thread_has_steps_as_well(shop: Shop, shelf: Shelf) -> None:
    async def order() -> list[Any]:
        return [await step(shelf.charge, 1), await step(shelf.pack, "book")]

    job_id = await shop.desk.push(None)
    await shop.work(shop.workload(order, mode=Mode.DRAIN, executor=ExecutorKind.THREADS))

    assert (await shop.job(job_id)).result == [{"charged": 1}, "packed book"]


async def test_a_suspended_job_frees_its_worker(shop: Shop) -> None:
    async def order(which: str) -> str:
        if which == "slow":
            await sleep(3600)
        return which

    slow, quick = await shop.desk.push_many(["slow", "quick"])
    async with shop.working(shop.workload(order, concurrency=1)):
        assert (await shop.status(slow), await shop.status(quick)) == (JobStatus.PENDING, JobStatus.DONE)
        await shop.passes(3601)
        assert await shop.status(slow) is JobStatus.DONE


async def test_a_worker_that_is_asked_to_stop_still_records_a_step_that_has_finished(shop: Shop, shelf: Shelf) -> None:
    workloads: list[JobWorkload] = []

    async def order() -> str:
        for workload in workloads:
            workload.in_flight.release_all()
        workloads.clear()
        return await step(shelf.send)

    workloads.append(shop.workload(order))
    job_id = await shop.desk.push(None)
    async with shop.working(workloads[0]):
        await settle()

    assert ((await shop.job(job_id)).result, shelf.calls) == ("sent", ["send"])
    assert [each.outcome for each in await shop.desk.attempts(job_id)] == [AttemptOutcome.RELEASED, DONE]
