"""Compares two to five runs, each with the first: figures, changes, and how far they can be trusted. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drumbeat.bench.model.best import Best, best_of, knee_of
from drumbeat.bench.model.plan import LoadMode
from drumbeat.bench.model.record import Measured, RunRecord
from drumbeat.bench.results.compare.batches import SHORTEST, Batch, batches, common_length, variation
from drumbeat.bench.results.compare.changes import (
    BEST_LEVEL,
    BEST_QPS,
    ERRORS,
    KNEE,
    P50,
    P95,
    P99,
    QPS,
    Bounds,
    Delta,
    FigureChange,
    overall,
)
from drumbeat.bench.results.compare.configuration import ConfigDifference, differences, user_config
from drumbeat.bench.results.compare.divergence import DIFFERENT, divergence
from drumbeat.bench.results.compare.means import FEWEST as FEWEST_BATCHES, Shift, shift
from drumbeat.bench.results.compare.sides import Pair, by_kind, costs
from drumbeat.bench.results.compare.similarity import LEAST_ALIKE, Confidence, Similarity, similarity
from drumbeat.core.errors import InvalidInput
from drumbeat.core.histogram import Histogram
from drumbeat.core.run import Phase, RunStatus

FEWEST, MOST = 2, 5
_UNLIKE_DURATION = 0.1
_UNSTEADY = 0.30  #: coefficient of variation of throughput from which a comparison warns

_FIGURES: Sequence[tuple[Bounds, Callable[[Measured], float | None], Callable[[Batch], float | None]]] = (
    (QPS, lambda measured: measured.qps, lambda batch: batch.qps),
    (P50, lambda measured: measured.latency.p50_ms, lambda batch: batch.p50_ms),
    (P95, lambda measured: measured.latency.p95_ms, lambda batch: batch.p95_ms),
    (P99, lambda measured: measured.latency.p99_ms, lambda batch: batch.p99_ms),
    (ERRORS, lambda measured: measured.error_rate, lambda batch: batch.error_rate),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of one run (``after``) with the reference run (``before``)."""

    before: RunRecord
    after: RunRecord
    deltas: tuple[Delta, ...]
    similarity: Similarity
    configuration: tuple[ConfigDifference, ...] = ()
    divergence: float | None = None  #: Kullback-Leibler divergence of the latency distributions, in nats
    warnings: tuple[str, ...] = ()

    @property
    def change(self) -> FigureChange:
        """The overall change. INCONCLUSIVE if the runs are too different, or if they are too short to exclude a regression."""
        if self.similarity.confidence is Confidence.EXCLUDED:
            return FigureChange.INCONCLUSIVE
        found = overall([delta.change for delta in self.deltas if not delta.informative])
        throughput = self.deltas[0].change
        unsure = throughput is FigureChange.INCONCLUSIVE or any(delta.looks_worse for delta in self.deltas)
        return FigureChange.INCONCLUSIVE if found in (FigureChange.STABLE, FigureChange.IMPROVED) and unsure else found

    @property
    def reason(self) -> str | None:
        """Why the comparison is inconclusive; None if it is conclusive."""
        if self.change is not FigureChange.INCONCLUSIVE:
            return None
        if self.similarity.confidence is Confidence.EXCLUDED:
            unlike = f"the runs are too different: similarity {self.similarity.score:.2f}, expected at least {LEAST_ALIKE}"
            return "; ".join(self.similarity.gates) or unlike
        if worse := [delta.bounds.label for delta in self.deltas if delta.looks_worse]:
            return f"{', '.join(worse)} might be worse, but the runs are too short to show it: measure for longer"
        return _too_little(self.before, self.after)

    @property
    def kinds(self) -> tuple[Pair, ...]:
        """The figures of each kind of operation in both runs."""
        return by_kind(self.before, self.after)

    @property
    def costs(self) -> tuple[Pair, ...]:
        """The costs of both runs, figure by figure."""
        return costs(self.before, self.after)

    @property
    def latencies_differ(self) -> bool:
        return self.divergence is not None and self.divergence > DIFFERENT


def compare(records: Sequence[RunRecord]) -> tuple[Comparison, ...]:
    """Compare every later run with the first. Raises InvalidInput unless there are two to five runs."""
    if not FEWEST <= len(records) <= MOST:
        raise InvalidInput(f"expected {FEWEST} to {MOST} runs to compare, got {len(records)}; pass fewer or more run ids")
    return tuple(compared(records[0], after) for after in records[1:])


def compared(before: RunRecord, after: RunRecord) -> Comparison:
    deltas = _deltas(before, after)
    return Comparison(
        before=before,
        after=after,
        deltas=deltas,
        similarity=similarity(before, after),
        configuration=differences(user_config(before.run.config), user_config(after.run.config)),
        divergence=divergence(_histogram(before), _histogram(after)),
        warnings=(*_warnings(before, after), *_blind_spots(deltas)),
    )


def _too_little(before: RunRecord, after: RunRecord) -> str:
    empty = [str(record.run.run_id) for record in (before, after) if not record.whole.operations]
    if empty:
        return f"nothing was measured in {' and '.join(empty)}"
    first, second = _measured_seconds(before), _measured_seconds(after)
    return (
        f"too little was measured: {first} s and {second} s; each run needs {FEWEST_BATCHES} batches of {SHORTEST} s, "
        "not counting its first and last second: measure for 30 s or more"
    )


def _deltas(before: RunRecord, after: RunRecord) -> tuple[Delta, ...]:
    if before.plan.load_mode is after.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY:
        return _find_max_deltas(before, after)
    length = common_length(_measured_seconds(before), _measured_seconds(after), FEWEST_BATCHES)
    old, new = batches(before, length), batches(after, length)
    measured = bool(before.whole.operations and after.whole.operations)
    return tuple(
        _delta(bounds, of(before.whole), of(after.whole), _series(each, old), _series(each, new), measured)
        for bounds, of, each in _FIGURES
    )


def _series(figure: Callable[[Batch], float | None], of: Sequence[Batch]) -> list[float]:
    return [value for batch in of if (value := figure(batch)) is not None]


def _delta(
    bounds: Bounds, before: float | None, after: float | None, old: Sequence[float], new: Sequence[float], measured: bool
) -> Delta:
    found = shift(old, new, between=bounds.between, whole=before)
    change = _change(bounds, before, after, found) if measured else FigureChange.INCONCLUSIVE
    return Delta(bounds=bounds, before=before, after=after, change=change, shift=found)


def _change(bounds: Bounds, before: float | None, after: float | None, found: Shift | None) -> FigureChange:
    """Classify the change of a figure. Only a significant change counts, except that a rise of the error rate always counts. A
    significant change for the worse below the warning bound is a WARNING if its confidence interval reaches that bound."""
    if before is None or after is None:
        return FigureChange.INCONCLUSIVE
    if bounds.absolute:
        counted = bounds.change(after - before)
        return counted if counted is not FigureChange.IMPROVED or (found and found.is_significant) else FigureChange.STABLE
    if found is None:
        return FigureChange.INCONCLUSIVE
    if not before:
        return FigureChange.STABLE
    by = bounds.change(found.estimate / before)
    if not found.is_significant:
        return FigureChange.INCONCLUSIVE if by is FigureChange.REGRESSED else FigureChange.STABLE
    may_be = bounds.change(bounds.worst(found) / before)
    return (
        FigureChange.WARNING if by is FigureChange.STABLE and may_be in (FigureChange.WARNING, FigureChange.REGRESSED) else by
    )


def _find_max_deltas(before: RunRecord, after: RunRecord) -> tuple[Delta, ...]:
    """Compare two find-max runs: the best (highest stable) number of connections, and the figures measured with it."""
    old, new = best_of(before), best_of(after)
    return (
        _plain(BEST_LEVEL, _number(old, "connections"), _number(new, "connections")),
        _plain(BEST_QPS, _number(old, "qps"), _number(new, "qps")),
        _plain(KNEE, knee_of(before), knee_of(after), informative=True),
        _plain(P95, _at_best(old, "p95_ms"), _at_best(new, "p95_ms"), informative=True),
        _plain(P99, _at_best(old, "p99_ms"), _at_best(new, "p99_ms"), informative=True),
        _plain(ERRORS, _at_best(old, "error_rate"), _at_best(new, "error_rate")),
    )


def _number(best: Best | None, name: str) -> float | None:
    return getattr(best, name) if best else None


def _at_best(best: Best | None, name: str) -> float | None:
    return getattr(best.step, name) if best and best.step else None


def _plain(bounds: Bounds, before: float | None, after: float | None, informative: bool = False) -> Delta:
    """Classify the change of a figure by its size alone: with one value per run, its significance cannot be tested."""
    change = FigureChange.INCONCLUSIVE
    if before is not None and after is not None and (before or bounds.absolute):
        change = bounds.change(after - before if bounds.absolute else (after - before) / before)
    elif before is not None and after is None and not bounds.absolute:
        change = FigureChange.REGRESSED if not informative else FigureChange.INCONCLUSIVE
    return Delta(bounds=bounds, before=before, after=after, change=change, informative=informative)


def _measured_seconds(record: RunRecord) -> int:
    return sum(second.phase == Phase.MEASUREMENT for second in record.timeline)


def _histogram(record: RunRecord) -> Histogram:
    packed = record.whole.histogram
    return Histogram.from_bytes(packed) if packed else Histogram()


def _warnings(before: RunRecord, after: RunRecord) -> list[str]:
    found = []
    first, second = _measured_seconds(before), _measured_seconds(after)
    if abs(first - second) > _UNLIKE_DURATION * max(first, second, 1):
        found.append(f"the measurements have different lengths: {first} s and {second} s")
    for record in (before, after):
        found += [f"{record.run.run_id}: {warning}" for warning in _own_warnings(record)]
    return found


def _blind_spots(deltas: Sequence[Delta]) -> list[str]:
    """Warn of figures for which the runs are too short or too unsteady to rule out a regression."""
    return [
        f"{delta.bounds.label}: a change of {hidden:+.0%} cannot be ruled out; measure for longer to be sure"
        for delta in deltas
        if (hidden := delta.undetected_regression) is not None
    ]


def _own_warnings(record: RunRecord) -> list[str]:
    found = []
    if record.run.status is not RunStatus.COMPLETED:
        found.append(f"it is {record.run.status}, not COMPLETED")
    if record.client_limited:
        found.append("its clients, not the database, were the limit")
    spread = variation([batch.qps for batch in batches(record)])
    if record.plan.load_mode is not LoadMode.FIND_MAX_CONCURRENCY and spread is not None and spread > _UNSTEADY:
        found.append(f"its throughput was not steady (coefficient of variation {spread:.2f})")
    return found
