"""How much of its measurement a database served, and what latencies would be had clients not waited for it. Pure.

A second is without service when load was on the database and no operation succeeded in it. Where operations are so rare, or
so slow, that seconds without one are nothing unusual, only those that show a failure count. Seconds in which no worker ran are
left out, and so are the first and the last if they were measured in part.

A connection of a closed loop sends nothing while it waits, so an outage leaves one long latency, or none, where a stream of
users would have had thousands (coordinated omission). The corrected percentiles put them back: for each operation that took
longer than a connection usually takes from one operation to the next, those it would have sent meanwhile; and for each second
without service in which connections failed, as many operations as a usual second has.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np

from drumbeat.bench.model.plan import ALL_KINDS, LoadMode
from drumbeat.bench.model.record import Latency, Measured, RunRecord, Second
from drumbeat.core.histogram import Histogram, bucket_bounds
from drumbeat.core.run import Phase

_USUAL = 10.0  #: operations a second at which one without any is no accident
_SOME = 0.02  #: of the usual throughput: less is the edge of an interval that lies in two seconds
_WHOLE = 0.9  #: of a second: what is measured for longer counts as one
_MOST_ADDED = 2000  #: operations put back for one that was waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The seconds of a measurement, and those in which nothing succeeded."""

    seconds: int
    without_service: int
    stretches: tuple[tuple[int, int], ...] = ()  #: offsets of the first second and of the one after the last
    failed_connects: int = 0

    @property
    def percent(self) -> float | None:
        return 100 * (1 - self.without_service / self.seconds) if self.seconds else None

    @property
    def words(self) -> str:
        """Where the service was missing, for people."""
        shown = ", ".join(f"{_clock(began)}–{_clock(ended)}" for began, ended in self.stretches[:5])
        more = f" and {len(self.stretches) - 5} more" if len(self.stretches) > 5 else ""
        return f"no operation succeeded in {self.without_service} of {self.seconds} s ({shown}{more})"


def availability_of(record: RunRecord) -> Availability | None:
    """Of a whole record by its seconds; of a short one by what its result says. None: not known."""
    measured = _measured(record.timeline)
    if measured:
        return _counted(measured)
    told = record.result.custom_metrics.get("availability") if record.result else None
    if not isinstance(told, Mapping):
        return None
    return Availability(
        seconds=int(told.get("seconds") or 0),
        without_service=int(told.get("without_service") or 0),
        stretches=tuple((int(began), int(ended)) for began, ended in told.get("stretches") or ()),
        failed_connects=int(told.get("failed_connects") or 0),
    )


def as_metrics(found: Availability | None) -> dict[str, Any] | None:
    """As it is kept in a result."""
    return asdict(found) | {"percent": found.percent} if found else None


def outages(timeline: Sequence[Second]) -> list[tuple[int, int]]:
    """Stretches without service, of a run that may still go on: its last seconds may only not have been told yet."""
    measured = _measured(timeline)
    found = [*_stretches(missing_seconds(measured))]
    if found and found[-1][1] > measured[-1].offset and not _shows_failures(measured, *found[-1]):
        return found[:-1]
    return found


def _shows_failures(measured: Sequence[Second], began: int, ended: int) -> bool:
    return any(second.errors or second.failed_connects for second in measured if began <= second.offset < ended)


def _measured(timeline: Sequence[Second]) -> list[Second]:
    """Every second from the first to the last of MEASUREMENT in which a worker ran: those between may have no phase."""
    inside = [n for n, second in enumerate(timeline) if second.phase == Phase.MEASUREMENT]
    if not inside:
        return []
    found = [second for second in timeline[inside[0] : inside[-1] + 1] if second.workers]
    first = 1 if found and _tells_little(found[0]) else 0
    return found[first : -1 if len(found) > first and _tells_little(found[-1]) else None]


def _tells_little(second: Second) -> bool:
    """Whether it was measured in part only, and nothing failed in it."""
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
    """The offsets of the seconds without service. A stretch no longer than an operation usually takes may be all right."""
    usual, lasts = _usual(measured), _lasts(measured)
    empty = [second.offset for second in measured if _is_empty(second, usual)]
    return [
        offset
        for began, ended in _stretches(empty)
        if ended - began > lasts or _shows_failures(measured, began - 1, ended + 1)
        for offset in range(began, ended)
    ]


def _usual(measured: Sequence[Second]) -> float:
    """How many operations succeed in a second that serves."""
    served = [good for second in measured if (good := second.operations - second.errors) > 0]
    return median(served) if served else 0.0


def _lasts(measured: Sequence[Second]) -> float:
    """How many seconds an operation usually takes."""
    known = [second.p50_ms for second in measured if second.p50_ms is not None]
    return median(known) / 1000 if known else 0.0


def _is_empty(second: Second, usual: float) -> bool:
    if second.operations - second.errors > _SOME * usual:
        return False
    return usual >= _USUAL or not usual or second.errors > 0 or second.failed_connects > 0


def _stretches(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    for _, group in groupby(enumerate(offsets), key=lambda place: place[1] - place[0]):
        together = [offset for _, offset in group]
        yield together[0], together[-1] + 1


def _clock(offset: int) -> str:
    return f"{offset // 60}:{offset % 60:02d}"


def corrected(record: RunRecord) -> Latency | None:
    """The latencies of a closed loop, corrected for coordinated omission; None where that means nothing: an open loop's are
    from when an operation was due, and a search goes through many levels."""
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
    return _latency(_put_back(counts, held / usual * 1e9) + _lost(measured, usual))


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Latencies in nanoseconds and how many there are of each."""

    values: np.ndarray[Any, np.dtype[np.float64]]
    counts: np.ndarray[Any, np.dtype[np.float64]]

    def __add__(self, other: "_Weighted") -> "_Weighted":
        return _Weighted(np.concatenate([self.values, other.values]), np.concatenate([self.counts, other.counts]))


def _counts(histogram: Histogram) -> _Weighted:
    found = [(sum(bucket_bounds(bucket)) / 2, count) for bucket, count in histogram.buckets()]
    return _Weighted(np.array([value for value, _ in found]), np.array([count for _, count in found], dtype=np.float64))


def _put_back(found: _Weighted, interval: float) -> _Weighted:
    """For each latency above the usual interval, those of the operations that should have begun meanwhile."""
    whole = found
    for value, count in zip(found.values, found.counts, strict=True):
        missed = int((value - interval) // interval) if value > interval else 0
        if missed > 0:
            steps = np.linspace(value - interval, value - missed * interval, min(missed, _MOST_ADDED))
            whole = whole + _Weighted(steps, np.full(len(steps), count * missed / len(steps)))
    return whole


def _lost(measured: Sequence[Second], usual: float) -> _Weighted:
    """The operations that would have been sent while connections failed: each waits until its stretch is over."""
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


def counted_connects(totals: Mapping[str, Measured], failed: int) -> Mapping[str, Measured]:
    """Totals in which attempts to connect that failed count among the errors of all kinds together."""
    whole = totals.get(ALL_KINDS)
    return {**totals, ALL_KINDS: replace(whole, failed_connects=failed)} if whole and failed else totals
