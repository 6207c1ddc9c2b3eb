"""What a whole run came to, from its workers' results."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.bench.model import (
    ControllerState,
    DecisionRecord,
    Latency,
    LoadMode,
    Measured,
    Objective,
    RunEnding,
    RunPlan,
    RunRecord,
    WorkerRecord,
)
from drumbeat.bench.results.conclusion import SampledResult, replaced_span, unfinished, whole_run, with_metrics
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Phase, Result, Run, RunId, RunStatus, Step, StepType
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import WorkerId, WorkerStatus

BEGAN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN = RunId("r")
ENDING = RunEnding(status=RunStatus.COMPLETED, completion_reason="DURATION", reason="measured for 20 s")


def row(worker: str, operations: int, seconds: float, kind: str | None = None) -> Result:
    return Result(
        run_id=RUN,
        worker_id=WorkerId(worker),
        kind=kind,
        status=RunStatus.COMPLETED,
        operations=operations,
        qps=operations / seconds,
    )


def record(*said: tuple[float, str], began: float | None = 0.0) -> RunRecord:
    """A run whose measurement began, in which this was decided."""
    run = Run(run_id=RUN, name="r", config={}, status=RunStatus.STOPPING)
    if began is not None:
        run = replace(run, warmup_ended_at=BEGAN + timedelta(seconds=began))
    decided = [DecisionRecord(at=BEGAN + timedelta(seconds=at), offset=at, what=what, reason="") for at, what in said]
    return RunRecord(run=run, plan=RunPlan(), origin=BEGAN, decisions=tuple(decided))


def rates(rows: Sequence[Result], span: float | None) -> dict[str | None, float | None]:
    return {each.kind: each.qps for each in whole_run(RUN, rows, ENDING, BEGAN, span)}


def test_operations_of_a_worker_and_of_the_one_that_replaced_it_are_divided_by_the_whole_measurement() -> None:
    rows = [row("a", 900, 9.0), row("a", 450, 9.0, "READ"), row("b", 1100, 11.0), row("b", 550, 11.0, "READ")]

    assert rates(rows, 20.0) == {None: pytest.approx(100), "READ": pytest.approx(50)}


def test_a_runs_counts_are_the_sums_of_its_workers() -> None:
    rows = [replace(row("a", 900, 9.0), reads=600, writes=300, errors=7), replace(row("b", 100, 9.0), reads=100, errors=2)]

    (whole,) = whole_run(RUN, rows, ENDING, BEGAN)

    assert (whole.operations, whole.reads, whole.writes, whole.errors) == (1000, 700, 300, 9)


def test_a_worker_that_left_no_final_result_is_unfinished() -> None:
    cut_off = replace(row("b", 100, 9.0), status=RunStatus.RUNNING)

    assert unfinished([row("a", 900, 9.0), cut_off, row("c", 5, 1.0, "READ")], map(WorkerId, "abcd")) == ["b", "c", "d"]


STAYED, LATER = {"began": 0, "ended": 31}, {"began": 16, "ended": 31}
LOST = {"began": 0, "ended": 15, "status": WorkerStatus.LOST, "extra": {"from_samples": True}}
LEFT = {"began": 0, "ended": 15}


def worker_record(name: str, began: float, ended: float, **known: Any) -> WorkerRecord:
    at = {"began": BEGAN + timedelta(seconds=began), "ended": BEGAN + timedelta(seconds=ended)}
    return WorkerRecord(**{"worker_id": WorkerId(name), "status": WorkerStatus.TERMINATED, **at, **known})


@pytest.mark.parametrize(
    ("what", "workers", "rows", "rate"),
    [
        ("both heard late of both phases", [STAYED, STAYED], [(28_500, 28.5), (28_500, 28.5)], 2000),
        ("it heard even later", [STAYED], [(25_000, 25.0)], 1000),
        ("it left as its decision was stored", [STAYED | {"ended": 29.5}], [(28_500, 28.5)], 1000),
        ("one was lost, one stayed", [STAYED, LOST], [(28_500, 28.5), (14_000, 14.0)], 42_500 / 28.5),
        ("one came later", [STAYED, LATER], [(28_500, 28.5), (13_000, 13.0)], 41_500 / 28.5),
        ("one was lost and replaced", [LOST, LATER], [(15_000, 15.0), (12_000, 12.0)], 900),
        ("one left early and was replaced", [LEFT, LATER], [(15_000, 15.0), (12_000, 12.0)], 900),
        ("it was lost", [LOST], [(6_000, 6.0)], 200),
    ],
)
def test_the_whole_measurement_counts_only_if_no_worker_was_there_all_the_time(
    what: str, workers: list[dict[str, Any]], rows: list[tuple[int, float]], rate: float
) -> None:
    """Workers hear of a phase a moment after it was decided, on busy hosts or slow stores seconds after it."""
    here = tuple(worker_record(str(n), **each) for n, each in enumerate(workers))
    known = replace(record((30, "StopLoad")), workers=here)
    counted = [row(str(n), *each) for n, each in enumerate(rows)]

    assert rates(counted, replaced_span(known)) == {None: pytest.approx(rate)}, what


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ([(20, "StopLoad")], 20),
        ([(20, "STOP")], 20),
        ([(7, "AskToDrain"), (9, "AskToDrain")], 7),
        ([(3, "Spawn worker-1")], None),
    ],
)
def test_the_measurement_lasts_from_its_phase_until_the_load_is_stopped(
    said: list[tuple[float, str]], seconds: float | None
) -> None:
    assert replaced_span(record(*said)) == seconds


def test_a_run_that_was_never_measured_has_no_span() -> None:
    assert replaced_span(record((20, "StopLoad"), began=None)) is None


@pytest.mark.parametrize(
    ("worker", "flags"),
    [
        (WorkerRecord(worker_id=WorkerId("a"), status=WorkerStatus.TERMINATED, error="DATABASE_ERROR 40001"), []),
        (WorkerRecord(worker_id=WorkerId("a"), status=WorkerStatus.LOST), ["WORKERS_LOST"]),
        (WorkerRecord(worker_id=WorkerId("a"), status=WorkerStatus.TERMINATED, extra={"from_samples": True}), ["WORKERS_LOST"]),
    ],
)
def test_a_worker_is_lost_by_how_it_ended_not_by_what_failed_in_it(worker: WorkerRecord, flags: list[str]) -> None:
    known = replace(record(), workers=(worker,))

    (whole,) = with_metrics(whole_run(RUN, [], ENDING, BEGAN), known, ControllerState(), ENDING)

    assert whole.custom_metrics["flags"] == flags
    assert bool(whole.custom_metrics["doubts"]) == bool(flags)


def sample(n: int, seconds: float, operations: int, phase: Phase = Phase.MEASUREMENT, **extra: bool) -> StoredSample:
    return StoredSample(
        pool_id=PoolId(RUN),
        worker_id=WorkerId("a"),
        n=n,
        at=BEGAN + timedelta(seconds=n),
        interval=timedelta(seconds=seconds),
        phase=phase,
        operations=operations,
        extra=extra,
    )


def sampled(*samples: StoredSample) -> Sequence[Result]:
    result = SampledResult(RUN, WorkerId("a"))
    for each in samples:
        result.add(each)
    return result.rows()


def test_the_time_a_worker_drained_is_no_time_it_measured() -> None:
    (told,) = sampled(sample(1, 1, 100), sample(2, 1, 98), sample(3, 30, 2, draining=True))

    assert told.operations == 200
    assert told.qps == pytest.approx(100)


def test_a_lost_workers_warmup_is_no_part_of_its_result() -> None:
    (told,) = sampled(sample(1, 1, 500, Phase.WARMUP), sample(2, 1, 100))

    assert told.operations == 100
    assert told.qps == pytest.approx(100)


def test_a_searchs_levels_are_kept_as_they_stood_at_the_level_it_found() -> None:
    plan = RunPlan(load_mode=LoadMode.FIND_MAX_CONCURRENCY, objectives={"": Objective(p95_ms=20), "READ": Objective(p99_ms=6)})
    step = Step(
        run_id=RUN, type=StepType.FIND_MAX, n=1, from_target=None, to_target=4, started_at=BEGAN,
        operations=5, p95_ms=10.0, outcome="STABLE",
    )  # fmt: skip
    slow = Measured(operations=9, latency=Latency(p95_ms=90.0))
    known = replace(record(), plan=plan, steps=(step,), totals={"": slow})
    found = {"best_connections": 4, "best_kinds": {"READ": {"operations": 3, "p99_ms": 5.0}}}

    (whole,) = with_metrics(whole_run(RUN, [], ENDING, BEGAN), known, ControllerState(), replace(ENDING, result=found))

    assert [(each["kind"], each["found"]) for each in whole.custom_metrics["slo"]] == [(None, 10.0), ("READ", 5.0)]
