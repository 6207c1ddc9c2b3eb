"""Whether a run kept its objectives: p95, p99 and errors, of each kind and of all together. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from drumbeat.bench.model.plan import ALL_KINDS, Objective
from drumbeat.bench.model.record import Measured, RunRecord
from drumbeat.core.run import RunStatus

NEAR = 0.9  #: of a limit


class Standing(StrEnum):
    """How a figure stands against its limit."""

    OK = "ok"
    NEAR = "near"  #: at 90 % of it or more
    OVER = "over"
    NOT_MEASURED = "not measured"  #: which is no success


class Measure(StrEnum):
    """What a limit is about."""

    P95 = "p95_ms"
    P99 = "p99_ms"
    ERRORS = "error_pct"


class Gate(IntEnum):
    """How ``bench run`` and ``bench regress`` end, for whoever gates on it."""

    PASSED = 0
    RUN_FAILED = 3  #: it did not complete
    OBJECTIVES_MISSED = 4
    REGRESSED = 5
    INCONCLUSIVE = 6  #: nothing to compare with, or nothing comparable


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One limit and what was found."""

    kind: str  #: ALL_KINDS: all together
    measure: Measure
    limit: float
    found: float | None

    @property
    def standing(self) -> Standing:
        if self.found is None:
            return Standing.NOT_MEASURED
        if self.found > self.limit:
            return Standing.OVER
        return Standing.NEAR if self.limit > 0 and self.found >= NEAR * self.limit else Standing.OK

    @property
    def kept(self) -> bool:
        return self.standing in (Standing.OK, Standing.NEAR)

    @property
    def subject(self) -> str:
        return self.kind or "all kinds"


def verdicts(objectives: Mapping[str, Objective], totals: Mapping[str, Measured]) -> tuple[Verdict, ...]:
    """A verdict for each limit that is set, all kinds together first."""
    kinds = sorted(objectives, key=lambda kind: (kind != ALL_KINDS, kind))
    return tuple(verdict for kind in kinds for verdict in _of_kind(kind, objectives[kind], totals.get(kind)))


def _of_kind(kind: str, objective: Objective, measured: Measured | None) -> Iterable[Verdict]:
    limits = {Measure.P95: objective.p95_ms, Measure.P99: objective.p99_ms, Measure.ERRORS: objective.max_error_pct}
    for measure, limit in limits.items():
        if limit is not None and limit >= 0:
            yield Verdict(kind=kind, measure=measure, limit=limit, found=_found(measured, measure))


def _found(measured: Measured | None, measure: Measure) -> float | None:
    if measured is None or not measured.operations:
        return None
    found = {
        Measure.P95: measured.latency.p95_ms,
        Measure.P99: measured.latency.p99_ms,
        Measure.ERRORS: measured.error_rate * 100,
    }
    return found[measure]


def passed(status: RunStatus, found: Sequence[Verdict]) -> Gate:
    """The exit code of ``bench run``: it completed, and every limit was kept."""
    if status is not RunStatus.COMPLETED:
        return Gate.RUN_FAILED
    return Gate.PASSED if all(verdict.kept for verdict in found) else Gate.OBJECTIVES_MISSED


def verdicts_of(record: RunRecord) -> tuple[Verdict, ...]:
    return verdicts(record.plan.objectives, record.totals)


def gate_of(record: RunRecord) -> Gate:
    return passed(record.run.status, verdicts_of(record))
