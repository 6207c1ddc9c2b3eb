"""A worker that is started with a fixed id starts again under that id with a number, and never beside itself."""

import os
import socket
import subprocess
import sys
from datetime import timedelta

import pytest

from drumbeat.composition.worker_ids import find_free_id
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput, Refused, WorkerGone
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool
from drumbeat.core.retention import Prunable
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.contract.given import heartbeat
from drumbeat.store.interface import JoinRequest
from drumbeat.store.memory import MemoryStore

POOL = PoolId("p")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
async def home(store: MemoryStore) -> PoolRow:
    return await store.pools.create(pool(POOL, PoolKind.JOBS))


async def joined(store: MemoryStore, name: str, *, host: str = "elsewhere", pid: int = 1) -> Worker:
    return await store.membership.join(
        JoinRequest(pool_id=POOL, worker_id=WorkerId(name), slot=0, instance=f"process of {name}", host=host, pid=pid)
    )


async def ended(store: MemoryStore, name: str) -> None:
    await store.workers.move(await joined(store, name), WorkerStatus.TERMINATED, "done")


def dead_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("name", ["a/b c", "..", "w\0", "w" * 231])
async def test_an_id_that_cannot_be_a_file_name_is_refused(store: MemoryStore, home: PoolRow, name: str) -> None:
    with pytest.raises(InvalidInput, match="expected a worker id that can be a file name"):
        await find_free_id(store, home, name)

    assert await store.notes.find(f"worker-id/{POOL}/{name}") is None


async def test_the_first_start_gets_the_id_and_each_later_one_the_next_number(store: MemoryStore, home: PoolRow) -> None:
    found = []
    for _ in range(12):
        found.append(await find_free_id(store, home, "w1"))
        await ended(store, found[-1])

    assert found == ["w1", *(f"w1.{n}" for n in range(2, 13))]


async def test_an_id_is_not_given_out_again_after_its_rows_were_pruned(store: MemoryStore, home: PoolRow) -> None:
    """The store ignores a sample whose worker and number it has: those of the new process would be dropped in silence."""
    for instance in ("old", "new"):
        worker = await joined(store, await find_free_id(store, home, "w1"))
        await store.samples.append(
            POOL, worker.worker_id, worker.instance or "", [Sample(n=n, interval=timedelta(seconds=1)) for n in (1, 2, 3)]
        )
        await store.workers.move(worker, WorkerStatus.TERMINATED, instance)
        await store.upkeep.prune_some(POOL, Prunable.WORKERS, timedelta(seconds=-1))

    assert [(each.worker_id, each.n) for each in await store.samples.list(POOL)] == [
        *(("w1", n) for n in (1, 2, 3)),
        *(("w1.2", n) for n in (1, 2, 3)),
    ]


async def test_a_start_that_never_joined_leaves_its_spawned_row_to_the_next(store: MemoryStore, home: PoolRow) -> None:
    await store.workers.add([Worker(pool_id=POOL, worker_id=WorkerId("w1"), slot=0)])

    assert [await find_free_id(store, home, "w1") for _ in range(2)] == ["w1", "w1"]


async def test_ids_that_were_used_before_they_were_counted_are_passed_over(store: MemoryStore, home: PoolRow) -> None:
    for name in ("w1", *(f"w1.{n}" for n in range(2, 8))):
        await ended(store, name)

    assert await find_free_id(store, home, "w1") == "w1.8"
    await store.upkeep.prune_some(POOL, Prunable.WORKERS, timedelta(seconds=-1))
    assert await find_free_id(store, home, "w1") == "w1.9"


async def test_an_id_that_only_begins_alike_is_another_worker(store: MemoryStore, home: PoolRow) -> None:
    for name in ("w", "w10", "w1.x", "xw1", "w1.2.3"):
        await joined(store, name)

    assert await find_free_id(store, home, "w1") == "w1"


@pytest.mark.parametrize("running", ["w1", "w1.7"])
async def test_a_worker_that_runs_elsewhere_is_not_started_again(store: MemoryStore, home: PoolRow, running: str) -> None:
    await joined(store, running, host="host-7", pid=77)

    with pytest.raises(Refused, match=r"runs in another process \(host-7 pid 77, .*; choose another --worker-id") as refused:
        await find_free_id(store, home, "w1")

    assert f"worker {running} of pool p " in str(refused.value)
    assert (await store.workers.get(POOL, WorkerId(running))).is_live


async def test_a_worker_that_runs_in_a_process_of_this_host_is_not_started_again(store: MemoryStore, home: PoolRow) -> None:
    await joined(store, "w1", host=socket.gethostname(), pid=os.getppid())

    with pytest.raises(Refused, match="runs in another process"):
        await find_free_id(store, home, "w1")


async def test_a_container_that_is_started_again_has_the_process_number_of_the_dead_one(
    store: MemoryStore, home: PoolRow
) -> None:
    await joined(store, "w1", host=socket.gethostname(), pid=os.getpid())

    assert await find_free_id(store, home, "w1") == "w1.2"


async def test_a_worker_whose_process_died_here_is_marked_lost_and_started_again(store: MemoryStore, home: PoolRow) -> None:
    before = await joined(store, "w1", host=socket.gethostname(), pid=dead_process())

    assert await find_free_id(store, home, "w1") == "w1.2"
    assert (await store.workers.get(POOL, before.worker_id)).status is WorkerStatus.LOST


async def test_a_silent_worker_is_marked_lost_and_its_old_process_is_still_refused(
    store: MemoryStore, home: PoolRow, clock: ManualClock
) -> None:
    before = await joined(store, "w1")
    await clock.advance(home.thresholds.lost_after + timedelta(seconds=1))

    assert await find_free_id(store, home, "w1") == "w1.2"
    with pytest.raises(WorkerGone):
        await store.membership.beat(heartbeat(before))


@pytest.mark.parametrize("leaving", [False, True])
async def test_a_dead_workers_jobs_are_charged_unless_it_was_leaving(store: MemoryStore, home: PoolRow, leaving: bool) -> None:
    before = await joined(store, "w1", host=socket.gethostname(), pid=dead_process())
    if leaving:
        await store.workers.ask_to_drain(POOL, [before.worker_id], "scale down", timedelta(seconds=60))

    await find_free_id(store, home, "w1")

    assert (await store.workers.get(POOL, before.worker_id)).has_crashed is not leaving


async def test_a_row_that_waits_for_its_process_is_joined(store: MemoryStore, home: PoolRow) -> None:
    await store.workers.add([Worker(pool_id=POOL, worker_id=WorkerId("w1"), slot=0)])

    assert await find_free_id(store, home, "w1") == "w1"
