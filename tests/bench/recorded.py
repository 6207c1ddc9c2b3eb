"""Runs as they are read back, made up: seconds with noise that resembles its neighbours, steps, workers, decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from math import exp, sqrt
from random import Random
from typing import Any

from drumbeat.bench.model.plan import ALL_KINDS, LoadMode, Objective, Prices, QpsPlan, RunPlan
from drumbeat.bench.model.record import (
    DecisionRecord,
    FailureExample,
    Latency,
    Measured,
    PhaseRecord,
    RunRecord,
    Second,
    ServerSecond,
    WorkerRecord,
    WorkerSecond,
)
from drumbeat.core.histogram import Histogram, merged
from drumbeat.core.run import Phase, Result, Run, RunId, RunStatus, Step, StepType
from drumbeat.core.worker import WorkerId, WorkerStatus

BEGAN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
_SHAPE = 40  #: latencies in a second's histogram


def noise(rng: Random, length: int, spread: float, likeness: float) -> list[float]:
    """Factors around 1, each like the one before it."""
    value, found = rng.gauss(0, 1), []
    for _ in range(length):
        found.append(1 + spread * value)
        value = likeness * value + sqrt(1 - likeness**2) * rng.gauss(0, 1)
    return found


@cache
def latencies(median_ms: float) -> bytes:
    """A second's histogram around a median, the same each time."""
    rng = Random(7)
    histogram = Histogram()
    histogram.record_all([int(median_ms * 1e6 * exp(rng.gauss(0, 0.5))) for _ in range(_SHAPE)])
    return histogram.to_bytes()


def seconds(
    seed: int,
    length: int = 120,
    qps: float = 1000,
    median_ms: float = 5,
    error_rate: float = 0.0,
    spread: float = 0.1,
    likeness: float = 0.7,
    warmup: int = 5,
) -> list[Second]:
    """Warm-up, then a measurement; slower seconds have longer latencies."""
    factors = noise(Random(seed), length + warmup, spread, likeness)
    return [
        second(
            offset,
            phase=Phase.WARMUP if offset < warmup else Phase.MEASUREMENT,
            qps=qps * factor,
            median_ms=round(median_ms / max(factor, 0.1), 2),
            error_rate=error_rate,
        )
        for offset, factor in enumerate(factors)
    ]


def second(offset: int, *, phase: str, qps: float, median_ms: float, error_rate: float = 0.0) -> Second:
    packed = latencies(median_ms)
    known = Latency.of(Histogram.from_bytes(packed))
    return Second(
        offset=offset,
        phase=phase,
        operations=qps,
        errors=qps * error_rate,
        mean_ms=known.mean_ms,
        p50_ms=known.p50_ms,
        p95_ms=known.p95_ms,
        p99_ms=known.p99_ms,
        histogram=packed,
        held=10,
        target=10,
        cpu_percent=40 + offset % 7,
        memory_percent=30,
        workers=2,
    )


def measured(timeline: Sequence[Second]) -> Measured:
    """What the measured seconds come to."""
    counted = [each for each in timeline if each.phase == Phase.MEASUREMENT]
    whole = merged(Histogram.from_bytes(each.histogram) for each in counted)
    return Measured(
        operations=round(sum(each.operations for each in counted)),
        errors=round(sum(each.errors for each in counted)),
        reads=round(sum(each.operations for each in counted) * 0.8),
        seconds=len(counted),
        latency=Latency.of(whole),
        histogram=whole.to_bytes(),
    )


def run(name: str = "a run", status: RunStatus = RunStatus.COMPLETED, **known: Any) -> Run:
    config: Mapping[str, Any] = known.pop(
        "config", {"target": {"url": "postgresql://bench@db/app"}, "load_mode": "CONCURRENCY"}
    )
    fields: dict[str, Any] = {"run_id": RunId(name), "started_at": BEGAN, "created_at": BEGAN, "completion_reason": "DURATION"}
    return Run(name=name, status=status, config=config, **(fields | known))


def record(name: str = "a run", seed: int = 1, plan: RunPlan | None = None, **shape: Any) -> RunRecord:
    """A plain run: its seconds and what they come to."""
    timeline = seconds(seed, **shape)
    total = measured(timeline)
    return RunRecord(
        run=run(name),
        plan=plan or RunPlan(),
        origin=BEGAN,
        ended=BEGAN + timedelta(seconds=len(timeline)),
        timeline=tuple(timeline),
        totals={ALL_KINDS: total} if total.operations else {},
    )


def record_of(series: Sequence[tuple[float, float]], name: str = "a run") -> RunRecord:
    """A run of which the operations of each measured second and their median latency in milliseconds are known."""
    timeline = tuple(
        second(n, phase=Phase.MEASUREMENT, qps=operations, median_ms=round(max(median, 0.01), 2))
        for n, (operations, median) in enumerate(series)
    )
    return RunRecord(
        run=run(name),
        plan=RunPlan(),
        origin=BEGAN,
        ended=BEGAN + timedelta(seconds=len(timeline)),
        timeline=timeline,
        totals={ALL_KINDS: measured(timeline)},
    )


def rich(name: str = "checkout, 2 workers", seed: int = 3) -> RunRecord:
    """A run of which everything is known."""
    plan = RunPlan(
        load_mode=LoadMode.QPS,
        qps=QpsPlan(target_qps=1000),
        objectives={
            ALL_KINDS: Objective(p95_ms=50, p99_ms=20),
            "read": Objective(p95_ms=12.0, max_error_pct=1),
            "gone": Objective(p95_ms=5),
        },
        prices=Prices(worker_hour=0.2, target_hour=1.5, currency="EUR"),
    )
    plain = record(name, seed, plan, length=300, warmup=30, error_rate=0.002, likeness=0.8)
    kinds = {"read": replace(plain.whole, operations=plain.whole.operations * 8 // 10), "write": plain.whole}
    return replace(
        plain,
        totals={**plain.totals, **kinds},
        workers=tuple(_worker(plain, n) for n in range(2)),
        phases=(PhaseRecord(name="MEASUREMENT", began=30, ended=330, whole=plain.whole, kinds=kinds),),
        decisions=_decisions(),
        server=tuple(_server(offset) for offset in range(330)),
        failures=(
            FailureExample(kind="read", error_class="DATABASE_ERROR", sqlstate="40001", message="could not serialize access"),
        ),
    )


def _worker(plain: RunRecord, number: int) -> WorkerRecord:
    series = [
        WorkerSecond(offset=each.offset + 1, qps=each.qps / 2, p95_ms=each.p95_ms, held=5, target=5, cpu_percent=50 + number)
        for each in plain.timeline
    ]
    return WorkerRecord(
        worker_id=WorkerId(f"w{number}"),
        slot=number,
        status=WorkerStatus.TERMINATED,
        host="host-1",
        began=BEGAN,
        ended=plain.ended,
        measured=replace(plain.whole, operations=plain.whole.operations // 2),
        series=tuple(series),
    )


def _decisions() -> tuple[DecisionRecord, ...]:
    told = [
        (0, "START", ""),
        (30, "SET_PHASE MEASUREMENT", "warmup is over"),
        (120, "SCALE_DOWN w1", "CPU 91 % over 80 % for 2 intervals"),
        (200, "GUARDRAIL_WARNING w1", "memory 84 %"),
    ]
    return tuple(DecisionRecord(at=BEGAN + timedelta(seconds=s), offset=s, what=what, reason=why) for s, what, why in told)


def _server(offset: int) -> ServerSecond:
    waits = {"Lock:transactionid": offset % 3, "IO:DataFileRead": 2}
    return ServerSecond(
        offset=offset, sessions=12, active=8 + offset % 3, waiting=offset % 3, lock_waits=offset % 2, wait_events=waits
    )


def search(name: str = "search", best: int = 60, qps: float = 5000, p95_ms: float = 10.0, seed: int = 5) -> RunRecord:
    """A find-max run that stepped up by tens until past ``best``."""
    levels = [*range(10, best + 20, 10), best, best + 5]
    steps = tuple(_step(n, level, best, qps, p95_ms) for n, level in enumerate(levels, 1))
    plan = RunPlan(load_mode=LoadMode.FIND_MAX_CONCURRENCY, objectives={})
    usl = {"fitted": True, "lambda": qps / best * 1.6, "sigma": 0.005, "kappa": 1e-4, "r_squared": 0.97, "confidence": "medium"}
    found = {"max_type": "TRUE_MAX", "best_connections": best, "best_qps": qps, "usl": usl | {"peak_connections": best * 1.1}}
    plain = record(name, seed, plan, length=len(levels) * 20)
    return replace(plain, steps=steps, results=(Result(run_id=RunId(name), find_max_result=found),))


def _step(n: int, level: int, best: int, qps: float, p95_ms: float) -> Step:
    stable = level <= best
    return Step(
        run_id=RunId("search"),
        type=StepType.FIND_MAX,
        n=n,
        from_target=max(level - 10, 0),
        to_target=level,
        started_at=BEGAN + timedelta(seconds=20 * n),
        operations=10_000,
        errors=0 if stable else 30,
        qps=qps * min(level / best, 1.0) * (1 if stable else 0.97),
        p95_ms=p95_ms * (1 if stable else 1.6),
        p99_ms=p95_ms * (2 if stable else 4),
        qps_vs_prior=2.0,
        p95_vs_baseline=0.0 if stable else 60.0,
        outcome="STABLE" if stable else "DEGRADED",
        reason="within bounds" if stable else "p95 60 % above the first step",
        is_probe=level % 10 != 0,
    )
