"""FlatMachines' registration protocol on our workers' rows."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from flatmachines.distributed import RegistrationBackend, WorkerFilter, WorkerRegistration

from drumbeat.adapters.flatmachines import (
    DrumbeatRegistrationBackend,
    DrumbeatWorkBackend,
    PoolWorkerFilter,
    PoolWorkerRegistration,
)
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput, Refused, WorkerGone
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.memory import MemoryStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def registry(store: MemoryStore) -> DrumbeatRegistrationBackend:
    return DrumbeatRegistrationBackend(store)


async def names(registry: DrumbeatRegistrationBackend, wanted: WorkerFilter | None = None) -> Sequence[str]:
    return [record.worker_id for record in await registry.list(wanted)]


def test_it_is_what_the_package_takes_for_a_registration_backend(registry: DrumbeatRegistrationBackend) -> None:
    assert isinstance(registry, RegistrationBackend)


async def test_a_registered_worker_is_an_active_row_of_its_pool(
    store: MemoryStore, registry: DrumbeatRegistrationBackend
) -> None:
    record = await registry.register(
        PoolWorkerRegistration(worker_id="w1", host="here", pid=7, capabilities=["gpu"], pool_id="papers")
    )

    row = await store.workers.get(PoolId("papers"), WorkerId("w1"))
    assert (row.status, row.host, row.pid, row.capabilities) == (WorkerStatus.ACTIVE, "here", 7, ("gpu",))
    assert (record.worker_id, record.status, record.capabilities) == ("w1", "active", ["gpu"])
    assert await registry.get("w1") == record
    assert await registry.get("nobody") is None


async def test_a_spawned_row_is_taken_by_who_registers_under_its_name(
    store: MemoryStore, registry: DrumbeatRegistrationBackend
) -> None:
    await store.pools.create(pool("papers", PoolKind.JOBS))
    await store.workers.add([Worker(pool_id=PoolId("papers"), worker_id=WorkerId("w1"), slot=5)])
    await registry.register(PoolWorkerRegistration(worker_id="w1", pool_id="papers"))
    assert (await store.workers.get(PoolId("papers"), WorkerId("w1"))).slot == 5


async def test_registering_again_is_harmless_and_another_process_is_refused(
    store: MemoryStore, registry: DrumbeatRegistrationBackend
) -> None:
    await registry.register(WorkerRegistration(worker_id="w1"))
    assert (await registry.register(WorkerRegistration(worker_id="w1"))).status == "active"
    with pytest.raises(WorkerGone):
        await DrumbeatRegistrationBackend(store).register(WorkerRegistration(worker_id="w1"))


async def test_a_heartbeat_moves_the_time_and_merges_metadata(
    clock: ManualClock, store: MemoryStore, registry: DrumbeatRegistrationBackend
) -> None:
    first = await registry.register(WorkerRegistration(worker_id="w1"))
    await clock.advance(timedelta(seconds=30))
    await registry.heartbeat("w1", {"done": 1, "host": "a"})
    await registry.heartbeat("w1", {"done": 2})

    record = await DrumbeatRegistrationBackend(store).get("w1")
    assert record is not None
    assert record.last_heartbeat > first.last_heartbeat
    assert record.metadata == {"done": 2, "host": "a"}


async def test_a_lost_worker_neither_beats_nor_comes_back(store: MemoryStore, registry: DrumbeatRegistrationBackend) -> None:
    await registry.register(WorkerRegistration(worker_id="w1"))
    await DrumbeatRegistrationBackend(store).update_status("w1", "lost")

    with pytest.raises(KeyError, match="refused"):
        await registry.heartbeat("w1")
    with pytest.raises(WorkerGone):
        await registry.register(WorkerRegistration(worker_id="w1"))
    with pytest.raises(Refused):
        await registry.update_status("w1", "active")
    record = await registry.get("w1")
    assert record is not None
    assert record.status == "lost"


@pytest.mark.parametrize("verb", ["heartbeat", "update_status"])
async def test_nobody_speaks_for_a_worker_nobody_knows(registry: DrumbeatRegistrationBackend, verb: str) -> None:
    with pytest.raises(KeyError, match="nobody"):
        await getattr(registry, verb)("nobody", *(["lost"] if verb == "update_status" else []))


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("terminating", WorkerStatus.DRAINING),
        ("terminated", WorkerStatus.TERMINATED),
        ("lost", WorkerStatus.LOST),
        ("failed", WorkerStatus.ERROR),
        ("error", WorkerStatus.ERROR),
        ("active", WorkerStatus.ACTIVE),
    ],
)
async def test_the_seeds_words_are_our_states(
    store: MemoryStore, registry: DrumbeatRegistrationBackend, word: str, status: WorkerStatus
) -> None:
    await registry.register(WorkerRegistration(worker_id="w1"))
    await registry.update_status("w1", word)
    assert (await store.workers.get(PoolId("default"), WorkerId("w1"))).status is status


async def test_an_unknown_word_is_refused(registry: DrumbeatRegistrationBackend) -> None:
    await registry.register(WorkerRegistration(worker_id="w1"))
    with pytest.raises(InvalidInput, match="'sleepy'"):
        await registry.update_status("w1", "sleepy")


async def test_a_list_is_filtered_by_pool_statuses_capability_and_silence(
    clock: ManualClock, registry: DrumbeatRegistrationBackend
) -> None:
    await registry.register(PoolWorkerRegistration(worker_id="old", pool_id="papers", capabilities=["gpu"]))
    await registry.register(PoolWorkerRegistration(worker_id="gone", pool_id="papers"))
    await registry.update_status("gone", "terminated")
    await clock.advance(timedelta(seconds=61))
    await registry.register(PoolWorkerRegistration(worker_id="new", pool_id="images"))

    assert set(await names(registry)) == {"old", "gone", "new"}
    assert await names(registry, PoolWorkerFilter(pool_id="images")) == ["new"]
    assert set(await names(registry, PoolWorkerFilter(statuses=["active", "terminated"], pool_id="papers"))) == {"old", "gone"}
    assert set(await names(registry, WorkerFilter(status="active"))) == {"old", "new"}
    assert await names(registry, WorkerFilter(capability="gpu")) == ["old"]
    assert await names(registry, WorkerFilter(status="active", stale_threshold_seconds=60)) == ["old"]


async def test_a_record_says_which_job_its_worker_has(store: MemoryStore, registry: DrumbeatRegistrationBackend) -> None:
    work = DrumbeatWorkBackend(store)
    await registry.register(PoolWorkerRegistration(worker_id="w1", pool_id="papers"))
    item_id = await work.pool("papers").push("text")
    await work.pool("papers").claim("w1")

    record = await registry.get("w1")
    assert record is not None
    assert record.current_task_id == item_id


async def register_in_two_pools(store: MemoryStore) -> None:
    for pool_id in ("papers", "images"):
        registration = PoolWorkerRegistration(worker_id="worker-0", pool_id=pool_id)
        await DrumbeatRegistrationBackend(store).register(registration)


async def test_workers_of_two_pools_with_one_name_are_both_listed(
    store: MemoryStore, registry: DrumbeatRegistrationBackend
) -> None:
    await register_in_two_pools(store)

    assert await names(registry) == ["worker-0", "worker-0"]
    assert await names(registry, PoolWorkerFilter(pool_id="images")) == ["worker-0"]


async def test_no_pools_worker_is_ended_for_anothers_of_the_same_name(
    store: MemoryStore, registry: DrumbeatRegistrationBackend
) -> None:
    await register_in_two_pools(store)

    with pytest.raises(InvalidInput, match="got one in each of these pools: images, papers; set the backend's pool_id"):
        await registry.update_status("worker-0", "lost")
    await DrumbeatRegistrationBackend(store, pool_id="images").update_status("worker-0", "lost")

    statuses = {name: (await store.workers.get(PoolId(name), WorkerId("worker-0"))).status for name in ("papers", "images")}
    assert statuses == {"papers": WorkerStatus.ACTIVE, "images": WorkerStatus.LOST}


async def test_one_backend_speaks_for_one_worker_of_a_name(registry: DrumbeatRegistrationBackend) -> None:
    await registry.register(PoolWorkerRegistration(worker_id="worker-0", pool_id="papers"))

    with pytest.raises(InvalidInput, match="registered here in pool papers"):
        await registry.register(PoolWorkerRegistration(worker_id="worker-0", pool_id="images"))
