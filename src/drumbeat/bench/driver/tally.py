"""Counts operations by kind, from their records: exact totals, and latency histograms that can be merged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.driver.records import OK, Records
from drumbeat.bench.model import Load
from drumbeat.bench.values.mix import cycle
from drumbeat.core.histogram import BUCKETS, Histogram

_SUB_BITS = 6
_EXACT = 128
_LONGEST = (1 << 42) - 1


def buckets_of(nanoseconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each duration's histogram bucket, as core.histogram.bucket_of does for one duration."""
    clipped = np.clip(nanoseconds, 0, _LONGEST)
    shift = np.maximum(np.frexp(clipped.astype(np.float64))[1] - (_SUB_BITS + 1), 0).astype(np.int64)
    return np.where(clipped < _EXACT, clipped, (shift << _SUB_BITS) + (clipped >> shift))


def count_into(histogram: Histogram, nanoseconds: NDArray[np.int64]) -> None:
    """Add many durations, in nanoseconds, to a histogram."""
    if not len(nanoseconds):
        return
    durations = np.maximum(nanoseconds, 0)
    counts = np.bincount(buckets_of(durations), minlength=BUCKETS)
    used = np.flatnonzero(counts)
    pairs = zip(used.tolist(), counts[used].tolist(), strict=True)
    histogram.add(pairs, int(durations.sum()), int(durations.min()), int(durations.max()))


@dataclass(slots=True)
class KindTally:
    """The totals and latencies of one kind of operation."""

    operations: int = 0
    errors: int = 0
    rows: int = 0
    response: Histogram = field(default_factory=Histogram)  #: from due time to answer: how long a user would have waited
    service: Histogram = field(default_factory=Histogram)  #: from sending to answer: how long the database took

    def absorb(self, records: Records) -> None:
        """Count records. Failed operations are counted, but only successful ones enter the latency histograms."""
        succeeded = records[records["outcome"] == OK]
        self.operations += len(records)
        self.errors += len(records) - len(succeeded)
        self.rows += int(succeeded["rows"].sum())
        count_into(self.service, succeeded["duration"])
        count_into(self.response, succeeded["start"] - succeeded["due"] + succeeded["duration"])

    def merge(self, other: "KindTally") -> None:
        self.operations += other.operations
        self.errors += other.errors
        self.rows += other.rows
        self.response.merge(other.response)
        self.service.merge(other.service)


class LoadTally:
    """The totals and latencies of a load: of each kind of operation, and of all together."""

    def __init__(self, load: Load) -> None:
        self.names = [operation.kind for operation in load.used]
        self._reads = [operation.reads for operation in load.used]
        self._order = cycle([operation.weight for operation in load.used])
        self.kinds = [KindTally() for _ in self.names]
        self.lag = Histogram()  #: open loop: how late operations were sent
        self.errors_by_state: dict[tuple[int, str], int] = {}

    def absorb(self, records: Records) -> None:
        for number, tally in enumerate(self.kinds):
            tally.absorb(records[records["kind"] == number])
        count_into(self.lag, records["start"] - records["due"])
        for outcome, sqlstate in _failures(records):
            self.errors_by_state[outcome, sqlstate] = self.errors_by_state.get((outcome, sqlstate), 0) + 1

    def absorb_unsent(self, waits: NDArray[np.int64]) -> None:
        """Add the waiting times of operations that were due but never sent to the response times, without counting operations.

        Each added time is at least the shortest service time of the same kind, because the operation would have taken that
        long at least.
        """
        kinds = np.resize(self._order, len(waits))
        for number, tally in enumerate(self.kinds):
            count_into(tally.response, np.maximum(waits[kinds == number], tally.service.least or 0))

    def merge(self, other: "LoadTally") -> None:
        for own, added in zip(self.kinds, other.kinds, strict=True):
            own.merge(added)
        self.lag.merge(other.lag)
        for failure, count in other.errors_by_state.items():
            self.errors_by_state[failure] = self.errors_by_state.get(failure, 0) + count

    @property
    def operations(self) -> int:
        return sum(kind.operations for kind in self.kinds)

    @property
    def errors(self) -> int:
        return sum(kind.errors for kind in self.kinds)

    @property
    def reads(self) -> int:
        return sum(kind.operations for kind, reads in zip(self.kinds, self._reads, strict=True) if reads)

    @property
    def response(self) -> Histogram:
        return _merged(kind.response for kind in self.kinds)

    @property
    def service(self) -> Histogram:
        return _merged(kind.service for kind in self.kinds)

    def by_kind(self) -> Mapping[str, KindTally]:
        return dict(zip(self.names, self.kinds, strict=True))


def latency_figures(histogram: Histogram, percents: Sequence[float] = (50, 90, 95, 99, 99.9)) -> dict[str, Any]:
    """Return a histogram's percentiles, mean, minimum and maximum, in milliseconds."""
    named = {f"p{percent:g}_ms": value for percent, value in zip(percents, histogram.percentiles_ns(percents), strict=True)}
    count = histogram.count
    named |= {
        "mean_ms": histogram.total / count if count else None,
        "min_ms": histogram.least,
        "max_ms": histogram.greatest,
    }
    return {name: None if value is None else value / 1e6 for name, value in named.items()}


def _failures(records: Records) -> list[tuple[int, str]]:
    failed = records[records["outcome"] != OK]
    return [(int(each["outcome"]), bytes(each["sqlstate"]).decode()) for each in failed]


def _merged(histograms: Any) -> Histogram:
    merged = Histogram()
    for histogram in histograms:
        merged.merge(histogram)
    return merged
