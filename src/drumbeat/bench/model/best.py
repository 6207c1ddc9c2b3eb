"""Finds the best level of a find-max run: the highest number of connections at which the database was stable."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drumbeat.bench.model.plan import ALL_KINDS
from drumbeat.bench.model.record import Latency, Measured, RunRecord
from drumbeat.core.run import Step, StepType

STABLE = "STABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The highest stable number of connections of a find-max run, and its throughput."""

    connections: float
    qps: float | None = None
    step: Step | None = None  #: the last stable step with that many connections


def best_of(record: RunRecord) -> Best | None:
    """Return the highest stable number of connections, from the run's result or, before the run has ended, from its steps; None
    if no number was stable."""
    result = record.find_max_result
    stable = [step for step in find_max_steps(record) if step.outcome == STABLE]
    highest = max((step.to_target for step in stable), default=None)
    level = _number(result["best_connections"]) if "best_connections" in result else highest
    if level is None:
        return None
    step = next((step for step in reversed(stable) if step.to_target == level), None)
    return Best(connections=level, qps=_number(result.get("best_qps")) or (step.qps if step else None), step=step)


def measured_at_best(record: RunRecord) -> Mapping[str, Measured]:
    """Return what find-max measured at its best number of connections, by kind of operation; empty if none was stable."""
    best = best_of(record)
    if best is None or best.step is None:
        return {}
    step, kinds = best.step, record.find_max_result.get("best_kinds") or {}
    overall = Measured(
        operations=step.operations,
        errors=step.errors,
        failed_connects=step.failed_connects,
        latency=Latency(p50_ms=step.p50_ms, p95_ms=step.p95_ms, p99_ms=step.p99_ms),
    )
    return {ALL_KINDS: overall, **{str(kind): _kind(figures) for kind, figures in kinds.items()}}


def _kind(figures: Mapping[str, Any]) -> Measured:
    p50, p95, p99 = (_number(figures.get(name)) for name in ("p50_ms", "p95_ms", "p99_ms"))
    return Measured(
        operations=int(figures.get("operations") or 0),
        errors=int(figures.get("errors") or 0),
        latency=Latency(p50_ms=p50, p95_ms=p95, p99_ms=p99),
    )


def find_max_steps(record: RunRecord) -> list[Step]:
    return [step for step in record.steps if step.type is StepType.FIND_MAX]


def knee_of(record: RunRecord) -> float | None:
    """Return the number of connections with the highest throughput, estimated by the Universal Scalability Law; None if the
    result has no such estimate."""
    usl = record.find_max_result.get("usl") or {}
    return _number(usl.get("peak_connections"))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
