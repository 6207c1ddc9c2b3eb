"""The seed's own machines, as printed, on the installed package."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from adapters.flatmachines.given import EchoHooks, run, seed_file
from adapters.flatmachines.seed import CONFIG, NAMES, kept, printed
from drumbeat.adapters.flatmachines import DrumbeatRegistrationBackend, DrumbeatWorkBackend, PoolWorkerRegistration
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidSettings
from drumbeat.core.job import JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.memory import MemoryStore

PAPERS = PoolId("papers")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture(params=["as the seed prints it", "as the example keeps it"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "as the example keeps it":
        return CONFIG
    for name, text in printed().items():
        seed_file(tmp_path, name, text)
    return tmp_path


@pytest.fixture
def gate() -> Iterator[asyncio.Event]:
    EchoHooks.gate, EchoHooks.reached = asyncio.Event(), asyncio.Event()
    yield EchoHooks.gate
    EchoHooks.gate = EchoHooks.reached = None


def test_the_example_keeps_the_seeds_machines_unchanged() -> None:
    seeds = printed()
    assert set(NAMES) <= set(seeds)
    for name in NAMES:
        assert kept(name) == yaml.safe_load(seeds[name])


async def test_a_worker_claims_processes_completes_and_leaves(store: MemoryStore, folder: Path) -> None:
    item_id = await DrumbeatWorkBackend(store).pool("papers").push({"n": 1, "text": "a {{ b }} c"})

    output = await run(store, folder / "job_worker.yml", {"pool_id": "papers", "worker_id": "w1"})

    job = await store.jobs.get(JobId(item_id))
    assert (job.status, job.result) == (JobStatus.DONE, {"echo": {"n": 1, "text": "a {{ b }} c"}})
    assert output == {"job_id": item_id, "result": {"echo": {"n": 1, "text": "a {{ b }} c"}}}
    assert (await store.workers.get(PAPERS, WorkerId("w1"))).status is WorkerStatus.TERMINATED


async def test_a_worker_without_work_says_so(store: MemoryStore, folder: Path) -> None:
    assert await run(store, folder / "job_worker.yml", {"pool_id": "papers"}) == {"status": "no_work_available"}
    (row,) = await store.workers.list(PAPERS)
    assert row.status is WorkerStatus.TERMINATED
    assert row.worker_id.startswith("papers-machine-")


async def test_a_failed_job_keeps_its_error_and_is_poisoned_at_its_limit(store: MemoryStore, folder: Path) -> None:
    item_id = await DrumbeatWorkBackend(store).pool("papers").push({"fail": "unreadable"}, {"max_retries": 2})
    for status in (JobStatus.PENDING, JobStatus.POISONED):
        await run(store, folder / "job_worker.yml", {"pool_id": "papers"})
        job = await store.jobs.get(JobId(item_id))
        assert (job.status, job.last_error) == (status, "unreadable")


async def test_a_worker_beats_while_its_job_is_one_long_state(
    store: MemoryStore, clock: ManualClock, gate: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drumbeat.adapters.flatmachines.session.SystemClock", lambda: clock)
    item_id = await DrumbeatWorkBackend(store).pool("papers").push({"n": 1})
    async with asyncio.TaskGroup() as group:
        group.create_task(run(store, CONFIG / "job_worker.yml", {"pool_id": "papers", "worker_id": "w1"}))
        assert EchoHooks.reached is not None
        await EchoHooks.reached.wait()
        for _ in range(200):
            await clock.advance(timedelta(seconds=30))
        row = await store.workers.get(PAPERS, WorkerId("w1"))
        assert row.heartbeat_at == clock.now()
        assert not await store.queue.expire()
        gate.set()
    assert (await store.jobs.get(JobId(item_id))).status is JobStatus.DONE


async def test_a_late_result_of_a_reaped_worker_is_refused_and_its_machine_fails(
    store: MemoryStore, gate: asyncio.Event
) -> None:
    item_id = await DrumbeatWorkBackend(store).pool("papers").push({"n": 1})
    async with asyncio.TaskGroup() as group:
        late = group.create_task(_failure(run(store, CONFIG / "job_worker.yml", {"pool_id": "papers", "worker_id": "w1"})))
        assert EchoHooks.reached is not None
        await EchoHooks.reached.wait()
        await DrumbeatRegistrationBackend(store).update_status("w1", "lost")
        await store.queue.release((await store.workers.get(PAPERS, WorkerId("w1"))).holder, "reaped")
        gate.set()

    assert isinstance(late.result(), KeyError)
    assert (await store.jobs.get(JobId(item_id))).status is JobStatus.PENDING
    assert (await store.workers.get(PAPERS, WorkerId("w1"))).status is WorkerStatus.LOST


async def _failure(work: object) -> BaseException | None:
    try:
        await work  # type: ignore[misc]
    except Exception as exc:
        return exc
    return None


async def test_a_worker_told_to_stop_gives_its_job_back(store: MemoryStore, gate: asyncio.Event) -> None:
    item_id = await DrumbeatWorkBackend(store).pool("papers").push({"n": 1})
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run(store, CONFIG / "job_worker.yml", {"pool_id": "papers", "worker_id": "w1"}))
        assert EchoHooks.reached is not None
        await EchoHooks.reached.wait()
        task.cancel()

    job = await store.jobs.get(JobId(item_id))
    assert (job.status, job.attempts) == (JobStatus.PENDING, 0)
    assert (await store.workers.get(PAPERS, WorkerId("w1"))).status is WorkerStatus.TERMINATED


async def test_the_reaper_gives_up_silent_workers_and_releases_their_jobs(
    store: MemoryStore, clock: ManualClock, folder: Path
) -> None:
    work, registry = DrumbeatWorkBackend(store), DrumbeatRegistrationBackend(store)
    ids = [await work.pool(name).push({"n": 1}) for name in ("papers", "images")]
    await registry.register(PoolWorkerRegistration(worker_id="dead", pool_id="papers"))
    holder = registry.holder("dead")
    assert holder is not None
    work.register(holder)
    for name in ("papers", "images"):
        await work.pool(name).claim("dead")
    await clock.advance(timedelta(seconds=61))
    await registry.register(PoolWorkerRegistration(worker_id="fresh", pool_id="papers"))

    assert await run(store, folder / "stale_worker_reaper.yml", {"pool_id": "papers"}) == {"reaped_count": 1}

    assert (await store.workers.get(PAPERS, WorkerId("dead"))).status is WorkerStatus.LOST
    assert (await store.workers.get(PAPERS, WorkerId("fresh"))).status is WorkerStatus.ACTIVE
    assert {(await store.jobs.get(JobId(each))).status for each in ids} == {JobStatus.PENDING}
    assert await run(store, folder / "stale_worker_reaper.yml", {"pool_id": "papers"}) == {"reaped_count": 0}


async def test_the_reapers_threshold_is_an_input(store: MemoryStore, clock: ManualClock) -> None:
    await DrumbeatRegistrationBackend(store).register(PoolWorkerRegistration(worker_id="w1", pool_id="papers"))
    await clock.advance(timedelta(seconds=61))
    given = {"pool_id": "papers", "stale_threshold_seconds": 62}
    assert await run(store, CONFIG / "stale_worker_reaper.yml", given) == {"reaped_count": 0}


async def test_the_reaper_takes_a_job_from_a_worker_that_ended_with_it(store: MemoryStore) -> None:
    work, registry = DrumbeatWorkBackend(store), DrumbeatRegistrationBackend(store)
    item_id = await work.pool("papers").push({"n": 1})
    await registry.register(PoolWorkerRegistration(worker_id="w1", pool_id="papers"))
    await work.pool("papers").claim("w1")
    await registry.update_status("w1", "error")

    assert await run(store, CONFIG / "stale_worker_reaper.yml", {"pool_id": "papers"}) == {"reaped_count": 1}

    assert (await store.jobs.get(JobId(item_id))).status is JobStatus.PENDING


async def test_the_checker_starts_nobody_for_an_empty_queue(store: MemoryStore, folder: Path) -> None:
    """The seed's formula alone would start ten here (C50)."""
    assert await run(store, folder / "parallelization_checker.yml", {"pool_id": "papers"}) == {"spawned": 0}


async def test_workers_are_not_started_on_a_store_they_could_not_see(store: MemoryStore) -> None:
    await DrumbeatWorkBackend(store).pool("papers").push({"n": 1})
    with pytest.raises(InvalidSettings, match="other processes"):
        await run(store, CONFIG / "parallelization_checker.yml", {"pool_id": "papers"})
    assert not await store.workers.list(PAPERS)
