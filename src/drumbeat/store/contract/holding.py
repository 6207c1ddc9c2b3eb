"""Tests of claimed jobs: renewal, release and expiry of their leases; and of waiting for jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from drumbeat.core.errors import Fenced
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobStatus, RateLimit, Token
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store.contract.given import (
    MINUTE,
    W1,
    W2,
    Elapse,
    Given,
    active,
    new_pool,
    outdated,
    unique,
)
from drumbeat.store.contract.given_jobs import EVERY, claimed, claiming, holder, pushed, pushed_alike, verdict
from drumbeat.store.interface import PoolChange, Store


class HoldContract(Given):
    """Tests of claimed jobs before their outcome is reported, and of a worker's wait for jobs."""

    async def test_renewing_keeps_a_claim_for_so_long_from_now(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool, lease=10 * MINUTE)
        await elapse(9 * MINUTE)

        renewed = await store.queue.renew(holder(pool), [job.token], 10 * MINUTE)
        await elapse(9 * MINUTE)

        assert (renewed.stale, renewed.cancelled) == ((), ())
        assert job.job_id not in [late.job_id for late in await store.queue.expire(EVERY)]

    async def test_renewing_tells_what_is_gone_and_what_is_to_be_cancelled(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2, 3)
        kept, gone, unwanted = await store.queue.claim(claiming(pool, limit=3))
        await store.queue.settle(holder(pool), [verdict(gone)])
        await store.jobs.cancel([unwanted.job_id])

        renewed = await store.queue.renew(holder(pool), [job.token for job in (kept, gone, unwanted)], MINUTE)

        assert (renewed.stale, renewed.cancelled) == ((gone.token,), (unwanted.token,))

    async def test_a_claim_of_a_job_whose_lease_ran_out_is_stale_once_it_was_taken(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool, lease=MINUTE)
        await elapse(2 * MINUTE)
        await store.queue.expire(EVERY)
        await elapse(2 * MINUTE)

        expired = [late for late in await store.queue.expire(EVERY) if late.pool_id == pool.pool_id]

        assert [(late.job_id, late.status, late.crashes) for late in expired] == [(job.job_id, JobStatus.PENDING, 1)]
        assert (await store.queue.renew(holder(pool), [job.token], MINUTE)).stale == (job.token,)

    async def test_releasing_takes_back_what_a_worker_held_in_every_queue(self, store: Store, pool: PoolRow) -> None:
        name, other = WorkerId(unique("w")), await store.pools.create(new_pool())
        me = holder(pool, name, "i1")
        for each in (pool, other):
            await pushed(store, each, 1, 2)
        taken = [await claimed(store, pool, me), await claimed(store, other, me)]
        kept = await claimed(store, pool, W2)

        released = await store.queue.release(me, "silent")

        assert {job.job_id for job in released} == {job.job_id for job in taken}
        assert {(job.status, job.suspicions, job.failures) for job in released} == {("pending", 1, 0)}
        assert (await store.jobs.get(kept.job_id)).holder == holder(pool, W2)
        assert [*await store.queue.release(me, "silent")] == []

    async def test_a_worker_of_the_same_id_in_another_pool_keeps_its_jobs_when_one_is_released(
        self, store: Store, pool: PoolRow
    ) -> None:
        others = [await store.pools.create(new_pool()) for _ in range(2)]
        for each in (pool, *others):
            await pushed(store, each, 1)
        mine = await claimed(store, pool, holder(pool, W1, "i1"))
        theirs = [await claimed(store, each, holder(each, W1, "i1")) for each in others]

        released = await store.queue.release(holder(pool, W1, "i1"), "killed")

        assert [job.job_id for job in released] == [mine.job_id]
        assert [await store.jobs.get(job.job_id) for job in theirs] == theirs
        for each, job in zip(others, theirs, strict=True):
            settled = await store.queue.settle(holder(each, W1, "i1"), [verdict(job, result="kept")])
            assert (settled.stale, (await store.jobs.get(job.job_id)).result) == ((), "kept")

    async def test_a_later_process_of_the_same_name_keeps_its_jobs_when_an_earlier_one_is_released(
        self, store: Store, pool: PoolRow
    ) -> None:
        await pushed(store, pool, 1, 2)
        first = await claimed(store, pool, holder(pool, W1, "i1"))
        second = await claimed(store, pool, holder(pool, W1, "i2"))

        released = await store.queue.release(holder(pool, W1, "i1"), "killed")

        assert [job.job_id for job in released] == [first.job_id]
        assert await store.jobs.get(second.job_id) == second

    @pytest.mark.parametrize("wrong", ["pool", "process"])
    async def test_a_claim_of_another_pool_or_process_cannot_be_changed(self, store: Store, pool: PoolRow, wrong: str) -> None:
        await pushed(store, pool, 1)
        me = holder(pool, W1, "i1")
        job = await claimed(store, pool, me)
        other = holder(await store.pools.create(new_pool()), W1, "i1") if wrong == "pool" else holder(pool, W1, "i2")
        await store.jobs.cancel([job.job_id])

        for outcome in (AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.RELEASED):
            assert (await store.queue.settle(other, [verdict(job, outcome)])).stale == (job.token,)
        in_one_go = await store.queue.settle(other, [verdict(job)], claiming(pool, other, limit=5))

        assert in_one_go.stale == (job.token,)
        assert (await store.queue.renew(other, [job.token], MINUTE)).stale == (job.token,)
        assert not await store.jobs.progress(other, job.token, 0.5)
        assert [*await store.jobs.to_stop(other)] == []
        assert [*await store.jobs.to_stop(me)] == [job.token]
        assert [*await store.jobs.list(pool.pool_id, holder=other)] == []
        assert [each.job_id for each in await store.jobs.list(pool.pool_id, holder=me)] == [job.job_id]
        assert (await store.queue.settle(me, [verdict(job)])).stale == ()

    async def test_only_the_current_holder_renews_begins_or_reports_progress(self, store: Store, pool: PoolRow) -> None:
        """A call is refused if its worker, process, pool or claim is not the holder's, or if the claim has ended."""
        await pushed(store, pool, 1)
        me = holder(pool, W1, "i1")
        job = await claimed(store, pool, me, ahead=True)
        elsewhere = holder(await store.pools.create(new_pool()), W1, "i1")

        async def is_accepted(who: Holder, epoch: int) -> list[bool]:
            token = Token(job_id=job.job_id, epoch=epoch)
            renewed = await store.queue.renew(who, [token], 10 * MINUTE)
            begun = await store.queue.begin(who, [token])
            return [renewed.stale != (token,), [*begun] != [token], await store.jobs.progress(who, token, 0.5)]

        for who in (holder(pool, W2, "i1"), holder(pool, W1, "i2"), elsewhere):
            assert not any(await is_accepted(who, job.lease_epoch))
        for epoch in (job.lease_epoch - 1, job.lease_epoch + 1):
            assert not any(await is_accepted(me, epoch))
        assert await store.jobs.get(job.job_id) == job

        await store.queue.settle(me, [verdict(job, result="right")])
        done = await store.jobs.get(job.job_id)
        assert not any(await is_accepted(me, job.lease_epoch))
        assert await store.jobs.get(job.job_id) == done

    async def test_a_worker_of_another_pool_that_drains_takes_nothing_though_this_pools_may(
        self, store: Store, pool: PoolRow
    ) -> None:
        other = await store.pools.create(new_pool())
        leaving, staying = await active(store, other), await active(store, pool)
        await store.workers.ask_to_drain(other.pool_id, [W1], "scale down", MINUTE)
        await pushed(store, pool, 1, 2)

        assert [*await store.queue.claim(claiming(pool, leaving.holder))] == []
        assert len(await store.queue.claim(claiming(pool, staying.holder))) == 1

    async def test_two_releases_at_once_count_one_crash(self, store: Store, pool: PoolRow) -> None:
        name = WorkerId(unique("w"))
        await pushed(store, pool, 1)
        job = await claimed(store, pool, name)

        released = await asyncio.gather(*(store.queue.release(holder(pool, name), "silent") for _ in range(4)))

        assert sum(len(jobs) for jobs in released) == 1
        assert (await store.jobs.get(job.job_id)).crashes == 1

    async def test_a_job_that_crashes_its_workers_is_poisoned(self, store: Store, pool: PoolRow) -> None:
        name = WorkerId(unique("w"))
        await pushed(store, pool, 1, max_crashes=2, max_attempts=1)

        await claimed(store, pool, name)
        [first] = await store.queue.release(holder(pool, name), "killed")
        await claimed(store, pool, name, alone=True)
        [second] = await store.queue.release(holder(pool, name), "killed")

        assert (first.status, second.status) == (JobStatus.PENDING, JobStatus.POISONED)
        assert (second.crashes, second.failures, second.attempts) == (2, 0, 2)

    async def test_releasing_under_a_lease_that_was_taken_over_changes_nothing(
        self, store: Store, pool: PoolRow, lease: Lease
    ) -> None:
        name = WorkerId(unique("w"))
        await pushed(store, pool, 1)
        job = await claimed(store, pool, name)

        with pytest.raises(Fenced):
            await store.queue.release(holder(pool, name), "silent", fence=await outdated(store, lease))

        assert await store.jobs.get(job.job_id) == job

    async def test_expiring_takes_no_more_than_it_is_asked_to(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, 1, 2, 3)
        await store.queue.claim(claiming(pool, limit=3, lease=MINUTE))
        await elapse(2 * MINUTE)
        while [job for job in await store.jobs.list(pool.pool_id) if await _ran_out(store, job)]:
            await store.queue.expire(2)
        await elapse(2 * MINUTE)

        expired = []
        while some := await store.queue.expire(2):
            assert len(some) <= 2
            expired += [job.payload for job in some if job.pool_id == pool.pool_id]

        assert sorted(expired) == [1, 2, 3]

    @pytest.mark.parametrize("push", [pushed, pushed_alike])
    async def test_a_push_ends_a_wait(self, store: Store, pool: PoolRow, push: Callable[..., Awaitable[list[JobId]]]) -> None:
        await store.queue.claim(claiming(pool))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(store.queue.wait(pool.pool_id, timedelta(seconds=20)))
            await asyncio.sleep(0.05)
            await push(store, pool, 1)

        assert waiting.result()

    async def test_a_push_between_an_empty_claim_and_the_wait_ends_the_wait(self, store: Store, pool: PoolRow) -> None:
        await store.queue.claim(claiming(pool))
        await pushed(store, pool, 1)

        assert await store.queue.wait(pool.pool_id, timedelta(seconds=20))

    async def test_a_drain_request_ends_a_wait(self, store: Store, pool: PoolRow) -> None:
        await active(store, pool)
        await store.queue.claim(claiming(pool))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(store.queue.wait(pool.pool_id, timedelta(seconds=20)))
            await asyncio.sleep(0.05)
            await store.workers.ask_to_drain(pool.pool_id, [W1], "scale down", MINUTE)

        assert waiting.result()

    @pytest.mark.parametrize("held_up", ["rate", "pause"])
    async def test_a_wait_ends_when_no_pause_or_rate_holds_back_a_ready_job(
        self, store: Store, pool: PoolRow, elapse: Elapse, held_up: str
    ) -> None:
        moment = timedelta(milliseconds=300)
        await pushed(store, pool, 1, 2, group="g", group_rate=RateLimit(count=1, per=moment))
        found = [*await store.queue.claim(claiming(pool, limit=5))]
        if held_up == "pause":
            await store.pools.change(pool.pool_id, PoolChange(paused_until=await store.now() + 2 * moment))
            assert await store.queue.claim(claiming(pool)) == []
        async with asyncio.timeout(15), asyncio.TaskGroup() as group:
            waiting = group.create_task(_claimed_in_time(store, pool))
            for _ in range(4):
                await asyncio.sleep(0.02)
                await elapse(moment)

        assert [job.payload for job in (*found, *waiting.result())] == [1, 2]

    async def test_a_wait_ends_though_nothing_comes(self, store: Store, pool: PoolRow) -> None:
        await store.queue.claim(claiming(pool))

        assert not await store.queue.wait(pool.pool_id, timedelta())

    async def test_progress_is_noted_for_the_holder_only(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        assert await store.jobs.progress(holder(pool), job.token, 0.5, "half")
        assert not await store.jobs.progress(holder(pool, W2), job.token, 0.9)
        assert not await store.jobs.progress(holder(pool), Token(job_id=job.job_id, epoch=7), 0.9)

        now = await store.jobs.get(job.job_id)
        assert (now.progress, now.progress_note) == (0.5, "half")

    async def test_a_new_claim_begins_without_progress(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        await store.jobs.progress(holder(pool), job.token, 0.5, "half")
        assert (await store.jobs.get(job.job_id)).progress == 0.5
        await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.RELEASED)])

        again = await claimed(store, pool)

        assert (again.progress, again.progress_note) == (None, None)


async def _ran_out(store: Store, job: Job) -> bool:
    return job.lease_until is not None and job.lease_until <= await store.now()


async def _claimed_in_time(store: Store, pool: PoolRow) -> list[Job]:
    """Wait for jobs and claim, again and again, until a claim returns jobs."""
    while not (found := await store.queue.claim(claiming(pool, limit=5))):
        await store.queue.wait(pool.pool_id, timedelta(seconds=60))
    return [*found]
