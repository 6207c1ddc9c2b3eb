"""Watching runs in a store: what is new is read once, what went before is read beside it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from drumbeat.bench.model import ControllerState, Objective, RunEnding
from drumbeat.bench.results.conclusion import whole_run, with_metrics
from drumbeat.bench.results.record import read_record
from drumbeat.bench.results.watch import RunWatch, read_worker_curves
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import NotFound, StoreUnavailable
from drumbeat.core.run import RunId, RunStatus, Step, StepType
from drumbeat.core.worker import Health, WorkerId, WorkerStatus
from drumbeat.store import open_store
from drumbeat.store.interface import Store
from drumbeat.store.memory import MemoryStore
from web.stream.scene import PLAN, RUN, SEARCH, Scene, under_way

UNDER_WAY = (RunStatus.STARTING, RunStatus.RUNNING)


@pytest.fixture
async def scene(store: MemoryStore, clock: ManualClock) -> Scene:
    return await under_way(store, clock)


async def test_a_look_tells_what_all_workers_do_now(scene: Scene, store: Store) -> None:
    await scene.worked(5)

    seen = await RunWatch(store, RUN).poll()

    assert seen.figures is not None
    assert (round(seen.figures.qps), seen.figures.connections) == (22, 10)
    assert seen.figures.p95_ms == pytest.approx(2, rel=0.01)
    assert [(each.worker.worker_id, each.health, each.qps, each.reads) for each in seen.workers] == [
        ("a", Health.HEALTHY, 11, 10),
        ("b", Health.HEALTHY, 11, 10),
    ]
    assert {kind: round(rate) for kind, rate in seen.by_kind.items()} == {"read": 20, "write": 2}
    assert seen.plan == PLAN


async def test_objectives_are_judged_by_the_last_seconds(scene: Scene, store: Store) -> None:
    await scene.worked(5)

    found = (await RunWatch(store, RUN).poll()).objectives

    assert [(each.kind, each.standing) for each in found] == [("", "over"), ("read", "ok")]


async def test_a_worker_that_fell_silent_is_stale_then_lost(scene: Scene, store: Store, clock: ManualClock) -> None:
    watch = RunWatch(store, RUN)
    health = []
    for silent in (0, 31, 30):
        await clock.advance(timedelta(seconds=silent))
        await scene.worked(1, ["a"])
        health.append((await watch.poll()).workers[1].health)

    assert health == [Health.HEALTHY, Health.STALE, Health.LOST]


async def test_a_worker_that_was_killed_looks_lost_and_one_that_left_does_not(scene: Scene, store: Store) -> None:
    await scene.worked(1)
    killed, left = await store.workers.list(scene.pool_id)
    await store.workers.move(killed, WorkerStatus.ERROR, "its process is gone")
    await store.workers.move(left, WorkerStatus.TERMINATED, "it left")

    seen = await RunWatch(store, RUN).poll()

    assert [each.health for each in seen.workers] == [Health.LOST, Health.HEALTHY]


async def test_no_sample_is_counted_twice_however_often_one_looks(scene: Scene, store: Store) -> None:
    watch = RunWatch(store, RUN)
    for _ in range(30):
        await scene.worked(1)
        await watch.poll()
    await watch.catch_up()

    found = (await watch.poll()).reads, [y for _, y in watch.series().curves.series["qps"]]

    assert found == (600, [22.0] * 28)


async def test_a_sample_written_late_is_still_counted(scene: Scene, store: Store) -> None:
    watch = RunWatch(store, RUN)
    await scene.worked(10, ["a"])
    await watch.poll()
    await watch.catch_up()
    sample = scene._beat(scene.workers[1], "MEASUREMENT", 2.0).sample
    assert sample is not None
    late = replace(sample, age=timedelta(seconds=2))
    await store.samples.append(scene.pool_id, WorkerId("b"), "b", [late])

    assert (await watch.poll()).reads == 110


async def test_what_went_before_the_first_look_is_caught_up_with(scene: Scene, store: Store) -> None:
    await scene.decided("Spawn", "0 of 2 workers are here", worker_id="a")
    await scene.worked(300)
    watch = RunWatch(store, RUN)

    first = await watch.poll()
    early = watch.series()
    await watch.catch_up()
    course, last = watch.series(), await watch.poll()

    assert (first.reads, early.complete) == (None, False)
    assert (last.reads, course.complete) == (6000, True)
    assert len(course.curves.series["qps"]) == 298
    assert [each.what for each in course.decisions] == ["Spawn a"]


async def test_catching_up_may_be_cut_off_and_goes_on_where_it_was(
    scene: Scene, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.worked(300)
    watch = RunWatch(store, RUN)
    await watch.poll()
    for slices in (3, 1, 4):
        monkeypatch.setattr(watch, "_store", _Failing(store, slices))
        with pytest.raises(StoreUnavailable):
            await watch.catch_up()
    monkeypatch.setattr(watch, "_store", store)
    await watch.catch_up()

    assert (await watch.poll()).reads == 6000


class _Failing:
    """A store that gives so many slices of samples, and then nothing."""

    def __init__(self, store: MemoryStore, slices: int) -> None:
        self._store, self._left = store, slices
        self.samples = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list(self, *given: Any, **more: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise StoreUnavailable("gone")
        return await self._store.samples.list(*given, **more)


async def test_log_lines_are_brought_once(scene: Scene, store: Store) -> None:
    watch = RunWatch(store, RUN)
    await scene.logged("one", "two")
    first = (await watch.poll()).logs
    await scene.logged("three")
    second = (await watch.poll()).logs

    assert [[line.message for line in each] for each in (first, second, (await watch.poll()).logs)] == [
        ["one", "two"],
        ["three"],
        [],
    ]


async def test_the_first_look_brings_the_last_log_lines_of_many(scene: Scene, store: Store) -> None:
    await scene.logged(*(f"line {n}" for n in range(1203)))

    lines = (await RunWatch(store, RUN).poll()).logs

    assert (len(lines), lines[-1].message) == (500, "line 1202")


async def test_an_ended_run_is_told_by_its_result(scene: Scene, store: Store) -> None:
    await scene.worked(20)
    await scene.led_to(RunStatus.STOPPING, RunStatus.COMPLETED)
    await scene.resulted()

    seen = await RunWatch(store, RUN).poll()

    assert (seen.figures, seen.reads, seen.writes) == (None, 200, 20)
    assert [(each.kind, each.standing) for each in seen.objectives] == [("", "over"), ("read", "ok")]


async def test_an_ended_search_is_told_by_the_level_it_found(store: MemoryStore, clock: ManualClock) -> None:
    """Its result has a p95 of 2 ms over all its steps."""
    scene = await Scene(store, clock).made(replace(SEARCH, objectives={"": Objective(p95_ms=1.0)}))
    await scene.led_to(*UNDER_WAY, RunStatus.STOPPING, RunStatus.COMPLETED)
    await scene.resulted(find_max_result={"best_connections": 4})
    step = Step(
        run_id=RUN, type=StepType.FIND_MAX, n=1, from_target=None, to_target=4, started_at=clock.now(),
        operations=5, p95_ms=0.5, outcome="STABLE",
    )  # fmt: skip
    await store.steps.save([step])

    (kept,) = (await RunWatch(store, RUN).poll()).objectives

    assert (kept.found, kept.standing) == (0.5, "ok")


async def test_curves_that_a_result_kept_need_no_samples(scene: Scene, store: MemoryStore) -> None:
    await scene.worked(40)
    await scene.led_to(RunStatus.STOPPING)
    record = await read_record(store, RUN)
    ending = RunEnding(status=RunStatus.COMPLETED, completion_reason="DURATION", reason="")
    rows = with_metrics(whole_run(RUN, [], ending, await store.now()), record, ControllerState(), ending)
    await store.results.save(rows)
    await scene.led_to(RunStatus.COMPLETED)
    watch = RunWatch(cast(Store, _Failing(store, 0)), RUN)
    await watch.poll()
    await watch.catch_up()

    kept = watch.series().curves

    assert len(kept.series["qps"]) == 40
    assert [each.name for each in kept.phases] == ["MEASUREMENT"]


async def test_a_run_that_was_never_started_has_no_course(store: MemoryStore, clock: ManualClock) -> None:
    await Scene(store, clock, RunId("fresh")).made()
    watch = RunWatch(store, RunId("fresh"))

    seen = await watch.poll()
    await watch.catch_up()

    assert (seen.run.status, seen.workers, watch.series().curves.seconds) == (RunStatus.PREPARED, (), 0)


async def test_nobody_watches_a_run_that_is_not_there(store: Store) -> None:
    with pytest.raises(NotFound):
        await RunWatch(store, RunId("nope")).poll()


async def test_what_the_server_said_is_gathered(scene: Scene, store: Store) -> None:
    for waiting in (0, 3, 1):
        probe = {"sessions": 10, "waiting": waiting, "wait_events": {"Lock:tuple": waiting}}
        await scene.decided("Remember", "x", view={"probe": probe})
        await scene.clock.advance(timedelta(seconds=1))
    watch = RunWatch(store, RUN)
    await watch.poll()

    server = watch.series().server

    assert [y for _, y in server.series["waiting"]] == [0, 3, 1]
    assert "active" not in server.series
    assert server.waits == {"Lock:tuple": 4}


async def test_one_workers_course_is_its_own(scene: Scene, store: Store) -> None:
    await scene.worked(5)
    await scene.worked(5, ["b"])

    lengths = [len((await read_worker_curves(store, RUN, WorkerId(name))).series["qps"]) for name in ("a", "b")]

    assert lengths == [5, 10]


async def test_it_is_the_same_on_a_real_database(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_store(f"sqlite:///{tmp_path}/s.db", create=True) as store:
        scene = await Scene(store, clock).made()
        await scene.led_to(*UNDER_WAY)
        await scene.joined("a")
        await scene.worked(3)
        await scene.logged("said", worker="a")
        seen = await RunWatch(store, RUN).poll()

    assert [(each.worker.worker_id, each.qps) for each in seen.workers] == [("a", 11)]
    assert [line.message for line in seen.logs] == ["said"]
