"""Failed attempts to connect are part of the error rate, and it is the same wherever a run is shown."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drumbeat.bench.control.act import RunActor
from drumbeat.bench.model import Conclude, Figures, Objective, RunEnding
from drumbeat.bench.model.best import measured_at_best
from drumbeat.bench.model.plan import ALL_KINDS
from drumbeat.bench.results.compare.batches import batches
from drumbeat.bench.results.partial_reads import read_errors
from drumbeat.bench.results.record import read_record, record_of_results
from drumbeat.bench.results.report import content
from drumbeat.bench.results.watch import RunWatch
from drumbeat.core.clock import ManualClock
from drumbeat.core.run import Run, RunId, RunStatus, Step, StepType, error_rate
from drumbeat.core.worker import WorkerStatus
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import Store
from drumbeat.store.memory import MemoryStore
from drumbeat.web.pages.run_live.figures import errors_text
from drumbeat.web.pages.run_result.kinds import kind_rows
from drumbeat.web.snapshot import run_document
from web.stream.scene import PLAN, RUN, SEARCH, Scene

LIMITED = replace(PLAN, objectives={ALL_KINDS: Objective(max_error_pct=5.0)})
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def scene(store: MemoryStore, clock: ManualClock) -> Scene:
    made = await Scene(store, clock).made(LIMITED)
    await made.led_to(RunStatus.STARTING, RunStatus.RUNNING)
    await made.joined("a", "b")
    return made


async def concluded(scene: Scene, clock: ManualClock) -> None:
    """The run with the result that its orchestrator stores."""
    await scene.led_to(RunStatus.STOPPING)
    for worker in scene.workers:
        here = await scene.store.workers.get(worker.pool_id, worker.worker_id)
        leaving = await scene.store.workers.move(here, WorkerStatus.DRAINING, "it was told to")
        await scene.store.workers.move(leaving, WorkerStatus.TERMINATED, "it left")
    ending = RunEnding(status=RunStatus.COMPLETED, completion_reason="DURATION", reason="over")
    lease = await scene.store.leases.acquire("controller", "me", timedelta(hours=1))
    assert lease is not None
    actor = RunActor(scene.store, FakeSpawner(clock), scene.run_id)
    await actor.act(Conclude(ending=ending, reason="over"), lease.fence)


@pytest.mark.parametrize(
    ("operations", "errors", "failed_connects", "rate"),
    [(0, 0, 0, 0.0), (90, 5, 10, 0.15), (100, 5, 0, 0.05), (0, 0, 3, 1.0)],
)
def test_a_failed_connect_counts_as_one_more_operation_which_failed(
    operations: int, errors: int, failed_connects: int, rate: float
) -> None:
    figures = Figures(since=AT, until=AT, operations=operations, errors=errors, failed_connects=failed_connects)
    step = Step(
        run_id=RUN, type=StepType.FIND_MAX, n=1, from_target=None, to_target=2, started_at=AT, operations=operations,
        errors=errors, failed_connects=failed_connects,
    )  # fmt: skip

    assert error_rate(operations, errors, failed_connects) == figures.error_rate == step.error_rate == rate


async def test_every_view_of_an_ended_run_has_the_error_rate_of_its_verdict(
    scene: Scene, store: Store, clock: ManualClock
) -> None:
    await scene.worked(15, failing=False)
    await scene.worked(5, failing=False, failed_connects=4)
    await concluded(scene, clock)

    seen, errors = await RunWatch(store, RUN).poll(), await read_errors(store, RUN)
    record, document = await read_record(store, RUN), run_document(seen)

    rate = 40 / 480
    assert seen.judgement.headline == "MISSED: error rate of all kinds: 8.333 %, limit 5 %"
    assert seen.objectives[0].found == pytest.approx(100 * rate)
    assert document["errors"] == {"count": 0, "failed_connects": 40, "rate": pytest.approx(rate)}
    assert errors_text(document["run"]["aggregate_metrics"]) == "0, 40 failed connects (8.33 %)"
    assert errors.failed_connects == 40
    assert errors.error_rate == pytest.approx(rate)
    assert kind_rows(seen)[0].error_rate == pytest.approx(rate)
    assert record.whole.error_rate == pytest.approx(rate)
    tile = next(each for each in content.tiles(record) if each.label == "errors")
    assert (tile.value, tile.note) == ("8.33 %", "0 failed, 40 failed connects")
    table = content.errors(record)
    assert table is not None
    assert ("connecting", "40") in [row[:2] for row in table.rows]
    assert record.result is not None
    assert "ERRORS" in record.result.custom_metrics["flags"]


async def test_live_objectives_and_figures_count_them_as_the_verdict_will(scene: Scene, store: Store) -> None:
    watch = RunWatch(store, RUN)
    await scene.worked(10, failing=False)
    await scene.changed(operations=220)
    good = await watch.poll()
    await scene.worked(5, failing=False, failed_connects=4)
    await scene.changed(operations=330)

    seen, errors = await watch.poll(), await read_errors(store, RUN)

    assert [(each.objectives[0].standing, each.failed_connects) for each in (good, seen)] == [("ok", 0), ("over", 40)]
    assert seen.figures is not None
    assert seen.figures.error_rate == pytest.approx(4 / 15)
    assert run_document(seen)["errors"]["rate"] == errors.error_rate == pytest.approx(40 / 370)


async def test_before_the_measurement_those_since_the_start_are_shown(store: MemoryStore, clock: ManualClock) -> None:
    scene = await Scene(store, clock).made(LIMITED)
    await scene.led_to(RunStatus.STARTING)
    await scene.joined("a")
    watch = RunWatch(store, RUN)
    seen = [await watch.poll()]
    for phase in ("WARMUP", "MEASUREMENT"):
        await scene.worked(2, phase=phase, failed_connects=3)
        seen.append(await watch.poll())

    assert [each.failed_connects for each in seen] == [0, 6, 6]


def test_a_search_is_judged_with_those_of_its_best_step() -> None:
    best = Step(
        run_id=RunId("r"), type=StepType.FIND_MAX, n=1, from_target=None, to_target=2, started_at=AT, operations=90, errors=5,
        failed_connects=10, outcome="STABLE",
    )  # fmt: skip
    run = replace(_a_run(), status=RunStatus.COMPLETED)

    found = measured_at_best(record_of_results(run, SEARCH, (), (best,)))

    assert found[ALL_KINDS].error_rate == 0.15


async def test_the_error_rate_of_a_few_seconds_counts_them_too(scene: Scene, store: Store) -> None:
    await scene.worked(5, failing=False, failed_connects=4)

    assert {each.error_rate for each in batches(await read_record(store, RUN))} == {8 / 30}


def _a_run() -> Run:
    return Run(run_id=RunId("r"), name="r", config={})
