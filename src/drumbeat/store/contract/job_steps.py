"""Tests of the durable steps of jobs: recording them, sleeping, and events."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.errors import InvalidInput, NotFound, Refused
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobStatus, Token
from drumbeat.core.job_step import JobStep, NewStep, StepKind
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Holder
from drumbeat.store.contract.given import AWKWARD, DAY, MINUTE, SECOND, W1, W2, Elapse, Given, new_pool, unique
from drumbeat.store.contract.given_jobs import claimed, claiming, holder, pushed, verdict
from drumbeat.store.interface import Store


async def step_of(store: Store, job: Job, position: int, **fields: Any) -> NewStep:
    """Build a finished step of a claimed job, with the times of the store's clock."""
    now = await store.now()
    given: dict[str, Any] = {
        "name": f"step-{position}",
        "kind": StepKind.STEP,
        "started_at": now - SECOND,
        "finished_at": now,
    } | fields
    return NewStep(token=job.token, step=JobStep(position=position, epoch=job.lease_epoch, **given))


async def suspended(store: Store, pool: PoolRow, job: Job, retry_in: timedelta, **fields: Any) -> Job:
    """Report that the attempt at a claimed job was suspended. Returns the job's row."""
    outcome = verdict(job, AttemptOutcome.SUSPENDED, retry_in=retry_in, **fields)
    settled = await store.queue.settle(holder(pool), [outcome])
    assert settled.stale == ()
    return await store.jobs.get(job.job_id)


async def awaiting(store: Store, pool: PoolRow, name: str = "approval") -> Job:
    """Push a job, let it wait for an event of this name, and return its row."""
    await pushed(store, pool, 1)
    job = await claimed(store, pool)
    waits = await step_of(store, job, 1, name=name, kind=StepKind.EVENT, finished_at=None)
    assert await store.job_steps.record(holder(pool), [waits]) == []
    return await suspended(store, pool, job, DAY, seen_events=0)


class RecordedStepsContract(Given):
    """Tests of recording the steps of a job."""

    async def test_a_recorded_step_is_read_as_it_was_written(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, 1)
        job = await claimed(store, pool)
        now = await store.now()
        new = await step_of(store, job, 1, name="charge", result=dict(AWKWARD), error="odd", until=now + DAY)

        assert await store.job_steps.record(holder(pool), [new]) == []

        assert await store.job_steps.list(job_id) == [new.step]
        assert (await store.jobs.get(job_id)).has_steps

    async def test_a_job_without_steps_has_none(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, 1)
        job = await claimed(store, pool)

        assert (job.has_steps, job.events_sent) == (False, 0)
        assert await store.job_steps.list(job_id) == []
        assert await store.job_steps.record(holder(pool), []) == []

    async def test_an_unknown_job_has_no_list_of_steps(self, store: Store) -> None:
        for job_id in (JobId("j100000000000000000"), JobId(unique("no-such"))):
            with pytest.raises(NotFound, match="there is no job"):
                await store.job_steps.list(job_id)

    async def test_steps_of_many_jobs_are_recorded_at_once(self, store: Store, pool: PoolRow) -> None:
        ids = await pushed(store, pool, *range(20))
        jobs = await store.queue.claim(claiming(pool, limit=20))
        new = [await step_of(store, job, n, result=n) for n in (2, 1, 3) for job in jobs]

        assert await store.job_steps.record(holder(pool), new) == []

        for job_id in ids:
            assert [(step.position, step.result) for step in await store.job_steps.list(job_id)] == [(1, 1), (2, 2), (3, 3)]

    async def test_a_step_recorded_twice_is_there_once_and_the_last_counts(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, 1)
        job = await claimed(store, pool)
        await store.job_steps.record(holder(pool), [await step_of(store, job, 1, finished_at=None)])

        last = await step_of(store, job, 1, result="in the end")
        assert await store.job_steps.record(holder(pool), [last]) == []

        assert await store.job_steps.list(job_id) == [last.step]

    async def test_a_job_with_a_chosen_id_has_steps_as_well(self, store: Store, pool: PoolRow) -> None:
        name = JobId(unique("chosen"))
        await pushed(store, pool, 1, job_id=name)
        job = await claimed(store, pool)

        await store.job_steps.record(holder(pool), [await step_of(store, job, 1)])
        await store.job_steps.send(name, "approval", "yes")

        assert [step.position for step in await store.job_steps.list(name)] == [-1, 1]

    async def test_only_the_worker_that_holds_the_job_records_steps(self, store: Store, pool: PoolRow) -> None:
        others = [await store.pools.create(new_pool()) for _ in range(2)]
        jobs = []
        for each in (pool, *others):
            await pushed(store, each, 1)
            jobs.append(await claimed(store, each, holder(each, W1, "i1")))
        strangers = [holder(pool, W1, "i2"), holder(pool, W2, "i1"), holder(others[0], W1, "i1"), holder(others[1], W1, "i1")]

        for stranger in strangers:
            assert await store.job_steps.record(stranger, [await step_of(store, jobs[0], 1)]) == [jobs[0].token]
        assert await store.job_steps.list(jobs[0].job_id) == []
        for job, each in zip(jobs, (pool, *others), strict=True):
            assert await store.job_steps.record(holder(each, W1, "i1"), [await step_of(store, job, 1)]) == []

    async def test_of_a_batch_only_the_steps_of_lost_jobs_are_refused(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2)
        kept, lost = await store.queue.claim(claiming(pool, limit=2))
        await store.queue.settle(holder(pool), [verdict(lost, AttemptOutcome.RELEASED)])
        again = await claimed(store, pool)
        assert again.job_id == lost.job_id
        new = [await step_of(store, kept, 1), await step_of(store, lost, 1), await step_of(store, lost, 2)]

        assert await store.job_steps.record(holder(pool), new) == [lost.token]

        assert len(await store.job_steps.list(kept.job_id)) == 1
        assert await store.job_steps.list(lost.job_id) == []
        assert not (await store.jobs.get(lost.job_id)).has_steps
        unknown = Token(job_id=JobId(unique("gone")), epoch=1)
        assert await store.job_steps.record(holder(pool), [NewStep(token=unknown, step=new[0].step)]) == [unknown]

    async def test_steps_of_two_claims_of_a_job_in_one_batch_are_told_apart(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        before = await claimed(store, pool)
        first = await step_of(store, before, 2, result="first")
        await store.job_steps.record(holder(pool), [first])
        await store.queue.settle(holder(pool), [verdict(before, AttemptOutcome.RELEASED)])
        held = await step_of(store, await claimed(store, pool), 1, result="held")
        late = [await step_of(store, before, position, result="late") for position in (1, 2)]

        assert await store.job_steps.record(holder(pool), [held, *late]) == [before.token]

        assert await store.job_steps.list(before.job_id) == [held.step, first.step]

    async def test_steps_outlive_a_lost_worker(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        first = await claimed(store, pool)
        await store.job_steps.record(holder(pool), [await step_of(store, first, 1)])
        await store.queue.release(holder(pool), "it died")
        again = await claimed(store, pool, W2)

        assert again.has_steps
        assert await store.job_steps.record(holder(pool), [await step_of(store, first, 2)]) == [first.token]
        assert await store.job_steps.record(holder(pool, W2), [await step_of(store, again, 2)]) == []
        assert [(step.position, step.epoch) for step in await store.job_steps.list(first.job_id)] == [(1, 1), (2, 2)]

    async def test_a_poisoned_job_keeps_its_steps_when_it_is_requeued(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        await store.job_steps.record(holder(pool), [await step_of(store, job, 1)])
        await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.FAILED, error="no luck", fatal=True)])

        await store.jobs.requeue(pool.pool_id, [job.job_id])

        assert (await claimed(store, pool)).has_steps
        assert len(await store.job_steps.list(job.job_id)) == 1

    async def test_steps_are_deleted_with_their_job(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        name = JobId(unique("chosen"))
        await pushed(store, pool, 1, job_id=name)
        job = await claimed(store, pool)
        await store.job_steps.record(holder(pool), [await step_of(store, job, 1)])
        await store.queue.settle(holder(pool), [verdict(job)])
        await elapse(DAY)

        assert await store.jobs.prune(MINUTE) >= 1

        with pytest.raises(NotFound):
            await store.job_steps.list(name)
        await pushed(store, pool, 1, job_id=name)
        assert await store.job_steps.list(name) == []

    async def test_steps_are_deleted_with_their_pool(self, store: Store) -> None:
        pool, name = await store.pools.create(new_pool()), JobId(unique("chosen"))
        await pushed(store, pool, 1, job_id=name)
        job = await claimed(store, pool)
        await store.job_steps.record(holder(pool), [await step_of(store, job, 1)])

        await store.pools.delete(pool.pool_id)

        again = await store.pools.create(new_pool())
        await pushed(store, again, 1, job_id=name)
        assert await store.job_steps.list(name) == []


class SuspendedJobsContract(Given):
    """Tests of jobs that sleep or wait for an event."""

    async def test_a_sleeping_job_is_claimed_again_at_its_time(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, 1)
        row = await suspended(store, pool, await claimed(store, pool), MINUTE)

        assert (row.status, row.lease_owner) == (JobStatus.PENDING, None)
        assert await store.queue.claim(claiming(pool)) == []
        await elapse(MINUTE)

        assert (await claimed(store, pool)).job_id == row.job_id

    async def test_a_suspended_job_is_charged_nothing(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, max_attempts=1, max_crashes=1)
        for n in range(1, 4):
            job = await claimed(store, pool)
            assert (job.attempts, job.lease_epoch) == (1, n)
            row = await suspended(store, pool, job, timedelta())

            assert (row.attempts, row.failures, row.crashes, row.last_error) == (0, 0, 0, None)
        [found] = await store.jobs.list(pool.pool_id)
        outcomes = [attempt.outcome for attempt in await store.jobs.attempts(found.job_id)]
        assert outcomes == [AttemptOutcome.SUSPENDED] * 3

    async def test_only_the_worker_that_holds_the_job_suspends_it(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        outcome = verdict(job, AttemptOutcome.SUSPENDED, retry_in=MINUTE)

        for stranger in (holder(pool, W2), Holder(pool_id=pool.pool_id, worker_id=W1, instance="another")):
            assert (await store.queue.settle(stranger, [outcome])).stale == (job.token,)

        assert (await store.jobs.get(job.job_id)).status is JobStatus.CLAIMED

    async def test_a_job_whose_cancellation_was_requested_is_cancelled_not_suspended(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        await store.jobs.cancel([job.job_id])

        assert (await suspended(store, pool, job, MINUTE)).status is JobStatus.CANCELLED

    async def test_a_suspended_job_can_be_cancelled(self, store: Store, pool: PoolRow) -> None:
        job = await awaiting(store, pool)

        [cancelled] = await store.jobs.cancel([job.job_id])

        assert cancelled.status is JobStatus.CANCELLED
        with pytest.raises(Refused, match=f"expected a job that has not ended, got job {job.job_id}, which is cancelled"):
            await store.job_steps.send(job.job_id, "approval", 1)

    async def test_an_event_wakes_the_job_that_waits_for_it(self, store: Store, pool: PoolRow) -> None:
        job = await awaiting(store, pool)
        assert await store.queue.claim(claiming(pool)) == []

        assert await store.job_steps.send(job.job_id, "approval", {"by": "Ada"})

        again = await claimed(store, pool)
        assert (again.job_id, again.events_sent) == (job.job_id, 1)
        [sent, waits] = await store.job_steps.list(job.job_id)
        assert (sent.position, sent.kind, sent.name, sent.result) == (-1, StepKind.SENT, "approval", {"by": "Ada"})
        assert (waits.kind, waits.finished_at) == (StepKind.EVENT, None)

    async def test_an_event_of_another_name_wakes_no_job(self, store: Store, pool: PoolRow) -> None:
        job = await awaiting(store, pool)

        assert await store.job_steps.send(job.job_id, "another", 1)

        assert await store.queue.claim(claiming(pool)) == []
        assert await store.job_steps.send(job.job_id, "approval", 1)
        assert (await claimed(store, pool)).events_sent == 2

    async def test_an_event_does_not_wake_a_job_that_sleeps(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        await store.job_steps.send(job.job_id, "approval", 1)

        await suspended(store, pool, job, DAY)
        await store.job_steps.send(job.job_id, "second", 1)

        assert await store.queue.claim(claiming(pool)) == []

    async def test_an_event_that_comes_while_the_job_stops_to_wait_is_not_missed(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        await store.job_steps.send(job.job_id, "approval", 1)

        row = await suspended(store, pool, job, DAY, seen_events=0)

        assert row.status is JobStatus.PENDING
        assert (await claimed(store, pool)).job_id == job.job_id

    async def test_an_event_that_the_job_knew_of_does_not_wake_it(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        await store.job_steps.send(job.job_id, "another", 1)

        await suspended(store, pool, job, DAY, seen_events=1)

        assert await store.queue.claim(claiming(pool)) == []

    async def test_an_event_and_the_end_of_an_attempt_at_the_same_time_lose_nothing(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(10))
        jobs = await store.queue.claim(claiming(pool, limit=10))
        waits = [await step_of(store, job, 1, name="go", kind=StepKind.EVENT, finished_at=None) for job in jobs]
        await store.job_steps.record(holder(pool), waits)

        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(suspended(store, pool, job, DAY, seen_events=0))
                group.create_task(store.job_steps.send(job.job_id, "go", 1))

        assert len(await store.queue.claim(claiming(pool, limit=20))) == 10

    async def test_an_event_is_kept_until_a_job_is_claimed(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, 1)

        assert await store.job_steps.send(job_id, "approval", None)

        job = await claimed(store, pool)
        assert (job.has_steps, job.events_sent) == (True, 1)
        [sent] = await store.job_steps.list(job_id)
        assert (sent.name, sent.result, sent.finished_at is None) == ("approval", None, False)

    async def test_an_event_does_not_shorten_the_delay_of_a_job_that_does_not_wait(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, 1, delay=MINUTE)

        await store.job_steps.send(job_id, "approval", 1)

        assert await store.queue.claim(claiming(pool)) == []

    async def test_of_two_events_of_one_name_the_first_counts(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, 1)

        sent = [await store.job_steps.send(job_id, "approval", value) for value in ("yes", "no")]

        assert sent == [True, False]
        assert [step.result for step in await store.job_steps.list(job_id)] == ["yes"]
        assert (await store.jobs.get(job_id)).events_sent == 1

    async def test_many_events_at_once_are_each_kept_once(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, 1)

        sent = await asyncio.gather(*(store.job_steps.send(job_id, f"event-{n % 5}", n) for n in range(15)))

        assert sorted(sent) == [False] * 10 + [True] * 5
        steps = await store.job_steps.list(job_id)
        assert [step.position for step in steps] == [-1, -2, -3, -4, -5]
        assert sorted(step.name for step in steps) == [f"event-{n}" for n in range(5)]

    async def test_an_event_to_an_unknown_job_or_of_a_strange_value_is_refused(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, 1)

        for unknown in (JobId("j100000000000000000"), JobId(unique("no-such"))):
            with pytest.raises(NotFound, match="there is no job"):
                await store.job_steps.send(unknown, "approval", 1)
        with pytest.raises(InvalidInput, match="plain JSON"):
            await store.job_steps.send(job_id, "approval", object())
        assert await store.job_steps.list(job_id) == []

    async def test_a_job_that_waits_twice_for_an_event_is_woken_after_one_wait_has_timed_out(
        self, store: Store, pool: PoolRow
    ) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        waits = [await step_of(store, job, n, name="x", kind=StepKind.EVENT, finished_at=None) for n in (1, 2)]
        over = await step_of(store, job, 1, name="x", kind=StepKind.EVENT, error="timed out")
        for steps in (waits, waits, [over]):
            await store.job_steps.record(holder(pool), steps)
        await suspended(store, pool, job, DAY, seen_events=0)

        assert await store.job_steps.send(job.job_id, "x", 7)

        assert (await claimed(store, pool)).job_id == job.job_id

    async def test_a_job_whose_waits_for_an_event_are_all_over_is_not_woken(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        for finished_at in (None, await store.now()):
            waits = [await step_of(store, job, n, name="x", kind=StepKind.EVENT, finished_at=finished_at) for n in (1, 11, 2)]
            await store.job_steps.record(holder(pool), waits)
        await suspended(store, pool, job, DAY, seen_events=0)

        await store.job_steps.send(job.job_id, "x", 7)

        assert await store.queue.claim(claiming(pool)) == []

    async def test_a_wait_for_an_event_ends_at_its_timeout(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        job = await awaiting(store, pool)

        await elapse(DAY)

        assert (await claimed(store, pool)).job_id == job.job_id


class JobStepsContract(RecordedStepsContract, SuspendedJobsContract):
    """All tests of the durable steps of jobs."""
