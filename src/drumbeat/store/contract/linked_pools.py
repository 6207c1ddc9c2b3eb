"""Tests of deleting a pool while jobs of other pools wait for its jobs."""

import pytest

from drumbeat.core.errors import NotFound, Refused
from drumbeat.core.job import IfFailed
from drumbeat.core.pool import PoolRow
from drumbeat.store.contract.given import Given, new_pool
from drumbeat.store.contract.given_flows import ended, linked, poisoned, statuses
from drumbeat.store.contract.given_jobs import pushed
from drumbeat.store.interface import Store


class LinkedPoolsContract(Given):
    """Tests that a pool cannot be deleted while an unfinished job of another pool has a parent in this pool."""

    @pytest.mark.parametrize("parent_ends", ["not", "done", "poisoned", "cancelled"])
    async def test_a_pool_is_kept_while_a_job_of_another_pool_needs_one_of_its_jobs(
        self, store: Store, pool: PoolRow, parent_ends: str
    ) -> None:
        other = await store.pools.create(new_pool())
        [parent] = await pushed(store, pool, 1)
        [second] = await pushed(store, other, 2)
        child = await linked(store, other, parent, second)
        await pushed(store, pool, "plain")
        if parent_ends == "done":
            await ended(store, pool)
        elif parent_ends == "poisoned":
            await poisoned(store, pool)
        elif parent_ends == "cancelled":
            await store.jobs.cancel([parent])
        before = await statuses(store, parent, child)

        with pytest.raises(Refused, match=f"job '{child}' of pool '{other.pool_id}' has not ended"):
            await store.pools.delete(pool.pool_id)

        assert await statuses(store, parent, child) == before
        assert await store.pools.find(pool.pool_id) is not None
        assert (await store.jobs.counts(pool.pool_id)).pending == (2 if parent_ends == "not" else 1)
        found = await store.jobs.child_elsewhere(pool.pool_id)
        assert found is not None
        assert found.job_id == child

    async def test_a_pool_can_be_deleted_when_the_children_in_other_pools_have_ended(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, other, parent, if_failed=IfFailed.SKIP)
        await store.jobs.cancel([parent])
        assert await store.jobs.child_elsewhere(pool.pool_id) is None

        await store.pools.delete(pool.pool_id)

        assert await store.pools.find(pool.pool_id) is None
        assert await statuses(store, child) == ["cancelled"]
        with pytest.raises(NotFound):
            await store.jobs.get(parent)

    async def test_a_pending_child_in_another_pool_keeps_the_pool_until_it_has_run(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, other, parent)
        await ended(store, pool)

        with pytest.raises(Refused, match=child):
            await store.pools.delete(pool.pool_id)
        await ended(store, other)
        await store.pools.delete(pool.pool_id)

        assert await statuses(store, child) == ["done"]

    async def test_children_in_the_same_pool_and_parents_in_another_do_not_keep_a_pool(
        self, store: Store, pool: PoolRow
    ) -> None:
        other = await store.pools.create(new_pool())
        [parent] = await pushed(store, other, 1)
        child = await linked(store, pool, parent)
        grandchild = await linked(store, pool, child)
        assert await store.jobs.child_elsewhere(pool.pool_id) is None

        await store.pools.delete(pool.pool_id)

        assert await statuses(store, parent) == ["pending"]
        assert await store.jobs.children(parent) == []
        for gone in (child, grandchild):
            with pytest.raises(NotFound):
                await store.jobs.get(gone)
