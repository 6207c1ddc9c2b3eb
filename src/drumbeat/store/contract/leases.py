"""Tests of leases: locks that expire unless their owner renews them."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from drumbeat.core.errors import Fenced
from drumbeat.core.event import start
from drumbeat.core.lease import Fence, Lease
from drumbeat.core.pool import PoolRow
from drumbeat.store.contract.given import MINUTE, Elapse, Given, event_types, outdated, taken, unique
from drumbeat.store.interface import Store


class LeasesContract(Given):
    async def test_a_lease_nobody_holds_is_taken_under_epoch_one(self, store: Store) -> None:
        name = unique("lease")
        before = await store.now()

        lease = await taken(store, name, "a", MINUTE)

        assert (lease.name, lease.owner, lease.epoch) == (name, "a", 1)
        assert before + MINUTE <= lease.expires_at <= await store.now() + MINUTE

    @pytest.mark.parametrize("owner", ["a", "b"], ids=["by its holder", "by another"])
    async def test_a_lease_that_is_held_is_not_taken(self, store: Store, lease: Lease, owner: str) -> None:
        assert await store.leases.acquire(lease.name, owner, MINUTE) is None
        assert await store.leases.find(lease.name) == lease

    async def test_of_eight_that_want_a_lease_at_once_one_gets_it(self, store: Store) -> None:
        name = unique("lease")

        answers = await asyncio.gather(*(store.leases.acquire(name, f"owner-{n}", MINUTE) for n in range(8)))

        [got] = [lease for lease in answers if lease]
        assert await store.leases.find(name) == got

    async def test_of_eight_that_want_a_lease_that_ran_out_one_gets_it(self, store: Store, elapse: Elapse) -> None:
        name = unique("lease")
        await taken(store, name, ttl=MINUTE)
        await elapse(2 * MINUTE)

        answers = await asyncio.gather(*(store.leases.acquire(name, f"owner-{n}", MINUTE) for n in range(8)))

        assert [lease.epoch for lease in answers if lease] == [2]

    async def test_a_lease_is_free_once_it_has_run_out_and_not_before(self, store: Store, elapse: Elapse) -> None:
        name = unique("lease")
        await taken(store, name, "a", 10 * MINUTE)

        await elapse(9 * MINUTE)
        assert await store.leases.acquire(name, "b", MINUTE) is None

        await elapse(2 * MINUTE)
        lease = await taken(store, name, "b")
        assert (lease.owner, lease.epoch) == ("b", 2)

    async def test_a_lease_shows_when_it_expires(self, store: Store, lease: Lease, elapse: Elapse) -> None:
        """The time must be exact, so that another controller can take over from a dead controller at that moment."""
        found = await store.leases.find(lease.name)
        assert found is not None
        left = found.expires_at - await store.now()

        await elapse(left - MINUTE)
        assert await store.leases.acquire(lease.name, "b", MINUTE) is None
        await elapse(MINUTE)

        assert (await taken(store, lease.name, "b", MINUTE)).owner == "b"

    async def test_renewing_keeps_a_lease_for_so_long_from_now(self, store: Store, lease: Lease) -> None:
        before = await store.now()

        renewed = await store.leases.renew(lease, timedelta(hours=2))

        assert (renewed.owner, renewed.epoch) == (lease.owner, lease.epoch)
        assert before <= renewed.expires_at - timedelta(hours=2) <= await store.now()
        assert await store.leases.find(lease.name) == renewed

    async def test_a_renewed_lease_outlives_its_first_term(self, store: Store, elapse: Elapse) -> None:
        lease = await taken(store, unique("lease"), ttl=10 * MINUTE)
        await elapse(9 * MINUTE)
        await store.leases.renew(lease, 10 * MINUTE)
        await elapse(9 * MINUTE)

        assert await store.leases.acquire(lease.name, "b", MINUTE) is None

    async def test_a_lease_that_ran_out_is_renewed_if_nobody_took_it(self, store: Store, elapse: Elapse) -> None:
        lease = await taken(store, unique("lease"), ttl=MINUTE)
        await elapse(5 * MINUTE)

        renewed = await store.leases.renew(lease, MINUTE)

        assert renewed.epoch == lease.epoch
        assert await store.leases.acquire(lease.name, "b", MINUTE) is None

    async def test_a_lease_that_ran_out_and_was_taken_is_not_renewed(self, store: Store, elapse: Elapse) -> None:
        lease = await taken(store, unique("lease"), "a", MINUTE)
        await elapse(5 * MINUTE)
        newer = await taken(store, lease.name, "b")

        with pytest.raises(Fenced, match=lease.name):
            await store.leases.renew(lease, MINUTE)

        assert await store.leases.find(lease.name) == newer

    async def test_a_lease_taken_again_by_its_owner_is_another_lease(self, store: Store, lease: Lease) -> None:
        await store.leases.release(lease)
        newer = await taken(store, lease.name, lease.owner)

        with pytest.raises(Fenced):
            await store.leases.renew(lease, MINUTE)

        assert newer.epoch == lease.epoch + 1

    async def test_another_owner_does_not_renew(self, store: Store, lease: Lease) -> None:
        with pytest.raises(Fenced):
            await store.leases.renew(replace(lease, owner="thief"), MINUTE)

    async def test_a_lease_nobody_ever_took_is_not_renewed(self, store: Store, lease: Lease) -> None:
        with pytest.raises(Fenced):
            await store.leases.renew(replace(lease, name=unique("lease")), MINUTE)

    async def test_a_released_lease_may_be_taken_at_once(self, store: Store, lease: Lease) -> None:
        await store.leases.release(lease)

        assert (await taken(store, lease.name, "b")).epoch == lease.epoch + 1

    async def test_a_released_lease_is_not_renewed(self, store: Store, lease: Lease) -> None:
        await store.leases.release(lease)

        with pytest.raises(Fenced):
            await store.leases.renew(lease, MINUTE)

    async def test_a_released_lease_has_run_out_and_keeps_its_epoch(self, store: Store, lease: Lease) -> None:
        await store.leases.release(lease)

        found = await store.leases.find(lease.name)

        assert found is not None
        assert (found.owner, found.epoch) == (lease.owner, lease.epoch)
        assert found.expires_at <= await store.now()

    async def test_releasing_again_is_harmless(self, store: Store, lease: Lease) -> None:
        await store.leases.release(lease)
        newer = await taken(store, lease.name, "b")

        await store.leases.release(lease)

        assert await store.leases.find(lease.name) == newer

    async def test_releasing_what_was_never_held_is_harmless(self, store: Store, lease: Lease) -> None:
        name = unique("lease")

        await store.leases.release(replace(lease, name=name))
        await store.leases.release(replace(lease, owner="thief"))

        assert await store.leases.find(name) is None
        assert await store.leases.find(lease.name) == lease

    async def test_epochs_rise_and_are_never_used_twice(self, store: Store) -> None:
        name = unique("lease")
        epochs = []
        for owner in "aabba":
            lease = await taken(store, name, owner)
            epochs.append(lease.epoch)
            await store.leases.release(lease)

        assert epochs == [1, 2, 3, 4, 5]

    async def test_epochs_go_on_when_the_pool_is_deleted(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        await store.leases.release(lease)
        await store.pools.delete(pool.pool_id)
        await store.pools.create(pool)

        assert (await taken(store, pool.pool_id)).epoch == lease.epoch + 1

    async def test_the_last_holder_is_found_though_the_lease_ran_out(self, store: Store, elapse: Elapse) -> None:
        name = unique("lease")
        await taken(store, name, "a", MINUTE)
        await elapse(5 * MINUTE)

        found = await store.leases.find(name)

        assert found is not None
        assert (found.owner, found.epoch) == ("a", 1)
        assert found.expires_at < await store.now()

    async def test_a_lease_nobody_ever_took_is_not_found(self, store: Store) -> None:
        assert await store.leases.find(unique("lease")) is None

    async def test_a_lease_that_ran_out_still_admits_until_another_takes_it(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        lease = await taken(store, pool.pool_id, ttl=MINUTE)
        await elapse(5 * MINUTE)
        await store.events.append(pool.pool_id, [start(1)], fence=lease.fence)
        await taken(store, pool.pool_id, "b")

        with pytest.raises(Fenced):
            await store.events.append(pool.pool_id, [start(2)], fence=lease.fence)

        assert await event_types(store, pool.pool_id) == [(1, "START")]

    async def test_a_released_lease_admits_nothing(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        await store.leases.release(lease)

        with pytest.raises(Fenced, match=lease.name):
            await store.events.append(pool.pool_id, [start(1)], fence=lease.fence)

    @pytest.mark.parametrize("ahead", [-1, 1], ids=["older", "newer"])
    async def test_only_the_current_epoch_admits(self, store: Store, pool: PoolRow, lease: Lease, ahead: int) -> None:
        with pytest.raises(Fenced):
            await store.events.append(pool.pool_id, [start(1)], fence=Fence(name=lease.name, epoch=lease.epoch + ahead))

    async def test_a_lease_that_never_was_admits_nothing(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(Fenced):
            await store.events.append(pool.pool_id, [start(1)], fence=Fence(name=unique("lease"), epoch=1))

    async def test_a_write_without_a_fence_is_not_fenced(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        await outdated(store, lease)

        await store.events.append(pool.pool_id, [start(1)])

        assert await event_types(store, pool.pool_id) == [(1, "START")]
