"""What happens when the store goes away, or a worker stops: nobody is given up wrongly, nothing is lost."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from drumbeat.core.errors import StoreUnavailable, WorkerGone
from drumbeat.core.event import EventType
from drumbeat.core.worker import Health, Worker, WorkerStatus, judge
from drumbeat.store import open_store
from drumbeat.store.interface import Heartbeat, Store
from e2e.fleet import BENCH, POOL, Fleet, fleet, of
from e2e.processes import eventually
from servers.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

MANY = 20


async def carries_on(running: Fleet, before: Sequence[Worker]) -> None:
    """Every worker is the process it was, obeys a new order, and lost neither an event nor a sample."""
    await running.set_target(3, workers=len(before))
    await eventually(lambda: running.all_hold(3), "all workers hold 3")
    after = await running.workers()
    assert [worker.instance for worker in after] == [worker.instance for worker in before]
    assert await running.told() == []
    assert [await running.samples_missing(worker) for worker in after] == [[] for _ in after]


@pytest.mark.soak
async def test_twenty_workers_carry_on_when_postgresql_was_gone_for_twenty_seconds(
    private_postgres: PostgresServer, tmp_path: Path
) -> None:
    url = private_postgres.new_database()
    async with open_store(url, create=True):
        pass
    async with fleet(url, tmp_path, workers=MANY) as running:
        before = await running.workers()
        await running.set_target(2, workers=MANY)

        private_postgres.stop()
        await asyncio.sleep(20)
        private_postgres.start()

        await carries_on(running, before)


async def test_workers_carry_on_when_sqlite_was_locked_by_another_process_for_five_seconds(tmp_path: Path) -> None:
    path = tmp_path / "drumbeat.db"
    async with open_store(f"sqlite:///{path}", create=True):
        pass
    async with fleet(f"sqlite:///{path}", tmp_path, workers=5) as running:
        before = await running.workers()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(5)
        other.execute("COMMIT")
        other.close()

        await carries_on(running, before)


@pytest.mark.soak
async def test_a_worker_stopped_for_forty_seconds_is_stale_then_healthy_and_for_seventy_is_lost(
    url: str, tmp_path: Path
) -> None:
    async with fleet(url, tmp_path, workers=2) as running:
        short, long = await running.workers()
        for worker in (long, short):
            await freeze(running.plane.store, worker)

        await asyncio.sleep(40)
        assert await health(running, short) is Health.STALE
        os.kill(short.pid or 0, signal.SIGCONT)
        await eventually(lambda: is_healthy(running, short), "the worker that went on is healthy")

        await eventually(lambda: is_lost(running, long), "the worker that stayed silent is lost")
        row = of(await running.workers(), long.worker_id)
        with pytest.raises(WorkerGone, match="lost"):
            await running.plane.store.membership.beat(late_beat(row))
        await eventually(lambda: is_replaced(running, long), "another has its slot")
        assert of(await running.workers(), short.worker_id).status is WorkerStatus.ACTIVE
        assert [move["worker_id"] for move in await running.told()] == [long.worker_id]


async def test_a_lost_worker_that_wakes_up_writes_nothing_more_and_leaves(url: str, tmp_path: Path) -> None:
    async with fleet(url, tmp_path, workers=1) as running:
        (worker,) = await running.workers()
        store = running.plane.store
        await freeze(store, worker)
        silent = await store.workers.get(POOL, worker.worker_id)
        lost = await store.workers.move(silent, WorkerStatus.LOST, "given up by hand")

        os.kill(worker.pid or 0, signal.SIGCONT)

        await eventually(lambda: is_replaced(running, worker), "another has its slot")
        assert (await store.workers.get(POOL, worker.worker_id)).heartbeat_count == lost.heartbeat_count
        late = [event for event in await store.events.read(POOL, 0) if event.type == EventType.WORKER_MOVED]
        assert [event.payload["to"] for event in late if event.payload["worker_id"] == worker.worker_id][-1] == "lost"


async def freeze(store: Store, worker: Worker) -> None:
    """Stop a worker's process, but not in the middle of a write: it would hold SQLite's lock for as long as it is stopped."""
    while True:
        os.kill(worker.pid or 0, signal.SIGSTOP)
        try:
            await store.notes.put("frozen", {"worker": worker.worker_id})
            return
        except StoreUnavailable:
            os.kill(worker.pid or 0, signal.SIGCONT)
            await asyncio.sleep(0.1)


def late_beat(row: Worker) -> Heartbeat:
    return Heartbeat(pool_id=row.pool_id, worker_id=row.worker_id, instance=row.instance or "", read_to=0)


async def health(running: Fleet, worker: Worker) -> Health:
    row = of(await running.workers(), worker.worker_id)
    return judge(row, await running.plane.store.now(), BENCH)


async def is_healthy(running: Fleet, worker: Worker) -> bool:
    return await health(running, worker) is Health.HEALTHY


async def is_lost(running: Fleet, worker: Worker) -> bool:
    return of(await running.workers(), worker.worker_id).status is WorkerStatus.LOST


async def is_replaced(running: Fleet, worker: Worker) -> bool:
    return any(
        each.slot == worker.slot and each.worker_id != worker.worker_id and each.status is WorkerStatus.ACTIVE
        for each in await running.workers()
    )
