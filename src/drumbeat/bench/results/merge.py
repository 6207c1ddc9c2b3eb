"""Merges the samples of all workers in a time window into one set of figures. Merges histograms, never averages them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from drumbeat.bench.model import Figures, KindFigures
from drumbeat.bench.results.timeline import (
    failed_connects_of,
    histogram_of,
    kinds_of,
    merge_into,
    open_connections,
    was_the_limit,
)
from drumbeat.core.histogram import Histogram
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import WorkerId


@dataclass(slots=True)
class _Kind:
    operations: int = 0
    errors: int = 0
    response: Histogram = field(default_factory=Histogram)
    service: Histogram = field(default_factory=Histogram)

    def add(self, block: Mapping[str, Any]) -> None:
        self.operations += int(block.get("operations", 0))
        self.errors += int(block.get("errors", 0))
        merge_into(self.response, histogram_of(block.get("response")))
        merge_into(self.service, histogram_of(block.get("service")))

    def figures(self) -> KindFigures:
        p50, p95, p99 = _milliseconds(self.response, (50, 95, 99))
        return KindFigures(operations=self.operations, errors=self.errors, p50_ms=p50, p95_ms=p95, p99_ms=p99)


@dataclass(slots=True)
class _Share:
    """What one worker measured in the time window."""

    seconds: float = 0.0
    operations: int = 0
    errors: int = 0
    failed_connects: int = 0
    held: float = 0.0  #: open connections × seconds
    limited: float = 0.0  #: seconds in which the worker, not the database, limited throughput
    began: datetime | None = None
    ended: datetime | None = None
    latency: Histogram = field(default_factory=Histogram)

    def add(self, sample: StoredSample) -> None:
        seconds = sample.interval.total_seconds()
        began = sample.at - sample.interval
        self.began = began if self.began is None else min(self.began, began)
        self.ended = sample.at if self.ended is None else max(self.ended, sample.at)
        self.seconds += seconds
        self.operations += sample.operations
        self.errors += sample.errors
        self.failed_connects += failed_connects_of(sample)
        self.held += open_connections(sample) * seconds
        self.limited += seconds if was_the_limit(sample) else 0.0
        merge_into(self.latency, sample.latency)


class WindowMerger:
    """Collects the samples of one time window and computes throughput, latencies and errors from them."""

    def __init__(self, since: datetime, until: datetime, *, by_kind: bool = True) -> None:
        self._since = since
        self._until = until
        self._by_kind = by_kind
        self._shares: defaultdict[WorkerId, _Share] = defaultdict(_Share)
        self._kinds: defaultdict[str, _Kind] = defaultdict(_Kind)
        self._seen: set[tuple[WorkerId, int]] = set()

    def add(self, samples: Iterable[StoredSample]) -> None:
        """Add samples. Each is counted once, if the middle of its interval lies within the window."""
        for sample in samples:
            middle = sample.at - sample.interval / 2
            name = (sample.worker_id, sample.n)
            if self._since <= middle <= self._until and name not in self._seen and not sample.extra.get("draining"):
                self._seen.add(name)
                self._count(sample)

    def _count(self, sample: StoredSample) -> None:
        self._shares[sample.worker_id].add(sample)
        if self._by_kind:
            for kind, block in kinds_of(sample):
                self._kinds[kind].add(block)

    def figures(self, waiting: float | None = None, lock_waits: float | None = None) -> Figures:
        """Return throughput, latencies and errors of the window. Each worker's rate is over the time its own samples cover.

        A worker that started after another had ended counts as its replacement: the two, with the pause between them, count
        as one worker.
        """
        shares = [share for share in self._shares.values() if share.seconds]
        slots = _slots(shares)
        whole = Histogram()
        for share in shares:
            merge_into(whole, share.latency)
        p50, p95, p99 = _milliseconds(whole, (50, 95, 99))
        return Figures(
            since=self._since,
            until=self._until,
            operations=sum(share.operations for share in shares),
            errors=sum(share.errors for share in shares),
            failed_connects=sum(share.failed_connects for share in shares),
            qps=sum(slot.operations / slot.seconds for slot in slots),
            mean_ms=_mean_ms([whole]),
            service_ms=_mean_ms([kind.service for kind in self._kinds.values()]) or _mean_ms([whole]),
            p50_ms=p50,
            p95_ms=p95,
            p99_ms=p99,
            slowest_p95_ms=_slowest(shares, 95),
            slowest_p99_ms=_slowest(shares, 99),
            connections=sum(slot.held / slot.seconds for slot in slots),
            kinds={name: kind.figures() for name, kind in sorted(self._kinds.items())},
            workers=len(shares),
            waiting=waiting,
            lock_waits=lock_waits,
            client_limited=sum(share.limited for share in shares) > sum(share.seconds for share in shares) / 2,
        )


@dataclass(slots=True)
class _Slot:
    """What a worker and its replacements measured together in the time window."""

    ended: datetime
    seconds: float
    operations: int
    held: float

    def add_replacement(self, share: _Share, began: datetime, ended: datetime) -> None:
        self.seconds += max((began - self.ended).total_seconds(), 0.0) + share.seconds
        self.ended = ended
        self.operations += share.operations
        self.held += share.held


def _slots(shares: Sequence[_Share]) -> list[_Slot]:
    slots: list[_Slot] = []
    lifetimes = [(share.began, share.ended, share) for share in shares if share.began is not None and share.ended is not None]
    for began, ended, share in sorted(lifetimes, key=lambda lifetime: lifetime[0]):
        free = next((slot for slot in slots if slot.ended <= began), None)
        if free is not None:
            free.add_replacement(share, began, ended)
        else:
            slots.append(_Slot(ended=ended, seconds=share.seconds, operations=share.operations, held=share.held))
    return slots


def _milliseconds(histogram: Histogram, percents: Sequence[float]) -> list[float | None]:
    return [None if found is None else found / 1e6 for found in histogram.percentiles_ns(percents)]


def _mean_ms(histograms: Sequence[Histogram]) -> float | None:
    count = sum(histogram.count for histogram in histograms)
    return sum(histogram.total for histogram in histograms) / count / 1e6 if count else None


def _slowest(shares: Sequence[_Share], percent: float) -> float | None:
    found = [value for share in shares for value in _milliseconds(share.latency, (percent,)) if value is not None]
    return max(found, default=None)
