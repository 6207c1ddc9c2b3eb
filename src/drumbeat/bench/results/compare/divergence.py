"""Measures how much two latency distributions differ: Kullback-Leibler divergence over logarithmic bins. Pure."""

from collections.abc import Sequence
from math import log

from drumbeat.core.histogram import Histogram, bucket_bounds

BINS = 20
DIFFERENT = 0.1  #: distributions with a larger divergence, in nats, count as different


def divergence(before: Histogram, after: Histogram) -> float | None:
    """Return the divergence of ``after`` from ``before``, in nats; None when one of them is empty."""
    if before.least is None or before.greatest is None or after.least is None or after.greatest is None:
        return None
    low, high = max(min(before.least, after.least), 1), max(before.greatest, after.greatest, 2)
    p, q = (_shares(each, low, high) for each in (after, before))
    return max(0.0, sum(one * log(one / other) for one, other in zip(p, q, strict=True)))


def _shares(histogram: Histogram, low: int, high: int) -> Sequence[float]:
    """Return the share of operations in each bin. Half an operation is added to each bin, so that no share is zero."""
    counts = [0.5] * BINS
    width = log(high / low) / BINS or 1.0
    for bucket, count in histogram.buckets():
        middle = max(sum(bucket_bounds(bucket)) / 2, low)
        counts[min(int(log(middle / low) / width), BINS - 1)] += count
    total = sum(counts)
    return [count / total for count in counts]
