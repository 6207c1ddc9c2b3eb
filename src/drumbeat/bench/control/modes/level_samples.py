"""The measurements of each level (number of connections) in a search, and how much they vary by chance."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import fmean

from drumbeat.bench.model import StepFigures

ASSUMED = 0.03  #: assumed standard deviation of a figure, as a share …
WEIGHT = 2.0  #: … which weighs as much as this many measured values
LARGEST = 0.2  #: a larger deviation is a real change, so only this much of it counts as chance

Measure = Callable[[StepFigures], float | None]  #: returns the logarithm of one figure of a step; None if not measured


def p95(sample: StepFigures) -> float | None:
    return log(sample.p95_ms) if sample.p95_ms else None


def qps(sample: StepFigures) -> float | None:
    return log(sample.qps) if sample.qps > 0 else None


def pace(sample: StepFigures) -> float | None:
    """Return the logarithm of the throughput per connection; None if the throughput is 0. As connections are added, it changes
    more smoothly than the throughput."""
    return log(sample.qps / sample.connections) if sample.qps > 0 else None


def at(history: Iterable[StepFigures], level: int) -> list[StepFigures]:
    return [sample for sample in history if sample.connections == level]


def values(samples: Iterable[StepFigures], measure: Measure) -> list[float]:
    return [value for sample in samples if (value := measure(sample)) is not None]


def pooled(history: Iterable[StepFigures], level: int) -> StepFigures | None:
    """Merge all measurements with ``level`` connections: mean throughput and geometric mean latencies; None if there are none.
    The figures by kind of operation are those of the last measurement."""
    samples = at(history, level)
    if not samples:
        return None
    return replace(
        samples[0],
        qps=fmean(sample.qps for sample in samples),
        p95_ms=_geometric(sample.p95_ms for sample in samples),
        p99_ms=_geometric(sample.p99_ms for sample in samples),
        stable=samples[-1].stable,
        kinds=samples[-1].kinds,
    )


def judged(history: Sequence[StepFigures], level: int, stable: bool) -> tuple[StepFigures, ...]:
    """Return the history with all measurements that had ``level`` connections marked as stable or not stable."""
    return tuple(replace(sample, stable=stable) if sample.connections == level else sample for sample in history)


def stable_levels(history: Iterable[StepFigures], below: int) -> list[int]:
    """Return the numbers of connections below ``below`` that regular (upward) steps of a search found stable, highest first."""
    regular = (sample for sample in history if sample.stable and not sample.is_probe)
    return sorted({sample.connections for sample in regular if sample.connections < below}, reverse=True)


def scatter(history: Sequence[StepFigures], measure: Measure) -> float:
    """Estimate how much a figure varies by chance: the standard deviation of one sample, as a share of the figure.

    Uses the differences between samples of the same level (number of connections), and the distance of a level's mean from the
    line through the levels below and above it.
    """
    levels = _by_level(history, measure)
    squares, observations = WEIGHT * ASSUMED**2, WEIGHT
    for found in levels.values():
        mean = fmean(found)
        squares += sum(min((value - mean) ** 2, LARGEST**2) for value in found)
        observations += len(found) - 1
    for deviation in _deviations(levels, stable_levels(history, below=max(levels, default=0) + 1)):
        squares += min(deviation, LARGEST**2)
        observations += 1
    return sqrt(squares / observations)


def _deviations(levels: Mapping[int, Sequence[float]], regular: Sequence[int]) -> Iterable[float]:
    """Yield an estimate of the variance of one measurement from every three neighbours in ``regular`` that are evenly spaced:
    without noise, the mean at the middle number of connections would lie on the line through the means at the outer two."""
    for high, middle, low in zip(regular, regular[1:], regular[2:], strict=False):
        if high - middle == middle - low and all(level in levels for level in (high, middle, low)):
            bend = fmean(levels[high]) - 2 * fmean(levels[middle]) + fmean(levels[low])
            yield bend**2 / (1 / len(levels[high]) + 4 / len(levels[middle]) + 1 / len(levels[low]))


def _by_level(history: Iterable[StepFigures], measure: Measure) -> dict[int, list[float]]:
    levels: dict[int, list[float]] = {}
    for sample in history:
        if (value := measure(sample)) is not None:
            levels.setdefault(sample.connections, []).append(value)
    return levels


def _geometric(figures: Iterable[float | None]) -> float | None:
    logs = [log(figure) for figure in figures if figure]
    return exp(fmean(logs)) if logs else None
