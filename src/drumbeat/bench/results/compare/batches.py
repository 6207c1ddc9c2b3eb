"""Groups the measured seconds of a run into batches, with throughput, errors and percentiles of each batch. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, pstdev

from drumbeat.bench.model.record import RunRecord, Second
from drumbeat.core.histogram import Histogram, merged
from drumbeat.core.run import Phase, error_rate

SHORTEST = 3  #: fewest seconds in a batch
_MOST = 120  #: most batches of a run; a longer run gets longer batches
_PERCENTS = (50.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The figures of a few consecutive seconds. Percentiles come from the merged histograms of these seconds."""

    qps: float
    error_rate: float
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


def batches(record: RunRecord, seconds: int | None = None) -> tuple[Batch, ...]:
    """Return the measurement in batches of ``seconds``, without its first and last second, which are rarely complete."""
    measured = [second for second in record.timeline if second.phase == Phase.MEASUREMENT][1:-1]
    length = seconds or batch_length(len(measured))
    whole = range(0, len(measured) - length + 1, length)
    return tuple(_batch(measured[start : start + length]) for start in whole)


def batch_length(seconds: int) -> int:
    """Return the batch length, in seconds, for a measurement that lasts ``seconds``."""
    return max(SHORTEST, ceil(seconds / _MOST))


def common_length(first: int, second: int, fewest: int) -> int:
    """Return one batch length for two runs that measured ``first`` and ``second`` seconds: the length for the longer run,
    reduced if the shorter run would otherwise get fewer than ``fewest`` batches."""
    inner = min(first, second) - 2
    return min(batch_length(max(first, second)), max(SHORTEST, inner // fewest))


def _batch(seconds: Sequence[Second]) -> Batch:
    operations = sum(second.operations for second in seconds)
    errors, connects = sum(second.errors for second in seconds), sum(second.failed_connects for second in seconds)
    whole = merged(Histogram.from_bytes(second.histogram) for second in seconds if second.histogram)
    p50, p95, p99 = (None if ns is None else ns / 1e6 for ns in whole.percentiles_ns(_PERCENTS))
    return Batch(
        qps=operations / len(seconds),
        error_rate=error_rate(operations, errors, connects),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
    )


def variation(values: Sequence[float]) -> float | None:
    """Return the coefficient of variation: below 0.15 is steady, above 0.30 is unsteady. None for fewer than two values, and
    for a mean of 0."""
    mean = fmean(values) if values else 0.0
    return pstdev(values) / mean if mean > 0 and len(values) > 1 else None


def quality(record: RunRecord) -> float | None:
    """Return how steady a run's throughput was, from 1 (steady) to 0; 0.5 at a variation of 0.30. None if it has fewer than two
    batches, or no operations."""
    found = variation([batch.qps for batch in batches(record)])
    return None if found is None else max(0.0, 1 - found / 0.6)
