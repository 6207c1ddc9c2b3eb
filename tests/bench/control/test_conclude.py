"""The result of a run is computed however many samples it has, and however long that takes."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.bench.control.observe import Observer
from drumbeat.bench.control.orchestrator import Orchestrator
from drumbeat.bench.model import ControllerState, FindMaxState, RunEnding, Window
from drumbeat.bench.results import record
from drumbeat.bench.run_state import state_document
from drumbeat.core.clock import ManualClock
from drumbeat.core.run import Run, RunId, RunStatus
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.runtime.beat import BeatReport
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.memory import MemoryStore
from simulate.bench_world import unwatched
from web.stream.scene import SEARCH, SECOND, Scene

DONE = RunEnding(status=RunStatus.COMPLETED, completion_reason="DURATION", reason="measured for 20 s")
READ_TAKES = timedelta(seconds=19)  #: a beat (pass of the control loop) gives an ordinary action 60 s


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


async def ended(store: MemoryStore, clock: ManualClock, *lost: str) -> Scene:
    """A run whose workers have all left; only the ``lost`` ones left no result of their own."""
    scene = await Scene(store, clock).made()
    await scene.led_to(RunStatus.STARTING, RunStatus.RUNNING)
    await scene.joined("a", "b")
    await scene.worked(20)
    await scene.led_to(RunStatus.STOPPING)
    await scene.changed(phase="PROCESSING", controller_state=state_document(ControllerState(workers=2, ending=DONE)))
    for each in scene.workers:
        worker = await store.workers.get(each.pool_id, each.worker_id)
        if each.worker_id in lost:
            worker = await store.workers.move(worker, WorkerStatus.LOST, "it was silent")
        else:
            worker = await store.workers.move(worker, WorkerStatus.DRAINING, "it was told to")
            worker = await store.workers.move(worker, WorkerStatus.TERMINATED, "it left")
        await store.workers.mark_reaped(worker.pool_id, worker.worker_id)
    return scene


def slow_reads(store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """From now on each read of samples takes ``READ_TAKES``. Returns what was asked for, which the reads add to."""
    asked: list[dict[str, Any]] = []
    quick = store.samples.list

    async def slow(*args: Any, **filters: Any) -> Sequence[StoredSample]:
        asked.append(filters)
        await clock.sleep(READ_TAKES)
        return await quick(*args, **filters)

    monkeypatch.setattr(store.samples, "list", slow)
    return asked


def conductor(store: MemoryStore, clock: ManualClock) -> Orchestrator:
    return Orchestrator(store, FakeSpawner(clock), clock, "me", unwatched)


async def until_done(clock: ManualClock, task: "asyncio.Task[Any]", within: float) -> None:
    for _ in range(round(within)):
        if task.done():
            return
        await clock.advance(SECOND, settle=200)


async def run_of(store: MemoryStore) -> Run:
    return await store.runs.get(RunId("run-1"))


async def test_a_result_that_takes_many_minutes_ends_the_run_all_the_same(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await ended(store, clock, "b")
    monkeypatch.setattr(record, "_MOST_SAMPLES", 4)
    asked = slow_reads(store, clock, monkeypatch)
    reports: list[BeatReport] = []

    async with asyncio.TaskGroup() as group:
        conduct = conductor(store, clock).conduct(scene.run_id, asyncio.Event(), reports.append)
        task = group.create_task(conduct)
        await until_done(clock, task, 3600)
        assert task.done(), [report.error for report in reports]

    assert task.result() is RunStatus.COMPLETED
    assert len(asked) * READ_TAKES > timedelta(minutes=5)
    whole = next(row for row in await store.results.list(scene.run_id) if row.worker_id is None and row.kind is None)
    assert whole.operations == (await run_of(store)).operations == 20 * 2 * 11


async def test_computing_a_result_is_given_up_when_the_process_leaves_the_run(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await ended(store, clock)
    slow_reads(store, clock, monkeypatch)
    leave = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(conductor(store, clock).conduct(scene.run_id, leave))
        await until_done(clock, task, 40)
        assert not task.done()
        leave.set()
        await until_done(clock, task, 3)
        assert task.done()

    assert (await run_of(store)).status is RunStatus.STOPPING
    assert [run.run_id for run in await conductor(store, clock).orphans()] == [scene.run_id]


async def test_a_lost_workers_samples_all_count_however_many_they_are(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await ended(store, clock, "a", "b")
    quick = store.samples.list

    async def few(*args: Any, limit: int = 10_000, **filters: Any) -> Sequence[StoredSample]:
        return await quick(*args, limit=min(limit, 7), **filters)

    monkeypatch.setattr(store.samples, "list", few)
    monkeypatch.setattr(record, "_MOST_SAMPLES", 7)

    await conductor(store, clock).conduct(scene.run_id, asyncio.Event())

    rows = {row.worker_id: row.operations for row in await store.results.list(scene.run_id) if row.kind is None}
    assert rows == {None: 440, WorkerId("a"): 220, WorkerId("b"): 220}


async def test_a_long_window_is_read_over_several_beats(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await Scene(store, clock).made(SEARCH)
    await scene.led_to(RunStatus.STARTING, RunStatus.RUNNING)
    await scene.joined("a")
    began = await store.now()
    await scene.worked(100)
    window = Window(since=began, until=await store.now())
    await scene.worked(10)
    await scene.changed(controller_state=state_document(ControllerState(find_max=FindMaxState(window=window))))
    slow_reads(store, clock, monkeypatch)
    observer = Observer(store, FakeSpawner(clock), scene.run_id, lambda: None)

    view = None
    for _ in range(12):
        async with asyncio.TaskGroup() as group:
            observing = group.create_task(observer.observe(timedelta()))
            await until_done(clock, observing, 60)  # a beat gives up after so many seconds
            if observing.done():
                view = observing.result()
            else:
                observing.cancel()
        if view is not None:
            break

    assert view is not None
    assert view.figures is not None
    assert view.figures.operations == 1100
