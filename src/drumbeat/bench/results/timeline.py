"""Merges samples of many workers into figures of each second, phase and worker. Samples must be added oldest first."""

import base64
import binascii
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import floor
from typing import Any

import numpy as np

from drumbeat.bench.model.record import FailureExample, Latency, Measured, PhaseRecord, Second, WorkerSecond
from drumbeat.core.histogram import Histogram, bucket_of
from drumbeat.core.run import Phase
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import WorkerId

_PACKED_AFTER = 30  #: a second's histogram is compressed when samples are this many seconds ahead; a late sample unpacks it
_MOST_FAILURES = 100


@dataclass(slots=True)
class _Share:
    """One worker's connections, target, CPU and memory in one second, weighted by the time its samples cover."""

    known: float = 0.0
    held: float = 0.0
    target: float = 0.0
    cpu: float = 0.0
    cpu_known: float = 0.0
    memory: float = 0.0
    memory_known: float = 0.0

    def add(self, sample: StoredSample, seconds: float) -> None:
        self.known += seconds
        self.held += seconds * open_connections(sample)
        self.target += seconds * sample.target
        if sample.cpu_percent is not None:
            self.cpu += seconds * sample.cpu_percent
            self.cpu_known += seconds
        if sample.memory_percent is not None:
            self.memory += seconds * sample.memory_percent
            self.memory_known += seconds


@dataclass(slots=True)
class _Bin:
    """Adds up the samples of all workers in one second."""

    operations: float = 0.0
    errors: float = 0.0
    phases: dict[str | None, float] = field(default_factory=dict)  #: worker seconds by phase; a draining worker has no phase
    in_phase: float = 0.0  #: seconds that workers spent in any phase
    shares: dict[WorkerId, _Share] = field(default_factory=dict)
    errors_by_kind: dict[str, int] = field(default_factory=dict)
    errors_by_class: Counter[str] = field(default_factory=Counter)
    failed_connects: int = 0
    client_limited: bool = False
    packed: bytes = b""
    histogram: Histogram | None = None

    def spread(self, sample: StoredSample, seconds: float, share: float) -> None:
        self.operations += sample.operations * share
        self.errors += sample.errors * share
        if not sample.extra.get("draining"):
            self.phases[sample.phase] = self.phases.get(sample.phase, 0.0) + seconds
            self.in_phase += seconds
        self.shares.setdefault(sample.worker_id, _Share()).add(sample, seconds)

    def count(self, sample: StoredSample) -> None:
        """Add the parts of a sample that cannot be split between two seconds: histogram, errors by kind and class."""
        if self.histogram is None:
            self.histogram = Histogram.from_bytes(self.packed) if self.packed else Histogram()
        merge_into(self.histogram, sample.latency)
        self.client_limited = self.client_limited or was_the_limit(sample)
        self.failed_connects += failed_connects_of(sample)
        for kind, block in kinds_of(sample):
            if errors := int(block.get("errors", 0)):
                self.errors_by_kind[kind] = self.errors_by_kind.get(kind, 0) + errors
        self.errors_by_class.update(error_classes_of(sample))

    def pack(self) -> None:
        if self.histogram is not None:
            self.packed, self.histogram = self.histogram.to_bytes(), None

    def second(self, offset: int) -> Second:
        self.pack()
        latency = Latency.of(Histogram.from_bytes(self.packed)) if self.packed else Latency()
        shares = self.shares.values()
        return Second(
            offset=offset,
            phase=max(self.phases, key=lambda phase: self.phases[phase]) if self.phases else None,
            operations=self.operations,
            errors=self.errors,
            mean_ms=latency.mean_ms,
            p50_ms=latency.p50_ms,
            p95_ms=latency.p95_ms,
            p99_ms=latency.p99_ms,
            histogram=self.packed,
            held=sum(each.held / each.known for each in shares if each.known),
            target=sum(each.target / each.known for each in shares if each.known),
            cpu_percent=_mean([each.cpu / each.cpu_known for each in shares if each.cpu_known]),
            memory_percent=_mean([each.memory / each.memory_known for each in shares if each.memory_known]),
            workers=len(self.shares),
            covered=min(self.in_phase / max(len(self.shares), 1), 1.0),
            failed_connects=self.failed_connects,
            client_limited=self.client_limited,
            errors_by_kind=self.errors_by_kind,
            errors_by_class=dict(self.errors_by_class),
        )


@dataclass(slots=True)
class Counting:
    """Adds up the operations, errors, reads and latencies of samples, and returns the totals as a Measured."""

    operations: int = 0
    errors: int = 0
    reads: int = 0
    histogram: Histogram = field(default_factory=Histogram)

    def add(self, operations: int, errors: int, reads: int, histogram: Histogram) -> None:
        self.operations += operations
        self.errors += errors
        self.reads += reads
        merge_into(self.histogram, histogram)

    def measured(self, seconds: float) -> Measured:
        return Measured(
            operations=self.operations,
            errors=self.errors,
            reads=self.reads,
            seconds=seconds,
            latency=Latency.of(self.histogram),
            histogram=self.histogram.to_bytes(),
        )


@dataclass(slots=True)
class _PhaseCount:
    began: float
    ended: float
    whole: Counting = field(default_factory=Counting)
    kinds: dict[str, Counting] = field(default_factory=dict)

    def add_whole(self, sample: StoredSample, began: float, ended: float) -> None:
        self.began, self.ended = min(self.began, began), max(self.ended, ended)
        self.whole.add(sample.operations, sample.errors, sample.reads, sample.latency)

    def add(self, sample: StoredSample, began: float, ended: float) -> None:
        self.add_whole(sample, began, ended)
        for kind, block in kinds_of(sample):
            counting = self.kinds.setdefault(kind, Counting())
            counting.add(int(block.get("operations", 0)), int(block.get("errors", 0)), 0, histogram_of(block.get("response")))

    def record(self, name: str) -> PhaseRecord:
        seconds = self.ended - self.began
        kinds = {kind: counting.measured(seconds) for kind, counting in sorted(self.kinds.items())}
        return PhaseRecord(name=name, began=self.began, ended=self.ended, whole=self.whole.measured(seconds), kinds=kinds)


class Timeline:
    """Collects the samples of a run and returns figures for each second, each phase and each worker."""

    def __init__(self, origin: datetime) -> None:
        self._origin = origin
        self._bins: dict[int, _Bin] = {}
        self._phases: dict[str, _PhaseCount] = {}
        self._packed_to = 0
        self._by_worker: dict[WorkerId, _PhaseCount] = {}
        self.series: dict[WorkerId, list[WorkerSecond]] = {}
        self.limited: dict[WorkerId, int] = {}
        self.late: Counter[WorkerId] = Counter()
        self.failures: list[FailureExample] = []

    def add(self, sample: StoredSample) -> None:
        ended = (sample.at - self._origin).total_seconds()
        began = ended - sample.interval.total_seconds()
        for offset, seconds, share in overlaps(began, ended):
            self._bin(offset).spread(sample, seconds, share)
        self._bin(floor((began + ended) / 2)).count(sample)
        if sample.phase:
            self._phases.setdefault(sample.phase, _PhaseCount(began, ended)).add(sample, began, ended)
        if sample.phase == Phase.MEASUREMENT:
            self._by_worker.setdefault(sample.worker_id, _PhaseCount(began, ended)).add_whole(sample, began, ended)
            self.late[sample.worker_id] += was_late(sample)
        self._note_worker(sample, ended)
        note_failures(self.failures, sample)
        self._pack(floor(began) - _PACKED_AFTER)

    def _bin(self, offset: int) -> _Bin:
        return self._bins.setdefault(offset, _Bin())

    def _pack(self, before: int) -> None:
        for offset in range(self._packed_to, before):
            if offset in self._bins:
                self._bins[offset].pack()
        self._packed_to = max(self._packed_to, before)

    def _note_worker(self, sample: StoredSample, ended: float) -> None:
        limited = was_the_limit(sample)
        self.limited[sample.worker_id] = self.limited.get(sample.worker_id, 0) + limited
        p95 = sample.latency.percentile_ns(95)
        self.series.setdefault(sample.worker_id, []).append(
            WorkerSecond(
                offset=ended,
                qps=sample.qps,
                p95_ms=None if p95 is None else p95 / 1e6,
                held=open_connections(sample),
                target=sample.target,
                cpu_percent=sample.cpu_percent,
                memory_percent=sample.memory_percent,
            )
        )

    def each_second(self, since: int = 0, until: int | None = None) -> Iterator[Second]:
        """Yield the figures of each second from ``since`` up to, but not including, ``until``. Each is computed when iteration
        reaches it."""
        known = [offset for offset in self._bins if offset >= since and (until is None or offset < until)]
        return (self.second(offset) for offset in range(min(known), max(known) + 1)) if known else iter(())

    def second(self, offset: int) -> Second:
        """Return the figures of one second, from the samples added so far."""
        return self._bins.get(offset, _Bin()).second(offset)

    def measured_by(self, worker_id: WorkerId) -> Measured:
        """Return a worker's totals of the MEASUREMENT phase, from its samples. Used for a worker that stored no result."""
        counted = self._by_worker.get(worker_id)
        return counted.whole.measured(counted.ended - counted.began) if counted else Measured()

    def phases(self) -> tuple[PhaseRecord, ...]:
        """Return the figures of each phase, in the order in which the phases began."""
        records = [counted.record(name) for name, counted in self._phases.items()]
        return tuple(sorted(records, key=lambda record: record.began))


def merge_into(whole: Histogram, part: Histogram) -> None:
    """Add the histogram ``part`` to ``whole``, ten times faster than ``whole.merge``, as a long run has 100,000 histograms."""
    if part.least is None or part.greatest is None:
        return
    used = slice(bucket_of(part.least), bucket_of(part.greatest) + 1)
    np.frombuffer(whole.counts, dtype=np.uint64)[used] += np.frombuffer(part.counts, dtype=np.uint64)[used]
    whole.add((), part.total, part.least, part.greatest)


def open_connections(sample: StoredSample) -> int:
    """Return how many connections a worker had open in a sample; if not recorded, how many it should have had open."""
    return int(sample.extra.get("held", sample.target))


def was_the_limit(sample: StoredSample) -> bool:
    client = sample.extra.get("client")
    return isinstance(client, Mapping) and bool(client.get("was_the_limit"))


def was_late(sample: StoredSample) -> bool:
    """Whether the worker sent operations later than scheduled in the interval of this sample."""
    client = sample.extra.get("client")
    return isinstance(client, Mapping) and client.get("kept_schedule") is False and not sample.extra.get("draining")


def kinds_of(sample: StoredSample) -> Iterator[tuple[str, Mapping[str, Any]]]:
    kinds = sample.extra.get("kinds")
    return iter(kinds.items() if isinstance(kinds, Mapping) else ())


def error_classes_of(sample: StoredSample) -> Mapping[str, int]:
    """Return how many operations of a sample failed, by error class (CONNECTION, QUERY_TIMEOUT, DATABASE_ERROR …)."""
    classes = sample.extra.get("error_classes")
    return {str(name): int(count) for name, count in classes.items()} if isinstance(classes, Mapping) else {}


def failed_connects_of(sample: StoredSample) -> int:
    """Return how many attempts to connect failed in the interval of a sample."""
    failed = sample.extra.get("failed_connects")
    return failed if isinstance(failed, int) else 0


def histogram_of(text: Any) -> Histogram:
    """Decode a histogram from base64 text; an empty histogram if the text is missing or invalid."""
    try:
        return Histogram.from_bytes(base64.b64decode(text)) if text else Histogram()
    except (ValueError, TypeError, binascii.Error):
        return Histogram()


def note_failures(noted: list[FailureExample], sample: StoredSample) -> None:
    """Add a sample's examples of failed operations to ``noted``, until the list has ``_MOST_FAILURES``."""
    for example in sample.extra.get("error_samples") or ():
        if len(noted) < _MOST_FAILURES:
            noted.append(_failure(example, sample.worker_id))


def _failure(example: Mapping[str, Any], worker_id: WorkerId) -> FailureExample:
    return FailureExample(
        kind=str(example.get("kind", "")),
        error_class=str(example.get("class", "")),
        sqlstate=str(example.get("sqlstate", "")),
        message=str(example.get("message", "")),
        sql=str(example.get("sql", "")),
        worker_id=worker_id,
    )


def overlaps(began: float, ended: float) -> Iterator[tuple[int, float, float]]:
    """Divide an interval at whole seconds. Yields for each part: the second it is in, its length, its share of the interval."""
    length = ended - began
    if length <= 0:
        yield floor(ended), 0.0, 1.0
        return
    for offset in range(floor(began), floor(ended) + 1):
        seconds = min(ended, offset + 1) - max(began, offset)
        if seconds > 0:
            yield offset, seconds, seconds / length


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
