"""Computes the availability of the database during a measurement, and latencies corrected for coordinated omission. Pure.

A second is without service if workers sent load and no operation succeeded in it. If operations are so rare or so slow that
seconds without a success are normal, only seconds with a failure count. Seconds without a running worker are not counted, nor
are the first and the last second if they were measured only in part.

In a closed loop a connection sends nothing while it waits, so an outage leaves one long latency, or none, where independent
users would have sent thousands of operations (coordinated omission). The correction adds these: for each operation slower than
the usual interval between two operations of a connection, the operations that the connection would have sent meanwhile; and for
each second without service in which connections failed, as many operations as a usual second has.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np

from drumbeat.bench.model.plan import ALL_KINDS, LoadMode
from drumbeat.bench.model.record import Latency, RunRecord, Second
from drumbeat.core.histogram import Histogram, bucket_bounds
from drumbeat.core.run import Phase

_OUTAGE_MIN_QPS = 10.0  #: from this many operations per second on, a second without any is an outage, not chance
_MIN_SERVED_SHARE = 0.02  #: up to this share of the usual successes counts as none: samples may overlap two seconds
_WHOLE = 0.9  #: share of a second that must be measured for it to count as a full second
_MOST_ADDED = 2000  #: most values added for one long latency; if more were omitted, each value stands for several


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """How many seconds were measured, and in how many of them no operation succeeded."""

    seconds: int
    without_service: int
    stretches: tuple[tuple[int, int], ...] = ()  #: outages: offset of the first second, and of the second after the last
    failed_connects: int = 0

    @property
    def percent(self) -> float | None:
        return 100 * (1 - self.without_service / self.seconds) if self.seconds else None

    @property
    def words(self) -> str:
        """The outages as text: how many seconds were without service, and when."""
        shown = ", ".join(f"{_clock(began)}–{_clock(ended)}" for began, ended in self.stretches[:5])
        more = f" and {len(self.stretches) - 5} more" if len(self.stretches) > 5 else ""
        return f"no operation succeeded in {self.without_service} of {self.seconds} s ({shown}{more})"


def availability_of(record: RunRecord) -> Availability | None:
    """Return the availability during a run: for an ended run the one that its result contains, else computed from the run's
    seconds; None if it is not known."""
    stored = record.stored_metrics.get("availability")
    if not isinstance(stored, Mapping):
        measured = _measured(record.timeline)
        return _counted(measured) if measured else None
    return Availability(
        seconds=int(stored.get("seconds") or 0),
        without_service=int(stored.get("without_service") or 0),
        stretches=tuple((int(began), int(ended)) for began, ended in stored.get("stretches") or ()),
        failed_connects=int(stored.get("failed_connects") or 0),
    )


def as_metrics(found: Availability | None) -> dict[str, Any] | None:
    """Return the availability as plain data for a run's result; None if it is not known."""
    return asdict(found) | {"percent": found.percent} if found else None


def outages(timeline: Sequence[Second]) -> list[tuple[int, int]]:
    """Return each outage as (first second, second after the last). An outage at the end counts only if it contains errors:
    without errors, the newest samples of a run under way may just not have arrived yet."""
    measured = _measured(timeline)
    found = [*_stretches(missing_seconds(measured))]
    if found and found[-1][1] > measured[-1].offset and not _shows_failures(measured, *found[-1]):
        return found[:-1]
    return found


def _shows_failures(measured: Sequence[Second], began: int, ended: int) -> bool:
    return any(second.errors or second.failed_connects for second in measured if began <= second.offset < ended)


def _measured(timeline: Sequence[Second]) -> list[Second]:
    """Return the seconds of the measurement in which a worker ran. A first or last second measured only in part is left out."""
    inside = [n for n, second in enumerate(timeline) if second.phase == Phase.MEASUREMENT]
    if not inside:
        return []
    found = [second for second in timeline[inside[0] : inside[-1] + 1] if second.workers]
    first = 1 if found and _is_partial(found[0]) else 0
    return found[first : -1 if len(found) > first and _is_partial(found[-1]) else None]


def _is_partial(second: Second) -> bool:
    """Whether to leave out a second because it was measured only in part. If it has failures it is kept, so that they count."""
    return second.covered < _WHOLE and not second.errors and not second.failed_connects


def _counted(measured: Sequence[Second]) -> Availability:
    missing = missing_seconds(measured)
    return Availability(
        seconds=len(measured),
        without_service=len(missing),
        stretches=tuple(_stretches(missing)),
        failed_connects=sum(second.failed_connects for second in measured),
    )


def missing_seconds(measured: Sequence[Second]) -> list[int]:
    """Return the offsets of seconds without service. Slow operations leave gaps, so a gap no longer than a typical operation
    counts only if errors occurred in the gap or in the second before or after it."""
    usual, operation_seconds = _usual(measured), _usual_seconds(measured)
    empty = [second.offset for second in measured if _is_empty(second, usual)]
    return [
        offset
        for began, ended in _stretches(empty)
        if ended - began > operation_seconds or _shows_failures(measured, began - 1, ended + 1)
        for offset in range(began, ended)
    ]


def _usual(measured: Sequence[Second]) -> float:
    """Return how many operations succeed in a typical second with service (the median)."""
    served = [good for second in measured if (good := second.operations - second.errors) > 0]
    return median(served) if served else 0.0


def _usual_seconds(measured: Sequence[Second]) -> float:
    """Return how many seconds a typical operation takes (the median of each second's p50)."""
    known = [second.p50_ms for second in measured if second.p50_ms is not None]
    return median(known) / 1000 if known else 0.0


def _is_empty(second: Second, usual: float) -> bool:
    if second.operations - second.errors > _MIN_SERVED_SHARE * usual:
        return False
    return usual >= _OUTAGE_MIN_QPS or not usual or second.errors > 0 or second.failed_connects > 0


def _stretches(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    for _, group in groupby(enumerate(offsets), key=lambda place: place[1] - place[0]):
        together = [offset for _, offset in group]
        yield together[0], together[-1] + 1


def _clock(offset: int) -> str:
    return f"{offset // 60}:{offset % 60:02d}"


def corrected(record: RunRecord) -> Latency | None:
    """Return the latencies of a CONCURRENCY run, corrected for coordinated omission; None if nothing was measured. Also None
    for other modes: QPS latencies include the delay before sending, and a search has no fixed number of connections.

    For an ended run, returns the latencies stored in its result."""
    if isinstance(stored := record.stored_metrics.get("corrected"), Mapping):
        return Latency(**stored)
    whole, measured = record.whole, _measured(record.timeline)
    if record.plan.load_mode is not LoadMode.CONCURRENCY or not whole.histogram or not measured:
        return None
    missing = {*missing_seconds(measured)}
    served = [second.operations - second.errors for second in measured if second.offset not in missing]
    usual, held = sum(served) / len(served) if served else 0.0, median(second.target for second in measured)
    if not usual or not held:
        return None
    counts = _counts(Histogram.from_bytes(whole.histogram))
    if not counts.values.size:
        return None
    return _latency(_add_omitted(counts, held / usual * 1e9) + _unsent(measured, usual))


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Latencies in nanoseconds, and how many operations had each."""

    values: np.ndarray[Any, np.dtype[np.float64]]
    counts: np.ndarray[Any, np.dtype[np.float64]]

    def __add__(self, other: "_Weighted") -> "_Weighted":
        return _Weighted(np.concatenate([self.values, other.values]), np.concatenate([self.counts, other.counts]))


def _counts(histogram: Histogram) -> _Weighted:
    found = [(sum(bucket_bounds(bucket)) / 2, count) for bucket, count in histogram.buckets()]
    return _Weighted(np.array([value for value, _ in found]), np.array([count for _, count in found], dtype=np.float64))


def _add_omitted(found: _Weighted, interval: float) -> _Weighted:
    """Add the latencies of operations that a connection would have sent, one per ``interval``, while a slow one blocked it."""
    whole = found
    for value, count in zip(found.values, found.counts, strict=True):
        missed = int((value - interval) // interval) if value > interval else 0
        if missed > 0:
            steps = np.linspace(value - interval, value - missed * interval, min(missed, _MOST_ADDED))
            whole = whole + _Weighted(steps, np.full(len(steps), count * missed / len(steps)))
    return whole


def _unsent(measured: Sequence[Second], usual: float) -> _Weighted:
    """Return the latencies of operations that could not be sent while connections failed, ``usual`` operations per second. Each
    latency is the time from when the operation should have been sent to the end of the outage."""
    missing = set(missing_seconds(measured))
    whole = _Weighted(np.empty(0), np.empty(0))
    for began, ended in _stretches(sorted(missing)):
        if _shows_failures(measured, began - 1, ended + 1):
            waits = np.linspace(0, (ended - began) * 1e9, min(_MOST_ADDED, max(2, round(usual * (ended - began)))))
            whole = whole + _Weighted(waits, np.full(len(waits), usual * (ended - began) / len(waits)))
    return whole


def _latency(found: _Weighted) -> Latency:
    order = np.argsort(found.values)
    values, counts = found.values[order], found.counts[order]
    sums = np.cumsum(counts)
    p50, p90, p95, p99, p999 = (
        float(values[min(np.searchsorted(sums, share * sums[-1]), len(values) - 1)]) / 1e6
        for share in (0.5, 0.9, 0.95, 0.99, 0.999)
    )
    return Latency(
        count=round(float(sums[-1])), mean_ms=float((values * counts).sum() / sums[-1]) / 1e6, least_ms=float(values[0]) / 1e6,
        greatest_ms=float(values[-1]) / 1e6, p50_ms=p50, p90_ms=p90, p95_ms=p95, p99_ms=p99, p999_ms=p999,
    )  # fmt: skip


def with_failed_connects(record: RunRecord) -> RunRecord:
    """Return the record with failed connection attempts added to its total for all kinds of operation together."""
    whole, found = record.totals.get(ALL_KINDS), availability_of(record)
    if whole is None or found is None or not found.failed_connects:
        return record
    return replace(record, totals={**record.totals, ALL_KINDS: replace(whole, failed_connects=found.failed_connects)})
