"""Summarises a figure over past runs: median, mean weighted towards recent runs, variation and trend. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median

from drumbeat.bench.results.compare.batches import variation

_FADING = 0.8


class Steadiness(StrEnum):
    """How much the values of a figure agree between past runs."""

    STABLE = "stable"
    MODERATE = "moderate"
    UNSTABLE = "unstable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Statistics of one figure over past runs."""

    runs: int
    median: float
    recent: float  #: mean in which each run weighs 0.8 times as much as the next newer run
    variation: float | None
    slope: float  #: change from one run to the next, on the regression line
    r_squared: float

    @property
    def steadiness(self) -> Steadiness:
        if self.variation is None:
            return Steadiness.UNKNOWN
        if self.variation < 0.15:
            return Steadiness.STABLE
        return Steadiness.UNSTABLE if self.variation > 0.30 else Steadiness.MODERATE


def history(values: Sequence[float]) -> History | None:
    """Summarise the values of a figure, given oldest first; None without values."""
    if not values:
        return None
    weights = [_FADING**age for age in range(len(values))][::-1]
    slope, r_squared = _line(values)
    return History(
        runs=len(values),
        median=median(values),
        recent=sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights),
        variation=variation(values),
        slope=slope,
        r_squared=r_squared,
    )


def _line(values: Sequence[float]) -> tuple[float, float]:
    """Return the slope of the regression line through the values, and its r²."""
    middle_x, middle_y = (len(values) - 1) / 2, fmean(values)
    xx = sum((x - middle_x) ** 2 for x in range(len(values)))
    yy = sum((y - middle_y) ** 2 for y in values)
    xy = sum((x - middle_x) * (y - middle_y) for x, y in enumerate(values))
    return (xy / xx, xy * xy / (xx * yy)) if xx and yy else (0.0, 0.0)
