"""Tests of claiming and counting jobs of every type but some, such as paused types."""

from datetime import timedelta
from typing import Any

from drumbeat.core.job import RateLimit
from drumbeat.core.pool import PoolRow
from drumbeat.store.contract.given import MINUTE, SECOND, W2, Elapse, Given
from drumbeat.store.contract.given_jobs import claimed, claiming, holder, pushed, verdict
from drumbeat.store.interface import Due, Store

ODD = 'odd, "type"'


class ExcludedTypesContract(Given):
    """Tests of ``without``, in claims and in counts: which job types to leave out."""

    async def test_a_claim_leaves_out_excluded_types(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2, type="mail", priority=9)
        await pushed(store, pool, 3, type=ODD)
        await pushed(store, pool, 4, 5)
        await pushed(store, pool, 6, type="sms")

        async def payloads(limit: int = 9, **options: Any) -> list[Any]:
            return [job.payload for job in await store.queue.claim(claiming(pool, limit=limit, **options))]

        assert await payloads(1, without=("mail", ODD)) == [4]
        assert await payloads(without=("mail", "", "sms")) == [3]
        assert await payloads(types=("mail", "sms"), without=("mail",)) == [6]
        assert await payloads(types=("mail",), without=("mail",)) == []
        assert await payloads(without=("mail", ODD)) == [5]
        assert await payloads() == [1, 2]

    async def test_jobs_of_a_limited_group_are_left_out_by_their_type(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, 1, type="mail", group="g", group_limit=1)
        await pushed(store, pool, 2, 3, type="sms", group="g", group_limit=1)
        await pushed(store, pool, 4, type="mail", delay=MINUTE)
        await elapse(2 * MINUTE)

        assert (await claimed(store, pool, limit=9, without=("mail",))).payload == 2
        assert await store.queue.claim(claiming(pool, W2, limit=9, without=("mail",))) == []
        assert (await claimed(store, pool, W2, limit=9)).payload == 4

    async def test_a_worker_that_settles_claims_no_job_of_an_excluded_type(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, type="sms")
        await pushed(store, pool, 2, type="mail")
        await pushed(store, pool, 3, type="new")
        job = await claimed(store, pool)

        settled = await store.queue.settle(holder(pool), [verdict(job)], claiming(pool, limit=9, without=("mail",)))

        assert ([*settled.stale], [each.payload for each in settled.claimed]) == ([], [3])

    async def test_jobs_of_excluded_types_hide_no_others_from_a_count(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(30), type="mail", priority=9)
        await pushed(store, pool, 1, type=ODD)
        await pushed(store, pool, 2, capability="gpu")
        assert set(await store.jobs.by_type(pool.pool_id, most=3)) <= {"mail", ODD, ""}

        assert dict(await store.jobs.by_type(pool.pool_id, most=3, without=["mail"])) == {ODD: 1, "": 1}
        assert dict(await store.jobs.by_type(pool.pool_id, without=["mail", ""])) == {ODD: 1}
        assert dict(await store.jobs.demand(pool.pool_id, 3, without=["mail"])) == {"": 1, "gpu": 1}
        assert dict(await store.jobs.demand(pool.pool_id, 3, without=["mail", ODD])) == {"gpu": 1}
        assert dict(await store.jobs.demand(pool.pool_id, 3, ["mail", ODD], ["mail"])) == {"": 1}
        assert dict(await store.jobs.demand(pool.pool_id, 3, without=["mail", ODD, ""])) == {}

    async def test_jobs_of_excluded_types_are_not_counted_for_a_group(self, store: Store, pool: PoolRow) -> None:
        rate = RateLimit(count=2, per=MINUTE)
        await pushed(store, pool, 1, 2, 3, type="mail", group="g", group_rate=rate, capability="gpu")
        await pushed(store, pool, 4, 5, 6, type="sms", group="g", group_rate=rate)

        assert dict(await store.jobs.demand(pool.pool_id, without=["mail"])) == {"": 2}
        assert dict(await store.jobs.demand(pool.pool_id, without=["sms"])) == {"gpu": 2}

    async def test_delayed_jobs_of_excluded_types_are_left_out(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, 1, type="mail", delay=SECOND)
        await pushed(store, pool, 2, type="sms", delay=MINUTE)

        async def due() -> Due:
            return await store.jobs.due(claiming(pool, without=("mail",)))

        found = await due()
        assert (found.is_ready, found.next_in is not None and found.next_in > 30 * SECOND) == (False, True)
        await elapse(2 * SECOND)
        found = await due()
        assert (found.is_ready, found.next_in is not None and found.next_in > 30 * SECOND) == (False, True)
        assert dict(await store.jobs.by_type(pool.pool_id, without=["mail"])) == {}
        assert dict(await store.jobs.demand(pool.pool_id, without=["mail"])) == {}
        await elapse(2 * MINUTE)
        assert await due() == Due(is_ready=True, next_in=None)
        assert dict(await store.jobs.by_type(pool.pool_id, without=["mail"])) == {"sms": 1}
        assert dict(await store.jobs.demand(pool.pool_id, without=["mail"])) == {"": 1}

    async def test_an_expired_claim_of_an_excluded_type_is_nothing_to_wait_for(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, 1, type="mail")
        await claimed(store, pool)
        await elapse(2 * MINUTE)

        assert await store.jobs.overdue_in(claiming(pool, W2)) == timedelta()
        assert await store.jobs.overdue_in(claiming(pool, W2, without=("mail",))) is None
