"""The best level a find-max run found, as its result and its steps tell."""

from dataclasses import dataclass

from drumbeat.bench.model.record import RunRecord
from drumbeat.core.run import Step, StepType

STABLE = "STABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The highest stable level, and what it did."""

    connections: float
    qps: float | None = None
    step: Step | None = None  #: the last stable one at that level


def best_of(record: RunRecord) -> Best | None:
    """What the result says, else the highest stable step; None: no stable level."""
    told = record.find_max_result
    stable = [step for step in find_max_steps(record) if step.outcome == STABLE]
    highest = max((step.to_target for step in stable), default=None)
    level = _number(told["best_connections"]) if "best_connections" in told else highest
    if level is None:
        return None
    step = next((step for step in reversed(stable) if step.to_target == level), None)
    return Best(connections=level, qps=_number(told.get("best_qps")) or (step.qps if step else None), step=step)


def find_max_steps(record: RunRecord) -> list[Step]:
    return [step for step in record.steps if step.type is StepType.FIND_MAX]


def knee_of(record: RunRecord) -> float | None:
    """Where throughput peaks by the fitted scalability law."""
    usl = record.find_max_result.get("usl") or {}
    return _number(usl.get("peak_connections"))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
