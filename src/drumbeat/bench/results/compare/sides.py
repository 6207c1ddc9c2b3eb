"""Lists figures of two runs side by side, for information only: figures by kind of operation, and cost. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from drumbeat.bench.model.best import measured_at_best
from drumbeat.bench.model.plan import ALL_KINDS, LoadMode
from drumbeat.bench.model.record import Measured, RunRecord
from drumbeat.bench.results.cost import Cost, Method, cost_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The values of one figure in two runs; None if not known."""

    subject: str  #: a kind of operation, or "cost"
    figure: str
    unit: str
    before: float | None
    after: float | None
    comparable: bool = True  #: False: the amounts are in different currencies

    @property
    def relative(self) -> float | None:
        """The change as a share of the first value; None if it cannot be computed."""
        if self.before is None or self.after is None or not self.before or not self.comparable:
            return None
        return self.after / self.before - 1


def by_kind(before: RunRecord, after: RunRecord) -> tuple[Pair, ...]:
    """Return throughput, latency and errors by kind of operation; of a find-max run, at its best number of connections."""
    old, new = _kinds(before), _kinds(after)
    return tuple(pair for kind in sorted({*old, *new}) for pair in _kind(kind, old.get(kind), new.get(kind)))


def _kinds(record: RunRecord) -> Mapping[str, Measured]:
    if record.plan.load_mode is not LoadMode.FIND_MAX_CONCURRENCY:
        return record.kinds
    return {kind: measured for kind, measured in measured_at_best(record).items() if kind != ALL_KINDS}


def _kind(kind: str, before: Measured | None, after: Measured | None) -> Iterator[Pair]:
    old, new = _figures(before), _figures(after)
    for name, unit in (("operations/s", ""), ("p50", "ms"), ("p95", "ms"), ("p99", "ms"), ("error rate", "%")):
        yield Pair(subject=kind, figure=name, unit=unit, before=old.get(name), after=new.get(name))


def _figures(measured: Measured | None) -> Mapping[str, float | None]:
    if measured is None or not measured.operations:
        return {}
    latency = measured.latency
    return {
        "operations/s": measured.qps or None,
        "p50": latency.p50_ms,
        "p95": latency.p95_ms,
        "p99": latency.p99_ms,
        "error rate": measured.error_rate * 100,
    }


def costs(before: RunRecord, after: RunRecord) -> tuple[Pair, ...]:
    """Return the costs of both runs, in total, per hour and per operation; empty when neither run has prices."""
    old, new = cost_of(before), cost_of(after)
    if Method.ACTUAL not in (old.method, new.method):
        return ()
    known = [cost.currency for cost in (old, new) if cost.method is Method.ACTUAL]
    unit = " and ".join(dict.fromkeys(known))
    return tuple(
        Pair(subject="cost", figure=name, unit=unit, before=of_old, after=of_new, comparable=len(set(known)) == 1)
        for (name, of_old), (_, of_new) in zip(_cost(old), _cost(new), strict=True)
    )


def _cost(cost: Cost) -> list[tuple[str, float | None]]:
    return [
        ("total", cost.total),
        ("per hour", cost.per_hour),
        ("per 1,000 operations", cost.per_1000_operations),
        ("operations/s for an hourly cost of 1", cost.qps_per_money),
    ]
