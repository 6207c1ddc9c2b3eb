"""Whether two samples differ: Mann–Whitney's U and Welch's t, and Hodges–Lehmann's shift with its interval. Pure.

Ranks alone cannot tell a little more from ten times as much: of few batches that resemble one another they show nothing at all.
So the means are tested too, by their logarithms (what is compared here is counted in shares), and the surer of both counts.

Seconds of one run resemble their neighbours, so they are no independent samples. They come here in batches, and what
resemblance is left between one batch and the next widens the test: the variance is multiplied by (1 + r) / (1 − r), r being
the correlation of neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import floor, log, log1p, sqrt
from statistics import NormalDist, fmean, median, variance

FEWEST = 5  #: batches on each side: with fewer no difference could ever be shown
_MOST_CORRELATED = 0.9
_COUNTED_OUT = 12  #: values on both sides together, up to which every way to deal them out is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """By how much the second sample lies above the first. ``low`` and ``high`` hold it with the test's confidence."""

    estimate: float
    low: float
    high: float
    p_value: float
    confidence: float

    @property
    def shown(self) -> bool:
        """Whether the samples differ, as far as the test can show."""
        return self.p_value < 1 - self.confidence


def shift(before: Sequence[float], after: Sequence[float], confidence: float = 0.99) -> Shift | None:
    """How two samples differ; None when there are too few batches to say."""
    if min(len(before), len(after)) < FEWEST:
        return None
    wider = sqrt(inflation(before, after))
    differences = sorted(late - early for late in after for early in before)
    low, high = _interval(differences, len(before), len(after), confidence, wider)
    return Shift(
        estimate=median(differences),
        low=low,
        high=high,
        p_value=min(_p_value(before, after, wider), _p_of_means(before, after)),
        confidence=confidence,
    )


def _interval(differences: Sequence[float], m: int, n: int, confidence: float, wider: float) -> tuple[float, float]:
    """Hodges–Lehmann's: so many of the ordered differences are cut off at either end."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    cut = floor(m * n / 2 - z * wider * sqrt(m * n * (m + n + 1) / 12))
    cut = max(cut, 0)
    return differences[cut], differences[len(differences) - 1 - cut]


def _p_value(before: Sequence[float], after: Sequence[float], wider: float) -> float:
    """Two-sided. Few values are dealt out in every way there is; of many the normal approximation is good enough."""
    m, n = len(before), len(after)
    ranks, ties = ranked([*before, *after])
    total = m + n
    if total <= _COUNTED_OUT:
        return _widened(_counted(ranks, n), wider)
    u = sum(ranks[m:]) - n * (n + 1) / 2
    spread = m * n / 12 * (total + 1 - ties / (total * (total - 1)))
    if spread <= 0:
        return 1.0
    distance = max(abs(u - m * n / 2) - 0.5, 0.0) / (sqrt(spread) * wider)
    return 2 * (1 - NormalDist().cdf(distance))


def _p_of_means(before: Sequence[float], after: Sequence[float]) -> float:
    """Two-sided, by Welch's t of the logarithms, each sample taken for as many strangers as it is worth."""
    old, new = ([log(value) for value in side] if min(*before, *after) > 0 else list(side) for side in (before, after))
    wider = inflation(old, new)
    errors = [variance(side) * wider / len(side) for side in (old, new)]
    if not sum(errors):
        return 1.0
    t = abs(fmean(new) - fmean(old)) / sqrt(sum(errors))
    worth = [max(len(side) / wider, 2.0) - 1 for side in (old, new)]
    freedom = sum(errors) ** 2 / sum(error**2 / each for error, each in zip(errors, worth, strict=True))
    z = (8 * freedom + 1) / (8 * freedom + 3) * sqrt(freedom * log1p(t * t / freedom))  # Wallace's, good to a few thousandths
    return 2 * (1 - NormalDist().cdf(z))


def _counted(ranks: Sequence[float], n: int) -> float:
    """The share of all ways to deal out the ranks that are as far from the middle as this one, or further."""
    middle = n * sum(ranks) / len(ranks)
    found = abs(sum(ranks[-n:]) - middle) - 1e-9
    ways = [abs(sum(dealt) - middle) >= found for dealt in combinations(ranks, n)]
    return sum(ways) / len(ways)


def _widened(p_value: float, wider: float) -> float:
    """What is left of it where the values resemble their neighbours."""
    if wider <= 1.0 or p_value >= 1.0:
        return p_value
    usual = NormalDist()
    return 2 * (1 - usual.cdf(usual.inv_cdf(1 - p_value / 2) / wider))


def ranked(values: Sequence[float]) -> tuple[list[float], int]:
    """Each value's rank from 1, equal ones sharing the middle of theirs; and the ties' sum of t³ − t."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    ranks, ties, first = [0.0] * len(values), 0, 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in order[first : last + 1]:
            ranks[place] = (first + last) / 2 + 1
        ties += (last - first + 1) ** 3 - (last - first + 1)
        first = last + 1
    return ranks, ties


def inflation(*samples: Sequence[float]) -> float:
    """How much more the sum of neighbours varies than that of strangers would: 1, or more."""
    products = squares = 0.0
    for sample in samples:
        middle = sum(sample) / len(sample)
        off = [value - middle for value in sample]
        products += sum(one * other for one, other in pairwise(off))
        squares += sum(each * each for each in off)
    unbiased = len(samples) / sum(len(sample) for sample in samples)
    found = products / squares + unbiased if squares else 0.0
    r = min(max(found, 0.0), _MOST_CORRELATED)
    return (1 + r) / (1 - r)
