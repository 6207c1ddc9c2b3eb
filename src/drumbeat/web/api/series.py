"""Reduces a run's measurements per second to fewer points. Pure: no clock, no I/O."""

from collections.abc import Sequence
from itertools import groupby
from math import ceil

from drumbeat.bench.model import Latency, Second
from drumbeat.core.histogram import Histogram, merged
from drumbeat.web.api.shapes_runs import Interval


def thinned(timeline: Sequence[Second], points: int) -> tuple[int, list[Interval]]:
    """Return how many seconds a point covers, and at most ``points`` points. Rates are averaged, errors are summed."""
    if not timeline:
        return 1, []
    span = timeline[-1].offset - timeline[0].offset + 1
    length = max(ceil(span / points), 1)
    first = timeline[0].offset
    parts = groupby(timeline, key=lambda second: (second.offset - first) // length)
    return length, [_interval(first + n * length, list(seconds)) for n, seconds in parts]


def _interval(offset: int, seconds: Sequence[Second]) -> Interval:
    latency = Latency.of(merged(Histogram.from_bytes(each.histogram) for each in seconds if each.histogram))
    return Interval(
        offset=offset,
        seconds=len(seconds),
        phase=seconds[-1].phase,
        qps=sum(each.operations for each in seconds) / len(seconds),
        errors=sum(each.errors for each in seconds),
        p50_ms=latency.p50_ms,
        p95_ms=latency.p95_ms,
        p99_ms=latency.p99_ms,
        connections=sum(each.held for each in seconds) / len(seconds),
        target=sum(each.target for each in seconds) / len(seconds),
        cpu_percent=_mean([each.cpu_percent for each in seconds]),
        memory_percent=_mean([each.memory_percent for each in seconds]),
        workers=max(each.workers for each in seconds),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
