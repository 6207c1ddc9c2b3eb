"""The id of a store: made once, by the process that needs it first."""

import asyncio
from datetime import timedelta

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.lease import STORE_ID
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.runtime.store_id import find_store_id
from drumbeat.store.memory import MemoryStore

P, Q = PoolId("p"), PoolId("q")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> MemoryStore:
    made = MemoryStore(clock)
    for pool_id in (P, Q):
        await made.pools.create(pool(pool_id, PoolKind.JOBS))
    return made


def row(worker_id: str, provider: str | None, pool_id: PoolId = P) -> Worker:
    return Worker(pool_id=pool_id, worker_id=WorkerId(worker_id), slot=0, provider=provider)


async def test_processes_that_make_it_at_once_get_the_same(store: MemoryStore) -> None:
    assert len(set(await asyncio.gather(*(find_store_id(store) for _ in range(8))))) == 1


async def test_two_stores_have_different_ids(store: MemoryStore) -> None:
    assert (await find_store_id(store)).value != (await find_store_id(MemoryStore())).value


async def test_workers_from_before_the_id_are_remembered_until_they_are_gone(store: MemoryStore, clock: ManualClock) -> None:
    await store.workers.add([row("a", "box"), row("b", "local,gpu"), row("here", "local"), row("adhoc", None)])
    await store.workers.add([row("a", "gpu", Q)])
    await clock.advance(timedelta(seconds=1))

    first = await find_store_id(store)
    await store.workers.add([row("new", "box")])

    assert first.older == {(P, "a"), (P, "b"), (Q, "a")}
    assert await find_store_id(store) == first

    gone = await store.workers.move(await store.workers.get(P, WorkerId("a")), WorkerStatus.LOST, "silent")
    await store.workers.mark_reaped(P, gone.worker_id)
    assert (await find_store_id(store)).older == {(P, "b"), (Q, "a")}


async def test_a_process_killed_after_it_made_the_id_leaves_nothing_undone(store: MemoryStore, clock: ManualClock) -> None:
    await store.workers.add([row("a", "box")])
    await clock.advance(timedelta(seconds=1))
    first = await find_store_id(store)
    await store.notes.delete(STORE_ID)

    assert await find_store_id(store) == first
