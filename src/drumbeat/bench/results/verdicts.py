"""Judges the objectives of a run: limits on p95, p99 and errors, by kind of operation or for all, and on availability. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from drumbeat.bench.model.best import best_of, measured_at_best
from drumbeat.bench.model.plan import ALL_KINDS, LoadMode, Objective
from drumbeat.bench.model.record import Measured, RunRecord
from drumbeat.bench.results.availability import availability_of
from drumbeat.core.run import RunStatus

NEAR = 0.9  #: a value of at least this share of its limit counts as near the limit


class LimitStanding(StrEnum):
    """How a measured value compares with its limit."""

    OK = "ok"
    NEAR = "near"  #: at 90 % of the limit or more
    OVER = "over"
    UNDER = "under"  #: below a limit that is a minimum
    NOT_MEASURED = "not measured"  #: counts as missed


class Measure(StrEnum):
    """The figure that an objective limits."""

    P95 = "p95_ms"
    P99 = "p99_ms"
    ERRORS = "error_pct"
    AVAILABILITY = "availability_pct"  #: its limit is a minimum, the others are maximums


@dataclass(frozen=True, slots=True, kw_only=True)
class SloVerdict:
    """The verdict on one objective of a run: its limit, the measured value, and how the two compare."""

    kind: str  #: kind of operation; ALL_KINDS means all together
    measure: Measure
    limit: float
    found: float | None

    @property
    def standing(self) -> LimitStanding:
        if self.found is None:
            return LimitStanding.NOT_MEASURED
        if self.measure is Measure.AVAILABILITY:
            return LimitStanding.OK if self.found >= self.limit else LimitStanding.UNDER
        if self.found > self.limit:
            return LimitStanding.OVER
        return LimitStanding.NEAR if self.limit > 0 and self.found >= NEAR * self.limit else LimitStanding.OK

    @property
    def is_met(self) -> bool:
        return self.standing in (LimitStanding.OK, LimitStanding.NEAR)

    @property
    def subject(self) -> str:
        return self.kind or "all kinds"


def verdicts(
    objectives: Mapping[str, Objective], totals: Mapping[str, Measured], available: float | None = None
) -> tuple[SloVerdict, ...]:
    """Judge each limit of the objectives; ``available`` is the percentage of seconds in which operations succeeded."""
    kinds = sorted(objectives, key=lambda kind: (kind != ALL_KINDS, kind))
    found = [verdict for kind in kinds for verdict in _of_kind(kind, objectives[kind], totals.get(kind))]
    least = objectives[ALL_KINDS].min_availability_pct if ALL_KINDS in objectives else None
    if least is not None and least >= 0:
        found.append(SloVerdict(kind=ALL_KINDS, measure=Measure.AVAILABILITY, limit=least, found=available))
    return tuple(found)


def _of_kind(kind: str, objective: Objective, measured: Measured | None) -> Iterable[SloVerdict]:
    limits = {Measure.P95: objective.p95_ms, Measure.P99: objective.p99_ms, Measure.ERRORS: objective.max_error_pct}
    for measure, limit in limits.items():
        if limit is not None and limit >= 0:
            yield SloVerdict(kind=kind, measure=measure, limit=limit, found=_found(measured, measure))


def _found(measured: Measured | None, measure: Measure) -> float | None:
    if measured is None or not measured.operations:
        return None
    found = {
        Measure.P95: measured.latency.p95_ms,
        Measure.P99: measured.latency.p99_ms,
        Measure.ERRORS: measured.error_rate * 100,
    }
    return found[measure]


def verdicts_of(record: RunRecord) -> tuple[SloVerdict, ...]:
    """Judge each objective of a run. In a find-max run, which overloads the database on purpose, latency and errors are judged
    at the best step only."""
    found = availability_of(record)
    totals = measured_at_best(record) if _is_search(record) else record.totals
    return verdicts(record.plan.objectives, totals, found.percent if found else None)


def judged_at(record: RunRecord) -> str | None:
    """Return text such as ``judged at the level found: 40 connections`` for a find-max run with objectives; None for others."""
    if not _is_search(record) or not record.plan.objectives:
        return None
    best = best_of(record)
    return f"judged at the level found: {best.connections:g} connections" if best else "not judged: no level was found"


def failure_despite_completion(record: RunRecord) -> str | None:
    """Return why a completed run still counts as failed (for example, every operation failed), or None."""
    if record.run.status is not RunStatus.COMPLETED:
        return None
    if not record.whole.operations:
        return "nothing was measured"
    if record.whole.errors >= record.whole.operations:
        return "every operation failed"
    return "no stable level" if _is_search(record) and best_of(record) is None else None


def _is_search(record: RunRecord) -> bool:
    return record.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY
