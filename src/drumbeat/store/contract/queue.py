"""What every store must do with jobs on the move."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.errors import AlreadyExists, Fenced, InvalidInput, NotFound
from drumbeat.core.job import Backoff, Job, JobId, JobStatus, NewJob, Outcome, RateLimit, Token, Verdict
from drumbeat.core.lease import Lease
from drumbeat.core.pool import Pool, PoolId
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.contract.given import (
    AWKWARD,
    MINUTE,
    SECOND,
    W1,
    W2,
    Elapse,
    Given,
    active,
    lost,
    moved,
    new_pool,
    outdated,
    unique,
)
from drumbeat.store.interface import Claiming, Store


def claiming(pool: Pool, worker_id: WorkerId = W1, limit: int = 1, lease: timedelta = MINUTE, **said: Any) -> Claiming:
    return Claiming(pool_id=pool.pool_id, worker_id=worker_id, limit=limit, lease=lease, **said)


async def pushed(store: Store, pool: Pool, *payloads: Any, **said: Any) -> list[JobId]:
    """Jobs of these payloads, alike otherwise."""
    return [*await store.queue.push(pool.pool_id, [NewJob(payload=payload, **said) for payload in payloads])]


async def claimed(store: Store, pool: Pool, worker_id: WorkerId = W1, **said: Any) -> Job:
    """The one job that a claim gives."""
    [job] = await store.queue.claim(claiming(pool, worker_id, **said))
    return job


def verdict(job: Job, outcome: Outcome = Outcome.DONE, **said: Any) -> Verdict:
    return Verdict(token=job.token, outcome=outcome, **said)


async def failed(store: Store, pool: Pool, **said: Any) -> Job:
    """The next job after its worker claimed it and said that it failed."""
    job = await claimed(store, pool)
    await store.queue.settle(W1, [verdict(job, Outcome.FAILED, error="no luck", **said)])
    return await store.jobs.get(job.job_id)


class QueueContract(Given):
    async def test_a_pushed_job_is_claimed_with_its_payload(self, store: Store, pool: Pool) -> None:
        [job_id] = await pushed(store, pool, dict(AWKWARD), type="summary")
        before = await store.now()

        job = await claimed(store, pool)

        assert (job.job_id, job.pool_id, job.payload, job.type) == (job_id, pool.pool_id, AWKWARD, "summary")
        assert (job.status, job.attempts, job.lease_owner, job.lease_epoch) == (JobStatus.CLAIMED, 1, W1, 1)
        assert job.lease_until is not None
        assert before + MINUTE <= job.lease_until <= await store.now() + MINUTE
        assert await store.jobs.get(job_id) == job

    @pytest.mark.parametrize("payload", [None, 0, "", "text", [], [1, None], {}, 1.5, True])
    async def test_any_json_is_a_payload(self, store: Store, pool: Pool, payload: Any) -> None:
        await pushed(store, pool, payload)

        assert (await claimed(store, pool)).payload == payload

    async def test_what_a_job_was_given_comes_with_its_claim(self, store: Store, pool: Pool) -> None:
        given: dict[str, Any] = {
            "type": "t",
            "priority": -7,
            "max_attempts": 9,
            "max_crashes": 8,
            "backoff": Backoff(first=3 * SECOND, factor=1.5, most=MINUTE, jitter=0.25),
            "timeout": timedelta(milliseconds=1500),
            "unique_key": "only",
            "group": "g",
            "group_limit": 2,
            "group_rate": RateLimit(count=5, per=MINUTE),
            "capability": "gpu",
        }
        await store.queue.push(pool.pool_id, [NewJob(payload={}, **given)])

        job = await claimed(store, pool, capabilities=("gpu",))

        assert {name: getattr(job, name) for name in given} == given

    async def test_a_payload_that_cannot_be_json_is_refused_with_all_pushed_beside_it(self, store: Store, pool: Pool) -> None:
        with pytest.raises(InvalidInput, match="payload"):
            await store.queue.push(pool.pool_id, [NewJob(payload=1), NewJob(payload=object())])

        assert await store.queue.claim(claiming(pool)) == []

    async def test_a_pool_that_is_not_there_is_said(self, store: Store) -> None:
        nowhere = new_pool()

        with pytest.raises(NotFound, match=nowhere.pool_id):
            await store.queue.push(nowhere.pool_id, [NewJob(payload=1)])
        with pytest.raises(NotFound, match=nowhere.pool_id):
            await store.queue.claim(claiming(nowhere))
        with pytest.raises(NotFound, match=nowhere.pool_id):
            await store.queue.settle(W1, [], claiming(nowhere))
        with pytest.raises(NotFound, match=nowhere.pool_id):
            await store.queue.wait(PoolId(nowhere.pool_id), timedelta())

    async def test_an_empty_push_is_nothing(self, store: Store, pool: Pool) -> None:
        assert [*await store.queue.push(pool.pool_id, [])] == []

    async def test_nothing_is_claimed_from_an_empty_pool(self, store: Store, pool: Pool) -> None:
        await pushed(store, await store.pools.create(new_pool()), "another pool's")

        assert await store.queue.claim(claiming(pool)) == []

    async def test_jobs_are_claimed_in_the_order_of_priority_then_of_pushing(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, "c", "d")
        await pushed(store, pool, "a", "b", priority=5)
        await pushed(store, pool, "e", priority=-1)

        first = await store.queue.claim(claiming(pool, limit=3))
        rest = await store.queue.claim(claiming(pool, limit=10))

        assert [job.payload for job in (*first, *rest)] == ["a", "b", "c", "d", "e"]

    async def test_many_are_pushed_and_named_in_order(self, store: Store, pool: Pool) -> None:
        ids = await pushed(store, pool, *range(450))

        assert len(set(ids)) == 450
        assert [(await store.jobs.get(ids[n])).payload for n in (0, 222, 449)] == [0, 222, 449]
        assert [job.payload for job in await store.queue.claim(claiming(pool, limit=450))] == [*range(450)]

    async def test_ids_the_store_gives_sort_as_the_jobs_were_pushed(self, store: Store, pool: Pool) -> None:
        ids = [*await pushed(store, pool, *range(12)), *await pushed(store, pool, *range(3))]

        assert sorted(ids) == ids

    async def test_no_two_workers_hold_the_same_job(self, store: Store, pool: Pool) -> None:
        ids = await pushed(store, pool, *range(20))

        claims = await asyncio.gather(*(store.queue.claim(claiming(pool, WorkerId(f"w{n}"))) for n in range(40)))

        assert sorted(job.job_id for claim in claims for job in claim) == sorted(ids)

    async def test_a_job_pushed_twice_under_its_own_id_is_there_once(self, store: Store, pool: Pool) -> None:
        name = JobId(unique("job"))

        ids = await store.queue.push(pool.pool_id, [NewJob(payload=n, job_id=name) for n in (1, 2)])
        again = await pushed(store, pool, 3, job_id=name)

        assert [*ids, *again] == [name, name, name]
        assert [job.payload for job in await store.queue.claim(claiming(pool, limit=9))] == [1]

    async def test_a_job_of_its_own_id_is_not_done_again(self, store: Store, pool: Pool) -> None:
        name = JobId(unique("job"))
        await pushed(store, pool, 1, job_id=name)
        await store.queue.settle(W1, [verdict(await claimed(store, pool))])

        assert await pushed(store, pool, 2, job_id=name) == [name]
        assert await store.queue.claim(claiming(pool)) == []

    async def test_an_id_of_another_pools_job_is_refused(self, store: Store, pool: Pool) -> None:
        name = JobId(unique("job"))
        await pushed(store, await store.pools.create(new_pool()), 1, job_id=name)

        with pytest.raises(AlreadyExists, match=name):
            await store.queue.push(pool.pool_id, [NewJob(payload=0), NewJob(payload=2, job_id=name)])

        assert await store.queue.claim(claiming(pool)) == []

    @pytest.mark.parametrize("name", ["j000000000001", "j123456789012345678", ""])
    async def test_an_id_that_looks_like_the_stores_own_is_refused(self, store: Store, pool: Pool, name: str) -> None:
        with pytest.raises(InvalidInput, match="id"):
            await pushed(store, pool, 1, job_id=JobId(name))

    async def test_a_unique_key_is_one_job_while_it_is_unfinished(self, store: Store, pool: Pool) -> None:
        ids = await pushed(store, pool, 1, 2, unique_key="k")
        job = await claimed(store, pool)
        while_claimed = await pushed(store, pool, 3, unique_key="k")
        await store.queue.settle(W1, [verdict(job)])

        afterwards = await pushed(store, pool, 4, unique_key="k")

        assert [*ids, *while_claimed] == [job.job_id] * 3
        assert afterwards != [job.job_id]
        assert (await claimed(store, pool)).payload == 4

    async def test_keys_are_each_pools_own(self, store: Store, pool: Pool) -> None:
        other = await store.pools.create(new_pool())

        assert await pushed(store, pool, 1, unique_key="k") != await pushed(store, other, 1, unique_key="k")

    async def test_keyed_and_plain_jobs_are_named_in_the_order_they_were_given(self, store: Store, pool: Pool) -> None:
        name = JobId(unique("job"))
        [held] = await pushed(store, pool, "held", unique_key="k")

        ids = await store.queue.push(
            pool.pool_id,
            [
                NewJob(payload="plain 1"),
                NewJob(payload="again", unique_key="k"),
                NewJob(payload="named", job_id=name),
                NewJob(payload="plain 2"),
                NewJob(payload="other", unique_key="o"),
            ],
        )

        assert (ids[1], ids[2]) == (held, name)
        assert [(await store.jobs.get(job_id)).payload for job_id in ids] == ["plain 1", "held", "named", "plain 2", "other"]

    async def test_of_eight_pushes_of_one_key_at_once_one_is_kept(self, store: Store, pool: Pool) -> None:
        ids = await asyncio.gather(*(pushed(store, pool, n, unique_key="k") for n in range(8)))

        assert len({job_id for [job_id] in ids}) == 1
        assert len(await store.queue.claim(claiming(pool, limit=9))) == 1

    async def test_a_delayed_job_is_claimed_when_its_time_has_come_and_not_before(
        self, store: Store, pool: Pool, elapse: Elapse
    ) -> None:
        await pushed(store, pool, "later", delay=10 * MINUTE, priority=9)
        await pushed(store, pool, "at", run_at=await store.now() + 10 * MINUTE)
        await pushed(store, pool, "now", run_at=await store.now() - MINUTE)

        await elapse(9 * MINUTE)
        early = await store.queue.claim(claiming(pool, limit=9))
        await elapse(2 * MINUTE)
        late = await store.queue.claim(claiming(pool, limit=9))

        assert [job.payload for job in early] == ["now"]
        assert [job.payload for job in late] == ["later", "at"]

    async def test_a_job_that_needs_a_capability_waits_for_a_worker_that_has_it(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, "special", capability="gpu", priority=1)
        await pushed(store, pool, "plain")

        assert (await claimed(store, pool, limit=5)).payload == "plain"
        assert await store.queue.claim(claiming(pool, limit=5, capabilities=("cpu",))) == []
        assert (await claimed(store, pool, capabilities=("cpu", "gpu"))).payload == "special"

    async def test_a_claim_may_ask_for_some_types_only(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, "a", type="x")
        await pushed(store, pool, "b", type="y")
        await pushed(store, pool, "c", type="z")

        jobs = await store.queue.claim(claiming(pool, limit=5, types=("y", "z")))

        assert [job.payload for job in jobs] == ["b", "c"]

    async def test_a_group_is_never_held_by_more_than_its_limit(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1, 2, 3, 4, group="g", group_limit=2)
        await pushed(store, pool, "other", group="h", group_limit=1)
        await pushed(store, pool, "free")

        first = await store.queue.claim(claiming(pool, limit=9))
        assert [job.payload for job in first] == [1, 2, "other", "free"]
        assert await store.queue.claim(claiming(pool, limit=9)) == []

        settled = await store.queue.settle(W1, [verdict(first[0])], claiming(pool, limit=9))
        assert [job.payload for job in settled.claimed] == [3]

    async def test_a_full_group_does_not_hide_those_behind_it(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, *range(300), group="g", group_limit=1)
        await pushed(store, pool, "behind")
        await claimed(store, pool)

        assert (await claimed(store, pool)).payload == "behind"

    async def test_a_group_limit_holds_whoever_claims_at_once(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, *range(30), group="g", group_limit=3)

        claims = await asyncio.gather(*(store.queue.claim(claiming(pool, WorkerId(f"w{n}"), limit=2)) for n in range(12)))

        assert sum(len(claim) for claim in claims) == 3

    async def test_a_group_is_claimed_no_faster_than_its_rate(self, store: Store, pool: Pool, elapse: Elapse) -> None:
        await pushed(store, pool, 1, 2, 3, 4, 5, group="g", group_rate=RateLimit(count=2, per=10 * MINUTE))

        first = await store.queue.claim(claiming(pool, limit=9))
        await store.queue.settle(W1, [verdict(job) for job in first])
        at_once = await store.queue.claim(claiming(pool, limit=9))
        await elapse(11 * MINUTE)
        later = await store.queue.claim(claiming(pool, limit=9))

        assert [[job.payload for job in jobs] for jobs in (first, at_once, later)] == [[1, 2], [], [3, 4]]

    async def test_a_rate_counts_claims_of_one_job_each_time(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1, group="g", group_rate=RateLimit(count=2, per=10 * MINUTE), max_attempts=9)
        for _ in range(2):
            await failed(store, pool)

        assert await store.queue.claim(claiming(pool)) == []

    async def test_nothing_is_claimed_from_a_paused_pool(self, store: Store, pool: Pool, elapse: Elapse) -> None:
        await pushed(store, pool, 1)
        await store.pools.save(replace(pool, paused_until=await store.now() + 10 * MINUTE))
        assert await store.queue.claim(claiming(pool)) == []
        await elapse(11 * MINUTE)

        assert (await claimed(store, pool)).payload == 1

    async def test_a_draining_or_ended_worker_is_given_nothing(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1)
        await moved(store, await active(store, pool), WorkerStatus.DRAINING)
        await lost(store, pool, W2)

        assert await store.queue.claim(claiming(pool, W1)) == []
        assert await store.queue.claim(claiming(pool, W2)) == []
        assert await store.queue.claim(claiming(pool, WorkerId("without a row")))

    async def test_an_active_worker_is_given_jobs(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1)
        await active(store, pool)

        assert await claimed(store, pool, W1)

    async def test_done_keeps_the_result(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        settled = await store.queue.settle(W1, [verdict(job, result=dict(AWKWARD))])

        done = await store.jobs.get(job.job_id)
        assert settled.stale == ()
        assert (done.status, done.result, done.attempts, done.failures) == (JobStatus.DONE, AWKWARD, 1, 0)
        assert (done.lease_owner, done.lease_until) == (W1, None)
        assert done.finished_at is not None

    async def test_settling_claims_in_the_same_breath(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, *range(5))
        first = await store.queue.claim(claiming(pool, limit=2))

        settled = await store.queue.settle(W1, [verdict(job) for job in first], claiming(pool, limit=2))

        assert [job.payload for job in settled.claimed] == [2, 3]
        assert {(await store.jobs.get(job.job_id)).status for job in first} == {JobStatus.DONE}

    async def test_settling_nothing_is_a_claim(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1)

        assert [job.payload for job in (await store.queue.settle(W1, [], claiming(pool))).claimed] == [1]

    async def test_a_failure_is_tried_again_after_its_wait(self, store: Store, pool: Pool, elapse: Elapse) -> None:
        await pushed(store, pool, 1)
        job = await failed(store, pool, retry_in=10 * MINUTE)

        assert (job.status, job.failures, job.last_error, job.lease_owner) == (JobStatus.PENDING, 1, "no luck", None)
        assert await store.queue.claim(claiming(pool)) == []
        await elapse(11 * MINUTE)
        again = await claimed(store, pool)
        assert (again.attempts, again.lease_epoch) == (2, 2)

    async def test_a_job_is_poisoned_when_its_failures_reach_its_limit(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1, max_attempts=2)

        assert (await failed(store, pool)).status is JobStatus.PENDING
        job = await claimed(store, pool)
        await store.queue.settle(W1, [verdict(job, Outcome.TIMED_OUT, error="too long")])

        poisoned = await store.jobs.get(job.job_id)
        assert (poisoned.status, poisoned.failures, poisoned.last_error) == (JobStatus.POISONED, 2, "too long")
        assert await store.queue.claim(claiming(pool)) == []

    async def test_a_fatal_failure_poisons_at_once(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1, max_attempts=5)

        assert (await failed(store, pool, fatal=True)).status is JobStatus.POISONED

    async def test_a_released_job_costs_nothing(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        await store.queue.settle(W1, [verdict(job, Outcome.RELEASED)])

        again = await claimed(store, pool, W2)
        assert (again.attempts, again.failures, again.crashes, again.lease_epoch) == (1, 0, 0, 2)

    async def test_a_cancelled_verdict_ends_the_job(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        await store.queue.settle(W1, [verdict(job, Outcome.CANCELLED)])

        assert (await store.jobs.get(job.job_id)).status is JobStatus.CANCELLED

    async def test_every_outcome_may_come_in_one_settlement(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, *range(5))
        jobs = await store.queue.claim(claiming(pool, limit=5))
        said = [Outcome.DONE, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.RELEASED, Outcome.CANCELLED]

        settled = await store.queue.settle(W1, [verdict(job, outcome) for job, outcome in zip(jobs, said, strict=True)])

        now = [await store.jobs.get(job.job_id) for job in jobs]
        assert settled.stale == ()
        assert [job.status for job in now] == ["done", "pending", "pending", "pending", "cancelled"]
        assert [job.failures for job in now] == [0, 1, 1, 0, 0]

    @pytest.mark.parametrize("outcome", [*Outcome])
    async def test_the_word_of_a_former_holder_is_stale_and_changes_nothing(
        self, store: Store, pool: Pool, outcome: Outcome
    ) -> None:
        await pushed(store, pool, 1)
        late = await claimed(store, pool, W1)
        await store.queue.release(W1, "silent")
        held = await claimed(store, pool, W2)

        settled = await store.queue.settle(W1, [verdict(late, outcome, result="late")])

        assert settled.stale == (late.token,)
        assert await store.jobs.get(held.job_id) == held

    async def test_a_token_is_good_for_its_own_worker_and_epoch_only(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        wrong = [
            (W2, job.token),
            (W1, Token(job_id=job.job_id, epoch=2)),
            (W1, Token(job_id=JobId("j000000000000"), epoch=1)),
            (W1, Token(job_id=JobId(unique("none")), epoch=1)),
        ]

        for worker_id, token in wrong:
            settled = await store.queue.settle(worker_id, [Verdict(token=token, outcome=Outcome.DONE)])
            assert settled.stale == (token,)

        assert await store.jobs.get(job.job_id) == job

    async def test_a_second_word_on_the_same_claim_is_stale(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        settled = await store.queue.settle(W1, [verdict(job, result=1), verdict(job, result=2)])
        again = await store.queue.settle(W1, [verdict(job, Outcome.FAILED)])

        assert (settled.stale, again.stale) == ((job.token,), (job.token,))
        assert (await store.jobs.get(job.job_id)).result == 1

    async def test_stale_and_good_verdicts_are_told_apart(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1, 2, 3)
        jobs = await store.queue.claim(claiming(pool, limit=3))
        await store.queue.settle(W1, [verdict(jobs[1])])

        settled = await store.queue.settle(W1, [verdict(job) for job in jobs])

        assert settled.stale == (jobs[1].token,)

    async def test_renewing_keeps_a_claim_for_so_long_from_now(self, store: Store, pool: Pool, elapse: Elapse) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool, lease=10 * MINUTE)
        await elapse(9 * MINUTE)

        renewed = await store.queue.renew(W1, [job.token], 10 * MINUTE)
        await elapse(9 * MINUTE)

        assert (renewed.stale, renewed.cancelled) == ((), ())
        assert job.job_id not in [late.job_id for late in await store.queue.expire()]

    async def test_renewing_tells_what_is_gone_and_what_is_to_be_cancelled(self, store: Store, pool: Pool) -> None:
        await pushed(store, pool, 1, 2, 3)
        kept, gone, unwanted = await store.queue.claim(claiming(pool, limit=3))
        await store.queue.settle(W1, [verdict(gone)])
        await store.jobs.cancel([unwanted.job_id])

        renewed = await store.queue.renew(W1, [job.token for job in (kept, gone, unwanted)], MINUTE)

        assert (renewed.stale, renewed.cancelled) == ((gone.token,), (unwanted.token,))

    async def test_a_claim_of_a_job_whose_lease_ran_out_is_stale_once_it_was_taken(
        self, store: Store, pool: Pool, elapse: Elapse
    ) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool, lease=MINUTE)
        await elapse(2 * MINUTE)

        expired = [late for late in await store.queue.expire() if late.pool_id == pool.pool_id]

        assert [(late.job_id, late.status, late.crashes) for late in expired] == [(job.job_id, JobStatus.PENDING, 1)]
        assert (await store.queue.renew(W1, [job.token], MINUTE)).stale == (job.token,)

    async def test_releasing_takes_back_what_a_worker_held_in_every_pool(self, store: Store, pool: Pool) -> None:
        name, other = WorkerId(unique("w")), await store.pools.create(new_pool())
        for each in (pool, other):
            await pushed(store, each, 1, 2)
        taken = [await claimed(store, pool, name), await claimed(store, other, name)]
        kept = await claimed(store, pool, W2)

        released = await store.queue.release(name, "silent")

        assert {job.job_id for job in released} == {job.job_id for job in taken}
        assert {(job.status, job.crashes, job.failures, job.last_error) for job in released} == {("pending", 1, 0, "silent")}
        assert (await store.jobs.get(kept.job_id)).lease_owner == W2
        assert [*await store.queue.release(name, "silent")] == []

    async def test_two_releases_at_once_count_one_crash(self, store: Store, pool: Pool) -> None:
        name = WorkerId(unique("w"))
        await pushed(store, pool, 1)
        job = await claimed(store, pool, name)

        released = await asyncio.gather(*(store.queue.release(name, "silent") for _ in range(4)))

        assert sum(len(jobs) for jobs in released) == 1
        assert (await store.jobs.get(job.job_id)).crashes == 1

    async def test_a_job_that_takes_its_workers_with_it_is_poisoned(self, store: Store, pool: Pool) -> None:
        name = WorkerId(unique("w"))
        await pushed(store, pool, 1, max_crashes=2, max_attempts=1)

        await claimed(store, pool, name)
        [first] = await store.queue.release(name, "killed")
        await claimed(store, pool, name)
        [second] = await store.queue.release(name, "killed")

        assert (first.status, second.status) == (JobStatus.PENDING, JobStatus.POISONED)
        assert (second.crashes, second.failures, second.attempts) == (2, 0, 2)

    async def test_releasing_under_a_lease_that_was_taken_over_changes_nothing(
        self, store: Store, pool: Pool, lease: Lease
    ) -> None:
        name = WorkerId(unique("w"))
        await pushed(store, pool, 1)
        job = await claimed(store, pool, name)

        with pytest.raises(Fenced):
            await store.queue.release(name, "silent", fence=await outdated(store, lease))

        assert await store.jobs.get(job.job_id) == job

    async def test_expiring_takes_no_more_than_it_is_asked_to(self, store: Store, pool: Pool, elapse: Elapse) -> None:
        await pushed(store, pool, 1, 2, 3)
        await store.queue.claim(claiming(pool, limit=3, lease=MINUTE))
        await elapse(2 * MINUTE)

        expired = []
        while some := await store.queue.expire(2):
            assert len(some) <= 2
            expired += [job.payload for job in some if job.pool_id == pool.pool_id]

        assert sorted(expired) == [1, 2, 3]

    async def test_whoever_waits_hears_of_a_push(self, store: Store, pool: Pool) -> None:
        await store.queue.claim(claiming(pool))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(store.queue.wait(pool.pool_id, timedelta(seconds=20)))
            await asyncio.sleep(0.05)
            await pushed(store, pool, 1)

        assert waiting.result()

    async def test_a_push_between_a_claim_in_vain_and_the_wait_is_heard(self, store: Store, pool: Pool) -> None:
        await store.queue.claim(claiming(pool))
        await pushed(store, pool, 1)

        assert await store.queue.wait(pool.pool_id, timedelta(seconds=20))

    async def test_a_wait_ends_though_nothing_comes(self, store: Store, pool: Pool) -> None:
        await store.queue.claim(claiming(pool))

        assert not await store.queue.wait(pool.pool_id, timedelta())
