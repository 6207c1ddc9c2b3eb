"""What was measured at each level so far, several times at some, and how much such figures scatter by themselves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import fmean

from drumbeat.bench.model import StepFigures

ASSUMED = 0.03  #: the scatter of a figure before anything has shown it …
WEIGHT = 2.0  #: … which counts as much as so many observations of it
LARGEST = 0.2  #: what strays further has changed, and says nothing of scatter

Measure = Callable[[StepFigures], float | None]  #: a figure's logarithm; None: there is none


def p95(look: StepFigures) -> float | None:
    return log(look.p95_ms) if look.p95_ms else None


def qps(look: StepFigures) -> float | None:
    return log(look.qps) if look.qps > 0 else None


def pace(look: StepFigures) -> float | None:
    """One connection's throughput, which is smooth over levels where throughput itself is not."""
    return log(look.qps / look.connections) if look.qps > 0 else None


def at(history: Iterable[StepFigures], level: int) -> list[StepFigures]:
    return [look for look in history if look.connections == level]


def values(looks: Iterable[StepFigures], measure: Measure) -> list[float]:
    return [value for look in looks if (value := measure(look)) is not None]


def pooled(history: Iterable[StepFigures], level: int) -> StepFigures | None:
    """All looks at a level as one: mean throughput, geometric mean latencies; kinds are the last look's."""
    looks = at(history, level)
    if not looks:
        return None
    return replace(
        looks[0],
        qps=fmean(look.qps for look in looks),
        p95_ms=_geometric(look.p95_ms for look in looks),
        p99_ms=_geometric(look.p99_ms for look in looks),
        stable=looks[-1].stable,
        kinds=looks[-1].kinds,
    )


def judged(history: Sequence[StepFigures], level: int, stable: bool) -> tuple[StepFigures, ...]:
    """The history with every look at a level marked by what was found about it in the end."""
    return tuple(replace(look, stable=stable) if look.connections == level else look for look in history)


def stable_levels(history: Iterable[StepFigures], below: int) -> list[int]:
    """The levels of regular steps that were stable, highest first."""
    return sorted(
        {look.connections for look in history if look.stable and not look.is_probe and look.connections < below}, reverse=True
    )


def scatter(history: Sequence[StepFigures], measure: Measure) -> float:
    """One standard deviation of a single look, as a share of the figure.

    It shows between looks at the same level, and in how far a stable level strays from the line through its two neighbours.
    """
    levels = _by_level(history, measure)
    squares, observations = WEIGHT * ASSUMED**2, WEIGHT
    for found in levels.values():
        mean = fmean(found)
        squares += sum(min((value - mean) ** 2, LARGEST**2) for value in found)
        observations += len(found) - 1
    for strayed in _strays(levels, stable_levels(history, below=max(levels, default=0) + 1)):
        squares += min(strayed, LARGEST**2)
        observations += 1
    return sqrt(squares / observations)


def _strays(levels: Mapping[int, Sequence[float]], regular: Sequence[int]) -> Iterable[float]:
    """The squared distance of each level from its neighbours' line, in units of one look's variance."""
    for high, middle, low in zip(regular, regular[1:], regular[2:], strict=False):
        if high - middle == middle - low and all(level in levels for level in (high, middle, low)):
            bend = fmean(levels[high]) - 2 * fmean(levels[middle]) + fmean(levels[low])
            yield bend**2 / (1 / len(levels[high]) + 4 / len(levels[middle]) + 1 / len(levels[low]))


def _by_level(history: Iterable[StepFigures], measure: Measure) -> dict[int, list[float]]:
    levels: dict[int, list[float]] = {}
    for look in history:
        if (value := measure(look)) is not None:
            levels.setdefault(look.connections, []).append(value)
    return levels


def _geometric(figures: Iterable[float | None]) -> float | None:
    logs = [log(figure) for figure in figures if figure]
    return exp(fmean(logs)) if logs else None
