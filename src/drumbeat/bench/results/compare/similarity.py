"""Judges whether two runs are similar enough to compare: first by reasons that forbid it, then by a weighted score. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from drumbeat.bench.model.best import best_of, find_max_steps
from drumbeat.bench.model.plan import LoadMode
from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.compare.batches import quality

LEAST_ALIKE = 0.55  #: the lowest similarity at which runs are compared
STEADY = 0.5  #: the lowest steadiness (``quality``) of a run that can be compared
_UNKNOWN = 0.5
_ADJACENT = 0.5
_SIZES = ("XSMALL", "SMALL", "MEDIUM", "LARGE", "XLARGE", "2XLARGE", "3XLARGE", "4XLARGE", "5XLARGE", "6XLARGE")
_SHORT = {"XS": "XSMALL", "S": "SMALL", "M": "MEDIUM", "L": "LARGE", "XL": "XLARGE"} | {
    f"{n}XL": f"{n}XLARGE" for n in range(2, 7)
}


class Confidence(StrEnum):
    """How far a comparison can be trusted."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    EXCLUDED = "excluded"  #: the runs are too different to compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Similarity:
    """How similar two runs are, from 0 to 1, and reasons not to compare them."""

    score: float
    parts: Mapping[str, float]
    gates: Sequence[str] = ()  #: reasons not to compare the runs, whatever the score

    @property
    def confidence(self) -> Confidence:
        if self.gates or self.score < LEAST_ALIKE:
            return Confidence.EXCLUDED
        if self.score < 0.70:
            return Confidence.LOW
        return Confidence.MEDIUM if self.score < 0.85 else Confidence.HIGH


Feature = Callable[[RunRecord], Any]
Alike = Callable[[Any, Any], float]


def similarity(before: RunRecord, after: RunRecord) -> Similarity:
    parts = {name: _part(feature, alike, before, after) for name, (_, feature, alike) in _weights(before).items()}
    score = sum(weight * parts[name] for name, (weight, _, _) in _weights(before).items()) / 100
    return Similarity(score=score, parts=parts, gates=tuple(_gates(before, after)))


def _part(feature: Feature, alike: Alike, before: RunRecord, after: RunRecord) -> float:
    one, other = feature(before), feature(after)
    return _UNKNOWN if one is None or other is None else alike(one, other)


def _gates(before: RunRecord, after: RunRecord) -> list[str]:
    gates = []
    if before.plan.load_mode is not after.plan.load_mode:
        gates.append(f"the load modes differ: {before.plan.load_mode} and {after.plan.load_mode}")
    if target_kind(before) != target_kind(after):
        gates.append(f"the targets are of different kinds: {target_kind(before)} and {target_kind(after)}")
    return [*gates, *(gate for record in (before, after) if (gate := _own_gate(record)))]


def _own_gate(record: RunRecord) -> str | None:
    """Return why a run cannot be compared with any other (unsteady throughput, or a search without stable result), or None."""
    if record.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY:
        return None if best_of(record) else f"{record.run.run_id} found no stable level"
    steady = quality(record)
    if steady is None or steady >= STEADY:
        return None
    return f"{record.run.run_id} was not steady: steadiness of throughput {steady:.2f}, expected at least {STEADY}"


def target_kind(record: RunRecord) -> str:
    """Return the type of database under test, from the target's ``kind`` or its URL."""
    target = _target(record)
    url = str(target.get("url", ""))
    kind = str(target.get("kind") or url.partition("://")[0] or "unknown").partition("+")[0].lower()
    return "postgresql" if kind in ("postgres", "postgresql") else kind


def _target(record: RunRecord) -> Mapping[str, Any]:
    target = record.run.config.get("target")
    return target if isinstance(target, Mapping) else {}


def near(one: float, other: float) -> float:
    """Return how close two numbers are, from 1 (equal) to 0: 1 − |a − b| / max(|a|, |b|, 1)."""
    return 1 - abs(one - other) / max(abs(one), abs(other), 1)


def same(one: Any, other: Any) -> float:
    return 1.0 if one == other else 0.0


def sizes_alike(one: str, other: str) -> float:
    """Return how close two database sizes are: 1 if equal, 0.5 if adjacent such as S and M, else 0."""
    named = [_SHORT.get(size.upper(), size.upper().replace("-", "")) for size in (one, other)]
    if named[0] == named[1]:
        return 1.0
    places = [_SIZES.index(size) for size in named if size in _SIZES]
    return _ADJACENT if len(places) == 2 and abs(places[0] - places[1]) == 1 else 0.0


def _size(record: RunRecord) -> str | None:
    """Return the size that the run gave its Snowflake warehouse; None if it gave it none."""
    warehouse = _target(record).get("warehouse")
    return warehouse.get("size") if isinstance(warehouse, Mapping) else None


def _cache(record: RunRecord) -> Any:
    return _target(record).get("use_cached_result")


def _read_share(record: RunRecord) -> float | None:
    whole = record.whole
    return whole.reads / whole.operations * 100 if whole.operations else None


def _duration(record: RunRecord) -> float:
    return record.plan.duration.total_seconds()


def _best_level(record: RunRecord) -> float | None:
    best = best_of(record)
    return best.connections if best else None


def _best_qps(record: RunRecord) -> float | None:
    best = best_of(record)
    return best.qps if best else None


def _degraded_at(record: RunRecord) -> float | None:
    """Return the lowest number of connections that a find-max run found unstable; None if there is none."""
    levels = [step.to_target for step in find_max_steps(record) if step.outcome not in ("STABLE", "HELD", None)]
    return min(levels, default=None)


def _per_connection(record: RunRecord) -> float | None:
    best = best_of(record)
    return best.qps / best.connections if best and best.qps is not None and best.connections else None


def _steps(record: RunRecord) -> int | None:
    return len(find_max_steps(record)) or None


def _reason_class(record: RunRecord) -> str | None:
    """Return why a find-max run ended its search: the outcome of its first step that was not stable; None if all were."""
    outcomes = (step.outcome for step in find_max_steps(record))
    return next((outcome for outcome in outcomes if outcome not in ("STABLE", "HELD", None)), None)


def _weights(record: RunRecord) -> Mapping[str, tuple[int, Feature, Alike]]:
    match record.plan.load_mode:
        case LoadMode.CONCURRENCY:
            return _CONCURRENCY
        case LoadMode.QPS:
            return _QPS
        case LoadMode.FIND_MAX_CONCURRENCY:
            return _FIND_MAX


_CONCURRENCY: Mapping[str, tuple[int, Feature, Alike]] = {
    "scaling mode": (20, lambda record: record.plan.scaling.mode, same),
    "concurrency": (25, lambda record: record.plan.connections, near),
    "duration": (15, _duration, near),
    "size": (20, _size, sizes_alike),
    "read share": (15, _read_share, near),
    "cache": (5, _cache, same),
}
_QPS: Mapping[str, tuple[int, Feature, Alike]] = {
    "target": (30, lambda record: record.plan.qps.target_qps, near),
    "scaling mode": (15, lambda record: record.plan.scaling.mode, same),
    "duration": (15, _duration, near),
    "size": (20, _size, sizes_alike),
    "mix": (15, _read_share, near),
    "cache": (5, _cache, same),
}
_FIND_MAX: Mapping[str, tuple[int, Feature, Alike]] = {
    "best level": (35, _best_level, near),
    "best qps": (25, _best_qps, near),
    "degradation point": (15, _degraded_at, near),
    "steps": (10, _steps, near),
    "qps per connection": (10, _per_connection, near),
    "reason": (5, _reason_class, same),
}
