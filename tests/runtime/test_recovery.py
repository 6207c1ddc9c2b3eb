"""A controller's hands: what a provider tells is kept, and nothing is asked for twice while it may still turn up."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidSettings, SpawnAmbiguous, SpawnCause, SpawnError, SpawnFailed, StaleWrite, Unanswered
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.recovery import Reap, may_run, never_started
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.runtime.recovery import RecoveryActor
from drumbeat.runtime.snapshot import LIST_WITHIN, take_snapshot
from drumbeat.spawn.fake import AnswerLost, FakeSpawner, ListFails, SpawnFails
from drumbeat.spawn.group import EngineGroup
from drumbeat.spawn.interface import Instance, Order, ReachableList, SilentPlace, SpawnerTraits
from drumbeat.store.memory import MemoryStore
from runtime.given import POOL, seconds

W = WorkerId("worker-0")
ROW = Worker(pool_id=POOL, worker_id=W, slot=0, meta={"price_per_hour": 2.0, "contract": "v1"})


class Dear(FakeSpawner):
    """A provider that tells a price and a place, and may show what it made only after a while."""

    def __init__(self, clock: ManualClock, **told: Any) -> None:
        super().__init__(clock)
        self.told: Mapping[str, Any] = told

    @property
    def traits(self) -> SpawnerTraits:
        return replace(super().traits, unique_names=False, settle=seconds(180))

    async def spawn(self, order: Order) -> Instance:
        return replace(await super().spawn(order), **self.told)

    async def list(self, pool_id: Any) -> list[Instance]:
        return [replace(one, **self.told) for one in await super().list(pool_id)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> MemoryStore:
    made = MemoryStore(clock)
    await made.pools.create(pool(POOL, PoolKind.JOBS))
    return made


async def fence(store: MemoryStore) -> Fence:
    lease = await store.leases.acquire(POOL, "me", seconds(1000))
    assert lease is not None
    return lease.fence


async def test_what_an_instance_costs_and_where_it_is_goes_into_its_row(store: MemoryStore, clock: ManualClock) -> None:
    spawner = Dear(clock, price_per_hour=0.44, meta={"data_center": "EU-1", "status": "RUNNING", "gpus": [{}], "cloud": None})

    await RecoveryActor(store, spawner, POOL).start(ROW, 1, await fence(store), is_new=True)

    row = await store.workers.get(POOL, W)
    assert row.meta == {"price_per_hour": 0.44, "contract": "v1", "data_center": "EU-1"}
    assert row.provider_ref == "fake-1"


async def test_a_provider_that_tells_nothing_leaves_the_row_as_it_is(store: MemoryStore, clock: ManualClock) -> None:
    await RecoveryActor(store, FakeSpawner(clock), POOL).start(ROW, 1, await fence(store), is_new=True)

    row = await store.workers.get(POOL, W)
    assert (row.meta, row.provider_ref) == (ROW.meta, None)


async def test_what_may_still_turn_up_is_not_asked_for_again(store: MemoryStore, clock: ManualClock) -> None:
    spawner, held = Dear(clock), await fence(store)
    hands = RecoveryActor(store, spawner, POOL)
    await store.workers.add([ROW])

    await clock.advance(seconds(179))
    with pytest.raises(SpawnError, match=rf"^worker {W}: no new instance requested, .* within 1 s$"):
        await hands.start(ROW, 1, held, is_new=False)
    assert spawner.asked("spawn") == []

    await clock.advance(seconds(1))
    await hands.start(ROW, 1, held, is_new=False)
    assert spawner.asked("spawn") == [W]


async def test_what_was_asked_for_again_is_waited_for_as_long_by_whoever_comes_next(
    store: MemoryStore, clock: ManualClock
) -> None:
    """The first retry got no answer; the controller that takes over must not ask a third time at once."""
    spawner, held = Dear(clock), await fence(store)
    await store.workers.add([ROW])
    await clock.advance(seconds(200))
    spawner.faults.append(AnswerLost())
    with pytest.raises(SpawnAmbiguous):
        await RecoveryActor(store, spawner, POOL).start(ROW, 1, held, is_new=False)

    await clock.advance(seconds(60))
    with pytest.raises(SpawnError, match=rf"^worker {W}: no new instance requested, .* within 120 s$"):
        await RecoveryActor(store, spawner, POOL).start(ROW, 1, held, is_new=False)
    row = await store.workers.get(POOL, W)
    assert spawner.asked("spawn") == [W]
    unanswered = {"unanswered": "the provider gave no answer; list the workers before trying again"}
    assert row.meta == {**ROW.meta, "asked_at": "2026-01-01T00:03:20+00:00", **unanswered}


async def test_a_row_that_was_closed_meanwhile_gets_no_instance(store: MemoryStore, clock: ManualClock) -> None:
    await store.workers.add([ROW])
    await store.workers.move(await store.workers.get(POOL, W), WorkerStatus.LOST, "silent")
    spawner = FakeSpawner(clock)

    with pytest.raises(StaleWrite, match="has ended as lost"):
        await RecoveryActor(store, spawner, POOL).start(ROW, 1, await fence(store), is_new=False)

    assert spawner.asked("spawn") == []


async def test_gpu_memory_is_seen_as_its_provider_tells_it(store: MemoryStore, clock: ManualClock) -> None:
    gpus = [{"memory_total_gb": 24, "memory_used_gb": 6.0}, {"memory_total_gb": 24, "memory_used_gb": None}]
    spawner = Dear(clock, meta={"gpus": gpus})
    await RecoveryActor(store, spawner, POOL).start(ROW, 1, await fence(store), is_new=True)

    sight = await take_snapshot(store, spawner, await store.pools.get(POOL), seconds(0))

    assert [row.gpu for row in sight.workers] == [{"memory_total_mb": 48 * 1024, "memory_used_mb": 6 * 1024}]


async def test_a_look_without_a_list_is_partial_if_that_will_do(store: MemoryStore, clock: ManualClock) -> None:
    spawner, home = FakeSpawner(clock, [ListFails(times=2)]), await store.pools.get(POOL)
    await store.workers.add([ROW])

    with pytest.raises(SpawnError):
        await take_snapshot(store, spawner, home, seconds(0))
    sight = await take_snapshot(store, spawner, home, seconds(0), unlisted_too=True)

    assert (sight.partial, sight.instances, [row.worker_id for row in sight.workers]) == (True, (), [W])


async def test_an_engine_with_a_wrong_key_gives_no_list(store: MemoryStore, clock: ManualClock) -> None:
    class Keyless(FakeSpawner):
        async def list(self, pool_id: PoolId) -> Sequence[Instance]:
            raise InvalidSettings("cannot use the key file k")

    home = await store.pools.get(POOL)

    with pytest.raises(SpawnError, match="engine fake cannot be used: cannot use the key file k") as failed:
        await take_snapshot(store, Keyless(clock), home, seconds(0))
    assert failed.value.cause is SpawnCause.AUTH
    assert (await take_snapshot(store, Keyless(clock), home, seconds(0), unlisted_too=True)).partial


async def test_what_may_run_where_nobody_answers_counts_as_running(store: MemoryStore, clock: ManualClock) -> None:
    """Of two engines one is silent: the list is not refused, and a worker that may be there is neither ended nor started."""
    silent, home = FakeSpawner(clock, [ListFails()], name="silent"), await store.pools.get(POOL)
    other = WorkerId("other")
    await store.workers.add([replace(ROW, provider="silent,works"), replace(ROW, worker_id=other, provider="works")])

    sight = await take_snapshot(store, EngineGroup([silent, FakeSpawner(clock, name="works")]), home, seconds(0))

    assert (sight.partial, sight.unlisted) == (False, None)
    assert [(each.worker_id, each.running) for each in sight.instances] == [(W, True)]
    assert [row.worker_id for row in never_started(sight, sight.workers)] == [other]


class HalfSilent(FakeSpawner):
    """A provider with one host that answers and one that does not, on which every worker may be."""

    def __init__(self, clock: ManualClock, *, is_down: bool) -> None:
        super().__init__(clock)
        self.is_down = is_down

    async def list_reachable(self, pool_id: Any) -> ReachableList:
        host = SilentPlace(name="far", error=Unanswered("no answer"), may_hold=lambda row: True, is_down=self.is_down)
        return ReachableList(instances=await self.list(pool_id), silent=[host])


@pytest.mark.parametrize(("is_down", "counted"), [(True, []), (False, [W])])
async def test_a_lost_worker_makes_room_only_if_its_host_is_down_too(
    store: MemoryStore, clock: ManualClock, is_down: bool, counted: list[WorkerId]
) -> None:
    await store.workers.add([ROW])
    home, spawner = await store.pools.get(POOL), HalfSilent(clock, is_down=is_down)
    assert [row.worker_id for row in may_run(await take_snapshot(store, spawner, home, seconds(0)))] == [W]

    await store.workers.move(await store.workers.get(POOL, W), WorkerStatus.LOST, "silent")

    assert [row.worker_id for row in may_run(await take_snapshot(store, spawner, home, seconds(0)))] == counted


class Silent(FakeSpawner):
    """A provider that cannot be asked to end anything."""

    async def terminate(self, pool_id: Any, worker_id: Any) -> None:
        raise Unanswered("no route to host")


@pytest.mark.parametrize("was_refused", [True, False])
async def test_a_worker_whose_start_was_refused_needs_no_end(store: MemoryStore, clock: ManualClock, was_refused: bool) -> None:
    held, spawner = await fence(store), Silent(clock, [SpawnFails()] if was_refused else [AnswerLost()])
    hands = RecoveryActor(store, spawner, POOL)
    with pytest.raises(SpawnFailed if was_refused else SpawnAmbiguous):
        await hands.start(ROW, 1, held, is_new=True)
    if not was_refused:
        await store.workers.move(await store.workers.get(POOL, W), WorkerStatus.LOST, "silent")

    try:
        await hands.recover(Reap(worker_id=W, reason="it ended"), held)
    except Unanswered:
        assert not was_refused

    assert ((await store.workers.get(POOL, W)).reaped_at is not None) is was_refused


@pytest.mark.parametrize(("engine", "is_gone"), [("works", True), ("silent", False), (None, False)])
async def test_a_worker_that_ran_where_we_get_answers_is_gone_although_another_engine_is_silent(
    store: MemoryStore, clock: ManualClock, engine: str | None, is_gone: bool
) -> None:
    silent, works = FakeSpawner(clock, [ListFails(times=2)], name="silent"), FakeSpawner(clock, name="works")
    meta = {} if engine is None else {"engine": engine}
    await store.workers.add([replace(ROW, provider="silent,works", meta=meta)])
    await store.workers.move(await store.workers.get(POOL, W), WorkerStatus.TERMINATED, "it left")

    reaping = RecoveryActor(store, EngineGroup([silent, works]), POOL).recover(
        Reap(worker_id=W, reason="x"), await fence(store)
    )
    with nullcontext() if is_gone else pytest.raises(Unanswered):
        await reaping

    assert ((await store.workers.get(POOL, W)).reaped_at is not None) is is_gone


class Hangs(FakeSpawner):
    """A provider that never answers."""

    async def list(self, pool_id: Any) -> list[Instance]:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


async def test_a_list_that_never_comes_is_given_up_well_before_the_beat_is(store: MemoryStore, clock: ManualClock) -> None:
    home = await store.pools.get(POOL)
    await store.workers.add([ROW])

    async with asyncio.TaskGroup() as group:
        looking = group.create_task(take_snapshot(store, Hangs(clock), home, seconds(0), unlisted_too=True, clock=clock))
        await clock.advance(LIST_WITHIN - seconds(1))
        assert not looking.done()
        await clock.advance(seconds(1))

    assert (looking.result().partial, looking.result().instances) == (True, ())
    assert [each.worker_id for each in looking.result().workers] == [W]


@pytest.mark.parametrize(("provider", "is_ours"), [("fake", True), (None, True), ("runpod", False)])
async def test_no_provider_is_asked_to_end_what_another_has(
    store: MemoryStore, clock: ManualClock, provider: str | None, is_ours: bool
) -> None:
    await store.workers.add([replace(ROW, provider=provider)])
    await store.workers.move(await store.workers.get(POOL, W), WorkerStatus.LOST, "silent")
    spawner, held = FakeSpawner(clock), await fence(store)

    with (
        nullcontext() if is_ours else pytest.raises(SpawnError, match="cannot end worker worker-0, which engine runpod started")
    ):
        await RecoveryActor(store, spawner, POOL).recover(Reap(worker_id=W, reason="it ended"), held)

    assert (spawner.asked("terminate") == [W]) is is_ours
    assert ((await store.workers.get(POOL, W)).reaped_at is not None) is is_ours
