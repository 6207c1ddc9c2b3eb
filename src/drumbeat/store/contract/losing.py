"""Tests of jobs whose worker was lost: when that counts as a crash of a job, and when a job must run alone or is poisoned."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.job import AttemptOutcome, Job, JobId, JobStatus
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store.contract.given import MINUTE, W1, W2, W3, Elapse, Given, new_pool
from drumbeat.store.contract.given_jobs import EVERY, claimed, claiming, holder, pushed, verdict
from drumbeat.store.interface import Store


class LossContract(Given):
    """Tests of lost workers: if the worker ran one job, its ``crashes`` rise by 1; if several, each job's ``suspicions``."""

    async def test_a_job_that_had_not_begun_is_charged_nothing_when_its_worker_is_lost(
        self, store: Store, pool: PoolRow
    ) -> None:
        await pushed(store, pool, 1, 2, max_crashes=1)
        first, second = await store.queue.claim(claiming(pool, limit=2, ahead=True))
        assert [*await store.queue.begin(holder(pool), [first.token])] == []

        await store.queue.release(holder(pool), "killed")

        begun, waited = await store.jobs.get(first.job_id), await store.jobs.get(second.job_id)
        assert (begun.status, begun.attempts, begun.crashes) == (JobStatus.POISONED, 1, 1)
        assert (waited.status, waited.attempts, waited.crashes, waited.suspicions) == (JobStatus.PENDING, 0, 0, 0)
        assert [attempt.outcome for attempt in await store.jobs.attempts(second.job_id)] == [AttemptOutcome.RELEASED]

    async def test_an_attempt_counts_when_it_begins_and_once(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, 1)
        ahead = await claimed(store, pool, ahead=True)
        await elapse(MINUTE / 2)

        for _ in range(2):
            assert [*await store.queue.begin(holder(pool), [ahead.token])] == []

        begun = await store.jobs.get(ahead.job_id)
        assert (ahead.attempts, ahead.begun_at) == (0, None)
        assert begun.attempts == 1
        assert begun.begun_at is not None
        assert ahead.claimed_at is not None
        assert begun.begun_at > ahead.claimed_at
        [attempt] = await store.jobs.attempts(ahead.job_id)
        assert attempt.started_at == begun.begun_at

    async def test_a_claim_that_is_not_ahead_has_begun(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        assert (job.attempts, job.begun_at) == (1, job.claimed_at)

    async def test_a_job_given_back_before_it_began_keeps_its_count_of_attempts(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool), AttemptOutcome.FAILED, error="x")])
        again = await claimed(store, pool, ahead=True)

        await store.queue.settle(holder(pool), [verdict(again, AttemptOutcome.RELEASED)])

        back = await store.jobs.get(again.job_id)
        assert (back.attempts, back.failures, back.begun_at) == (1, 1, None)

    async def test_only_the_holder_begins_a_job(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool, ahead=True)
        others = [holder(pool, W2), holder(pool, W1, "another"), holder(await store.pools.create(new_pool()))]

        assert [[*await store.queue.begin(other, [job.token])] for other in others] == [[job.token]] * 3
        await store.queue.release(holder(pool), "lost")
        assert [*await store.queue.begin(holder(pool), [job.token])] == [job.token]
        assert (await store.jobs.get(job.job_id)).attempts == 0

    async def test_of_several_that_had_begun_none_is_charged_a_crash(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2, 3, max_crashes=1)
        await store.queue.claim(claiming(pool, limit=3))

        released = await store.queue.release(holder(pool), "killed")

        assert [(job.status, job.crashes, job.suspicions) for job in released] == [(JobStatus.PENDING, 0, 1)] * 3
        assert all("2 other jobs may have run on this worker too" in str(job.last_error) for job in released)
        assert all(job.must_run_alone for job in released)

    async def test_a_loss_that_is_not_charged_costs_a_job_nothing(self, store: Store, pool: PoolRow) -> None:
        pools = [pool, *[await store.pools.create(new_pool()) for _ in range(2)]]
        for each in pools:
            await pushed(store, each, 1, 2, 3, 4, max_crashes=1)
            await store.queue.claim(claiming(each, holder(each, W1, "i1"), limit=3))
            await store.queue.claim(claiming(each, holder(each, W1, "i1"), ahead=True))
        theirs = [await store.jobs.list(each.pool_id) for each in pools[1:]]
        unwanted = (await store.jobs.list(pool.pool_id))[2]
        await store.jobs.cancel([unwanted.job_id])

        released = await store.queue.release(holder(pool, W1, "i1"), "killed by hand", charge=False)

        back, cancelled = JobStatus.PENDING, JobStatus.CANCELLED
        assert [job.status for job in released] == [back, back, cancelled, back]
        assert [(job.attempts, job.crashes, job.suspicions, job.last_error) for job in released] == [(0, 0, 0, None)] * 4
        assert [(job.begun_at, job.holder, job.must_run_alone) for job in released] == [(None, None, False)] * 4
        assert [await store.jobs.list(each.pool_id) for each in pools[1:]] == theirs
        for job in released:
            [attempt] = await store.jobs.attempts(job.job_id)
            also = "; the job had not begun" if job is released[3] else ""
            assert (attempt.outcome, attempt.error) == (AttemptOutcome.RELEASED, f"killed by hand{also}")
        assert [*await store.queue.release(holder(pool, W1, "i1"), "killed by hand", charge=False)] == []

    async def test_a_loss_that_is_not_charged_leaves_no_suspicion_for_later(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2, max_crashes=2)
        await store.queue.claim(claiming(pool, limit=2))
        await store.queue.release(holder(pool), "killed by hand", charge=False)

        alone, _ = await claimed(store, pool), await claimed(store, pool, W2)
        [lost] = await store.queue.release(holder(pool), "killed")

        assert (lost.job_id, lost.status, lost.attempts) == (alone.job_id, JobStatus.PENDING, 1)
        assert (lost.crashes, lost.suspicions) == (1, 0)

    async def test_suspects_are_tried_together_until_one_more_loss_would_be_the_last(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2, max_crashes=3)
        together = []
        for _ in range(2):
            together.append(len(await store.queue.claim(claiming(pool, limit=5))))
            await store.queue.release(holder(pool), "killed")

        busy = await store.queue.claim(claiming(pool, limit=5))

        assert (together, [*busy]) == ([2, 2], [])
        assert await store.jobs.wait_alone(pool.pool_id)

    async def test_a_job_that_must_run_alone_is_given_by_itself_when_nothing_else_is_ready(
        self, store: Store, pool: PoolRow
    ) -> None:
        suspects = await _suspects(store, pool, 3)
        await pushed(store, pool, "plain", "plain")

        first = await store.queue.claim(claiming(pool, limit=5, alone=True))
        busy = await store.queue.claim(claiming(pool, limit=5))
        others = [await store.queue.claim(claiming(pool, WorkerId(f"v{n}"), limit=5, alone=True)) for n in range(4)]

        assert [job.payload for job in first] == ["plain", "plain"]
        assert [*busy] == []
        assert [[job.job_id for job in found] for found in others] == [[job.job_id] for job in suspects] + [[]]

    async def test_a_job_that_must_run_alone_and_is_due_now_keeps_to_its_group_limit(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        [suspect] = await _suspects(store, pool, 1, max_crashes=2, group="g", group_limit=1)
        tried = await claimed(store, pool, alone=True)
        await store.queue.settle(holder(pool), [verdict(tried, AttemptOutcome.FAILED, error="x", retry_in=10 * MINUTE)])
        [other] = await pushed(store, pool, "other", group="g", group_limit=1)
        first = await claimed(store, pool, W2, lease=60 * MINUTE)
        await elapse(11 * MINUTE)

        beside = await store.queue.claim(claiming(pool, limit=5, alone=True))
        await store.queue.settle(holder(pool, W2), [verdict(first)])
        after = await store.queue.claim(claiming(pool, limit=5, alone=True))

        assert (suspect.must_run_alone, tried.job_id, first.job_id) == (True, suspect.job_id, other)
        assert ([*beside], [job.job_id for job in after]) == ([], [suspect.job_id])

    async def test_a_claim_of_one_job_by_an_idle_worker_gives_suspects_in_their_turn(self, store: Store, pool: PoolRow) -> None:
        [suspect, _] = await _suspects(store, pool, 2)
        await pushed(store, pool, "plain")

        assert (await claimed(store, pool)).payload == "plain"
        assert (await claimed(store, pool, W2, alone=True)).job_id == suspect.job_id

    async def test_settling_and_claiming_in_one_go_gives_suspects_to_an_idle_worker_only(
        self, store: Store, pool: PoolRow
    ) -> None:
        [suspect, _] = await _suspects(store, pool, 2)
        await pushed(store, pool, "a", "b")
        a, b = await store.queue.claim(claiming(pool, limit=2))

        busy = await store.queue.settle(holder(pool), [verdict(a)], claiming(pool, limit=3))
        idle = await store.queue.settle(holder(pool), [verdict(b)], claiming(pool, limit=3, alone=True))

        assert busy.claimed == ()
        assert [job.job_id for job in idle.claimed] == [suspect.job_id]

    async def test_a_suspect_is_not_given_beside_a_job_that_becomes_ready_in_the_same_call(
        self, store: Store, pool: PoolRow
    ) -> None:
        await _suspects(store, pool, 2)
        [parent] = await pushed(store, pool, "parent")
        [job] = await store.queue.claim(claiming(pool, limit=2))
        [child] = await pushed(store, pool, "child", after=(parent,))

        settled = await store.queue.settle(holder(pool), [verdict(job)], claiming(pool, limit=3, alone=True))

        assert [each.job_id for each in settled.claimed] == [child]

    async def test_a_job_that_kills_its_worker_alone_is_poisoned_and_other_suspects_are_done(
        self, store: Store, pool: PoolRow
    ) -> None:
        killer, innocent = await _suspects(store, pool, 2, max_crashes=3, losses=2)

        assert (await claimed(store, pool, alone=True)).job_id == killer.job_id
        [poisoned] = await store.queue.release(holder(pool), "killed")
        last = await claimed(store, pool, alone=True)
        await store.queue.settle(holder(pool), [verdict(last)])

        assert (poisoned.status, poisoned.crashes, poisoned.suspicions) == (JobStatus.POISONED, 1, 2)
        assert (await store.jobs.get(innocent.job_id)).status is JobStatus.DONE
        assert not await store.jobs.wait_alone(pool.pool_id)

    async def test_a_suspect_that_did_not_run_alone_is_not_poisoned(self, store: Store, pool: PoolRow) -> None:
        await _suspects(store, pool, 2, max_crashes=2)
        one = await claimed(store, pool, alone=True)
        other = await claimed(store, pool, alone=True)

        released = await store.queue.release(holder(pool), "killed")

        assert {job.job_id for job in released} == {one.job_id, other.job_id}
        assert [(job.status, job.crashes, job.suspicions) for job in released] == [(JobStatus.PENDING, 0, 2)] * 2

    async def test_suspects_keep_their_capability_group_and_priority(self, store: Store, pool: PoolRow) -> None:
        options = {"capability": "gpu", "group": "g", "group_limit": 1, "type": "t", "max_crashes": 1}
        jobs = [(await pushed(store, pool, n, **(options | {"group_limit": 2, "priority": n})))[0] for n in range(2)]
        await store.queue.claim(claiming(pool, limit=5, capabilities=("gpu",)))
        await store.queue.release(holder(pool), "killed")

        assert [*await store.queue.claim(claiming(pool, alone=True))] == []
        assert [*await store.queue.claim(claiming(pool, alone=True, capabilities=("gpu",), types=("other",)))] == []
        got = await claimed(store, pool, alone=True, capabilities=("gpu",), types=("t",))
        assert got.job_id == jobs[1]
        assert dict(await store.jobs.demand(pool.pool_id)) == {"gpu": 1}

    async def test_requeued_suspects_are_no_suspects(self, store: Store, pool: PoolRow) -> None:
        [suspect] = await _suspects(store, pool, 1, max_crashes=1)
        assert suspect.status is JobStatus.POISONED

        await store.jobs.requeue(pool.pool_id, [suspect.job_id])

        again = await claimed(store, pool)
        assert (again.job_id, again.crashes, again.suspicions, again.must_run_alone) == (suspect.job_id, 0, 0, False)

    async def test_a_cancelled_suspect_is_given_to_nobody(self, store: Store, pool: PoolRow) -> None:
        one, _ = await _suspects(store, pool, 2)
        await store.jobs.cancel([one.job_id])

        assert (await claimed(store, pool, alone=True)).job_id != one.job_id
        assert [*await store.queue.claim(claiming(pool, W2, alone=True))] == []

    async def test_a_lease_that_ran_out_is_extended_once_so_that_its_holder_may_renew_it(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool, lease=10 * MINUTE)
        await elapse(60 * MINUTE)

        assert job.job_id not in [late.job_id for late in await store.queue.expire(EVERY)]
        assert (await store.queue.renew(holder(pool), [job.token], 10 * MINUTE)).stale == ()
        await elapse(9 * MINUTE)
        assert job.job_id not in [late.job_id for late in await store.queue.expire(EVERY)]
        settled = await store.queue.settle(holder(pool), [verdict(job)])

        done = await store.jobs.get(job.job_id)
        assert (settled.stale, done.status, done.crashes, done.attempts) == ((), JobStatus.DONE, 0, 1)

    async def test_how_long_until_a_claim_that_ran_out_can_be_taken_back(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, 1, 2, type="t", capability="gpu")
        able = claiming(pool, W2, types=("t",), capabilities=("gpu",))
        late = await claimed(store, pool, capabilities=("gpu",), lease=10 * MINUTE)
        assert await store.jobs.overdue_in(able) is None
        await elapse(11 * MINUTE)
        await claimed(store, pool, W3, capabilities=("gpu",), lease=10 * MINUTE)

        assert await store.jobs.overdue_in(able) == timedelta()
        others = [claiming(pool, W2), claiming(pool, W2, types=("u",), capabilities=("gpu",))]
        assert [await store.jobs.overdue_in(other) for other in others] == [None, None]

        await store.queue.expire(EVERY)
        left = await store.jobs.overdue_in(able)
        assert left is not None
        assert timedelta() < left <= 10 * MINUTE
        await store.queue.renew(holder(pool), [late.token], 10 * MINUTE)
        assert await store.jobs.overdue_in(able) is None

    async def test_no_lease_is_taken_back_before_it_was_extended_however_few_are_looked_at_at_once(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, 1, 2, 3)
        jobs = await store.queue.claim(claiming(pool, limit=3, lease=MINUTE))
        await elapse(2 * MINUTE)

        lost = set[JobId]()
        while not all([(await store.jobs.get(job.job_id)).lease_extended for job in jobs]) and not lost:
            lost = {job.job_id for job in await store.queue.expire(1)} & {job.job_id for job in jobs}

        assert lost == set()

    async def test_a_renewed_lease_may_be_extended_again(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool, lease=10 * MINUTE)
        for _ in range(3):
            await elapse(60 * MINUTE)
            await store.queue.expire(EVERY)
            assert (await store.queue.renew(holder(pool), [job.token], 10 * MINUTE)).stale == ()

        assert (await store.jobs.get(job.job_id)).crashes == 0

    @pytest.mark.parametrize("first", [0, 1])
    async def test_leases_of_one_worker_that_run_out_one_after_the_other_are_judged_together(
        self, store: Store, pool: PoolRow, elapse: Elapse, first: int
    ) -> None:
        await pushed(store, pool, 1, 2, max_crashes=1)
        jobs = [await claimed(store, pool, lease=lease * MINUTE) for lease in ((10, 30) if first == 0 else (30, 10))]
        for _ in range(8):
            await elapse(11 * MINUTE)
            await store.queue.expire(EVERY)

        found = [await store.jobs.get(job.job_id) for job in jobs]
        assert [(job.status, job.crashes, job.suspicions) for job in found] == [(JobStatus.PENDING, 0, 1)] * 2

    async def test_a_worker_that_renews_is_judged_later_by_what_it_runs_then(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, 1, 2, max_crashes=1)
        dropped, kept = await claimed(store, pool, lease=10 * MINUTE), await claimed(store, pool, lease=100 * MINUTE)
        for _ in range(2):
            await elapse(11 * MINUTE)
            await store.queue.expire(EVERY)
        assert (await store.jobs.get(dropped.job_id)).suspicions == 1

        await store.queue.renew(holder(pool), [kept.token], MINUTE)
        [lost] = await store.queue.release(holder(pool), "killed")

        assert (lost.status, lost.crashes, lost.suspicions) == (JobStatus.POISONED, 1, 0)

    async def test_workers_of_the_same_id_are_judged_each_by_its_own_jobs(self, store: Store, pool: PoolRow) -> None:
        others = [await store.pools.create(new_pool()) for _ in range(2)]
        for each in (pool, *others):
            await pushed(store, each, 1, max_crashes=1)
            await claimed(store, each, holder(each, W1, "i1"))

        [poisoned] = await store.queue.release(holder(pool, W1, "i1"), "killed")

        assert (poisoned.status, poisoned.crashes, poisoned.suspicions) == (JobStatus.POISONED, 1, 0)
        for each in others:
            [job] = await store.jobs.list(each.pool_id)
            assert (job.status, job.crashes, job.suspicions) == (JobStatus.CLAIMED, 0, 0)


async def _suspects(
    store: Store, pool: PoolRow, count: int, max_crashes: int = 1, losses: int = 1, **options: Any
) -> list[Job]:
    """Push ``count`` jobs with these options. Then repeat ``losses`` times: one worker claims all of these jobs and is lost."""
    ids = await pushed(store, pool, *range(count), max_crashes=max_crashes, **options)
    doomed = Holder(pool_id=pool.pool_id, worker_id=WorkerId("doomed"))
    for _ in range(losses):
        await store.queue.claim(claiming(pool, doomed, limit=count))
        await store.queue.release(doomed, "killed")
    return [await store.jobs.get(job_id) for job_id in ids]
