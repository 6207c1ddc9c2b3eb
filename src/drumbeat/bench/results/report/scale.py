"""Maps values to positions in a chart, and chooses the ticks of its axes."""

from dataclasses import dataclass
from math import ceil, floor, log10

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_SIXTIES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps values from ``low`` … ``high`` to positions from ``begin`` … ``end``, linearly or logarithmically."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        share = self._share(min(max(value, self.low), self.high))
        return self.begin + share * (self.end - self.begin)

    def _share(self, value: float) -> float:
        if self.log:
            return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return (value - self.low) / (self.high - self.low)


def upwards(
    values: list[float], begin: float, end: float, *, log: bool = False, whole: bool = False
) -> tuple[Scale, list[float]]:
    """Return a scale for a chart's vertical axis that covers all values (from zero unless logarithmic), and its ticks."""
    positive = [value for value in values if value > 0]
    if log and positive:
        ticks = log_ticks(min(positive), max(positive))
    else:
        log, ticks = False, even_ticks(max([*positive, 0.0]), least_step=1.0 if whole else 0.0)
    return Scale(low=ticks[0], high=ticks[-1], begin=begin, end=end, log=log), ticks


def even_ticks(high: float, about: int = 5, least_step: float = 0.0) -> list[float]:
    """Return round numbers as ticks, from 0 to the first number at or above ``high``."""
    step = _round_step(max((high or 1.0) / about, least_step))
    return [step * n for n in range(ceil((high or 1.0) / step - 1e-9) + 1)]


def _round_step(least: float) -> float:
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in _STEPS if step * power >= least * (1 - 1e-9))


def log_ticks(low: float, high: float) -> list[float]:
    """Return the ticks of a logarithmic axis: 1, 2, 5, 10 …, or fewer if the range is wide."""
    first, last = floor(log10(low)), ceil(log10(high) + 1e-9)
    steps = (1, 2, 5) if last - first <= 2 else (1, 3) if last - first <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    below = [tick for tick in ticks if tick <= low] or ticks[:1]
    above = [tick for tick in ticks if tick >= high] or ticks[-1:]
    inside = [tick for tick in ticks if below[-1] <= tick <= above[0]]
    return inside if len(inside) > 1 else [below[-1], below[-1] * 10]


def time_ticks(low: float, high: float, about: int = 8) -> list[float]:
    """Return ticks at round seconds, minutes or hours between two times (in seconds)."""
    least = max(high - low, 1) / about
    step = next((each for each in _SIXTIES if each >= least), ceil(least / 86400) * 86400)
    return [step * n for n in range(ceil(low / step), floor(high / step) + 1)]


def is_wide(values: list[float]) -> bool:
    """Whether the values differ so much that only a logarithmic scale shows them all."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) / min(positive) > 20
