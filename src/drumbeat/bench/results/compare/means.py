"""Tests whether two runs differ, and by how much: Welch's t-test of the logarithms of batch means. Pure.

One test gives both the p-value and the confidence interval, so they never contradict each other. It uses logarithms because
changes are compared as shares, and means instead of ranks because ranks of few batches do not show how large a change is.

Two effects make equal runs look different, so the test allows for both. Neighbouring seconds of a run are correlated: seconds
are grouped into batches, and the variance is multiplied by (1 + r) / (1 − r), where r is the correlation of neighbouring
batches. And two equal runs differ by more than their seconds show (memory layout, caches, background work of the server): each
run is assumed to be off by ``between``, a share of the figure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, expm1, inf, log, log1p, sqrt
from statistics import NormalDist, fmean, variance

FEWEST = 8  #: least batches of each run; with fewer, the variance cannot be estimated well enough
_MOST_CORRELATED = 0.9
_MOST_FREEDOM = 1e6  #: degrees of freedom beyond which the t distribution is taken as normal


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """By how much a figure of the second run is above that of the first. ``low`` to ``high`` is the confidence interval."""

    estimate: float
    low: float
    high: float
    p_value: float
    confidence: float

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant."""
        return self.p_value < 1 - self.confidence


def shift(
    before: Sequence[float],
    after: Sequence[float],
    *,
    between: float = 0.0,
    whole: float | None = None,
    confidence: float = 0.99,
) -> Shift | None:
    """Test how two runs differ, from the values of their batches; None when there are too few batches.

    ``between`` is the share by which two equal runs differ anyway (a standard deviation). ``whole`` is the figure of the whole
    first run, used to convert shares into amounts.
    """
    if min(len(before), len(after)) < FEWEST:
        return None
    if min(*before, *after) <= 0:
        return _tested(before, after, between * fmean(before), confidence)
    found = _tested([log(value) for value in before], [log(value) for value in after], between, confidence)
    return _as_amounts(found, whole or exp(fmean(log(value) for value in before)))


def _as_amounts(found: Shift, of: float) -> Shift:
    low, estimate, high = (of * expm1(min(each, 700.0)) for each in (found.low, found.estimate, found.high))
    return Shift(estimate=estimate, low=low, high=high, p_value=found.p_value, confidence=found.confidence)


def _tested(before: Sequence[float], after: Sequence[float], between: float, confidence: float) -> Shift:
    """Run Welch's two-sided t-test. Correlation of neighbouring batches reduces the effective number of batches."""
    difference, wider = fmean(after) - fmean(before), inflation(before, after)
    errors = [variance(side) * wider / len(side) for side in (before, after)]
    error = sqrt(sum(errors) + 2 * between**2)
    freedom = _freedom(errors, error, [max(len(side) / sqrt(wider), 2.0) - 1 for side in (before, after)])
    reach = error * _t_of(NormalDist().inv_cdf((1 + confidence) / 2), freedom)
    return Shift(
        estimate=difference,
        low=difference - reach,
        high=difference + reach,
        p_value=_p_value(difference, error, freedom),
        confidence=confidence,
    )


def _freedom(errors: Sequence[float], error: float, each: Sequence[float]) -> float:
    """Return the Welch-Satterthwaite degrees of freedom. The assumed variance between runs does not reduce them."""
    lost = sum(error**2 / freedom for error, freedom in zip(errors, each, strict=True))
    return min(error**4 / lost, _MOST_FREEDOM) if lost else _MOST_FREEDOM


def _p_value(difference: float, error: float, freedom: float) -> float:
    if not error:
        return 0.0 if difference else 1.0
    return 2 * (1 - NormalDist().cdf(_z_of(abs(difference) / error, freedom)))


def _z_of(t: float, freedom: float) -> float:
    """Convert a value of the t distribution to the equally likely normal value (Wallace's approximation, error below 0.01)."""
    return (8 * freedom + 1) / (8 * freedom + 3) * sqrt(freedom * log1p(t * t / freedom)) if t < inf else inf


def _t_of(z: float, freedom: float) -> float:
    """Convert a normal value to the equally likely value of the t distribution; the inverse of ``_z_of``."""
    wider = z * (8 * freedom + 3) / (8 * freedom + 1)
    return sqrt(freedom * expm1(wider * wider / freedom))


def inflation(*samples: Sequence[float]) -> float:
    """Return the factor, 1 or more, by which correlation of neighbouring values increases the variance of their mean."""
    products = squares = 0.0
    for sample in samples:
        middle = fmean(sample)
        off = [value - middle for value in sample]
        products += sum(one * other for one, other in pairwise(off))
        squares += sum(each * each for each in off)
    unbiased = len(samples) / sum(len(sample) for sample in samples)
    found = products / squares + unbiased if squares else 0.0
    r = min(max(found, 0.0), _MOST_CORRELATED)
    return (1 + r) / (1 - r)
