"""One controller acts at a time, whoever dies."""

import subprocess
from collections import defaultdict
from datetime import datetime, timedelta
from functools import partial

import pytest

from drumbeat.core.errors import Fenced
from drumbeat.core.event import NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.store import Store, open_store
from e2e.processes import cleared_away, eventually, start

CONTROLLERS, KILLS = 8, 10
EVERY, LEASE = 200, 1000  #: milliseconds
POOL = PoolId("p")


async def test_of_eight_controllers_one_acts_in_each_epoch_though_the_leader_is_killed_ten_times(url: str) -> None:
    async with open_store(url) as store:
        await store.pools.create(pool(POOL, PoolKind.FLEET))
        controllers = [start("control", url, POOL, EVERY, LEASE) for _ in range(CONTROLLERS)]
        with cleared_away(controllers):
            for _ in range(KILLS):
                killed = await kill_leader(store, controllers)
                controllers.append(start("control", url, POOL, EVERY, LEASE))
                await eventually(partial(acted_after, store, killed.epoch), "another controller takes over")
                with pytest.raises(Fenced):
                    await store.events.append(POOL, [NewEvent(type="ACTED", payload={})], fence=killed)

        owners = await owners_by_epoch(store)
        assert len(owners) > KILLS
        assert all(len(each) == 1 for each in owners.values()), owners


async def test_a_dead_leader_is_replaced_within_its_lease_and_two_beats(url: str) -> None:
    async with open_store(url) as store:
        await store.pools.create(pool(POOL, PoolKind.FLEET))
        controllers = [start("control", url, POOL, EVERY, LEASE) for _ in range(3)]
        with cleared_away(controllers):
            killed = await kill_leader(store, controllers)
            await eventually(partial(acted_after, store, killed.epoch), "another controller takes over")

        before = [event for event in await all_events(store) if event[1] == killed.epoch][-1]
        after = next(event for event in await all_events(store) if event[1] > killed.epoch)
        waited = after[0] - before[0]
        slack = timedelta(seconds=20)  # for two cores that may be busy with much else
        assert waited <= timedelta(milliseconds=LEASE + 2 * EVERY) + slack


async def kill_leader(store: Store, controllers: list[subprocess.Popen[str]]) -> Fence:
    """Kill -9 whoever leads now, once it has acted; answers with its fence."""

    async def leader_acts() -> bool:
        lease = await store.leases.find(POOL)
        return lease is not None and lease.expires_at > await store.now() and lease.epoch in await owners_by_epoch(store)

    await eventually(leader_acts, "a leader acts")
    lease = await store.leases.find(POOL)
    assert lease is not None
    pid = int(lease.owner.removeprefix("pid-"))
    next(process for process in controllers if process.pid == pid).kill()
    return lease.fence


async def acted_after(store: Store, epoch: int) -> bool:
    return any(each > epoch for each in await owners_by_epoch(store))


async def owners_by_epoch(store: Store) -> dict[int, set[str]]:
    owners: dict[int, set[str]] = defaultdict(set)
    for event in await store.events.read(POOL, 0, limit=100_000):
        owners[event.payload["epoch"]].add(event.payload["owner"])
    for beat in await store.beats.list(POOL, limit=100_000):
        owners[beat.epoch].add(beat.owner)
    return owners


async def all_events(store: Store) -> list[tuple[datetime, int]]:
    return [(event.created_at, event.payload["epoch"]) for event in await store.events.read(POOL, 0, limit=100_000)]
