"""Tests of counting the ready jobs of a pool by capability and by type, by which the number of workers is decided."""

from drumbeat.core.job import RateLimit
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.store.contract.given import MINUTE, Elapse, unique
from drumbeat.store.contract.given_jobs import claimed, holder, pushed, verdict
from drumbeat.store.interface import Store


class DemandContract:
    async def test_demand_counts_ready_jobs_by_capability(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2, 3)
        await pushed(store, pool, 4, 5, capability="gpu")
        await pushed(store, pool, 6, capability="tpu", delay=MINUTE)

        assert dict(await store.jobs.demand(pool.pool_id)) == {"": 3, "gpu": 2}
        assert dict(await store.jobs.demand(pool.pool_id, most=2)) == {"": 2, "gpu": 2}

    async def test_demand_counts_of_a_group_no_more_than_it_has_room_for(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(6), group="one", group_limit=1)
        await pushed(store, pool, 6, 7, group="one", group_limit=1, type="another")
        await pushed(store, pool, *range(6), group="three", group_limit=3, capability="gpu")
        await pushed(store, pool, *range(6), group="unlimited")
        assert dict(await store.jobs.demand(pool.pool_id)) == {"": 7, "gpu": 3}

        await claimed(store, pool)
        assert dict(await store.jobs.demand(pool.pool_id)) == {"": 6, "gpu": 3}
        await claimed(store, pool, capabilities=("gpu",))
        assert dict(await store.jobs.demand(pool.pool_id)) == {"": 6, "gpu": 2}

    async def test_demand_counts_no_more_than_a_groups_rate_allows(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, *range(6), group="g", group_rate=RateLimit(count=2, per=10 * MINUTE))
        first = await claimed(store, pool)
        await store.queue.settle(holder(pool), [verdict(first)])
        assert dict(await store.jobs.demand(pool.pool_id)) == {"": 1}

        await elapse(11 * MINUTE)
        assert dict(await store.jobs.demand(pool.pool_id)) == {"": 2}

    async def test_demand_counts_what_came_due_in_a_group(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, *range(6), group="g", group_limit=2, delay=MINUTE)
        assert dict(await store.jobs.demand(pool.pool_id)) == {}

        await elapse(2 * MINUTE)
        assert dict(await store.jobs.demand(pool.pool_id)) == {"": 2}

    async def test_demand_sees_what_is_behind_many_others(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(60), capability="gpu", priority=2)
        await pushed(store, pool, *range(60), group="g", group_limit=1, priority=1)
        await pushed(store, pool, "plain", "plain")

        assert dict(await store.jobs.demand(pool.pool_id, most=3)) == {"": 3, "gpu": 3}

    async def test_demand_counts_jobs_of_the_types_asked_for(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, *range(15), type='odd, "type"')
        await pushed(store, pool, 1, 2, type="handled", capability="gpu")
        await pushed(store, pool, *range(30), type="other", group="g", group_limit=40)
        await pushed(store, pool, *range(3), type="handled", group="g", group_limit=40)
        await pushed(store, pool, 1, type="late", delay=MINUTE)
        await pushed(store, pool, 1)

        async def demand(*types: str) -> dict[str, int]:
            return dict(await store.jobs.demand(pool.pool_id, 2, types))

        assert (await demand("handled"), await demand('odd, "type"'), await demand("")) == (
            {"": 2, "gpu": 2},
            {"": 2},
            {"": 1},
        )
        assert (await demand("late"), await demand("none"), await demand()) == ({}, {}, {"": 2, "gpu": 2})
        await elapse(2 * MINUTE)
        assert await demand("late", "none") == {"": 1}

    async def test_ready_jobs_are_counted_by_type(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, *range(5), type="a")
        await pushed(store, pool, 1, 2, group="g", group_limit=1, capability="gpu", type="b")
        await pushed(store, pool, 3, type="late", delay=MINUTE)
        await pushed(store, pool, 4, priority=-1)
        assert dict(await store.jobs.by_type(pool.pool_id)) == {"a": 5, "b": 2, "": 1}

        await claimed(store, pool)
        await elapse(2 * MINUTE)
        assert dict(await store.jobs.by_type(pool.pool_id)) == {"a": 4, "b": 2, "": 1, "late": 1}
        assert (await store.jobs.by_type(pool.pool_id, most=3))["a"] == 3
        assert dict(await store.jobs.by_type(PoolId(unique("nowhere")))) == {}
