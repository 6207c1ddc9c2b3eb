"""A run's time series for charts: at most a few hundred points however long the run, with every peak kept. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from drumbeat.bench.model.record import Second, WorkerSecond
from drumbeat.bench.model.watching import Curves, Point, Stretch
from drumbeat.bench.results.availability import outages

MOST_POINTS = 600
OUTAGE = "no service"
_DIGITS = 5  #: significant digits; more cannot be seen in a chart

_OF_A_SECOND: Mapping[str, Callable[[Second], float | None]] = {
    "qps": lambda second: second.qps,
    "errors": lambda second: second.errors,
    "p50_ms": lambda second: second.p50_ms,
    "p95_ms": lambda second: second.p95_ms,
    "p99_ms": lambda second: second.p99_ms,
    "held": lambda second: second.held,
    "target": lambda second: second.target,
    "cpu_percent": lambda second: second.cpu_percent,
    "memory_percent": lambda second: second.memory_percent,
    "workers": lambda second: second.workers,
}
_OF_A_WORKER: Mapping[str, Callable[[WorkerSecond], float | None]] = {
    "qps": lambda second: second.qps,
    "p95_ms": lambda second: second.p95_ms,
    "held": lambda second: second.held,
    "target": lambda second: second.target,
    "cpu_percent": lambda second: second.cpu_percent,
    "memory_percent": lambda second: second.memory_percent,
}


def curves_of(seconds: Sequence[Second], most: int = MOST_POINTS) -> Curves:
    """The whole run's lines."""
    return Curves(
        seconds=seconds[-1].offset + 1 if seconds else 0.0,
        phases=tuple(_stretches(seconds)),
        outages=tuple(Stretch(name=OUTAGE, began=began, ended=ended) for began, ended in outages(seconds)),
        series={name: _line([(each.offset, of(each)) for each in seconds], most) for name, of in _OF_A_SECOND.items()},
    )


def worker_curves(series: Sequence[WorkerSecond], most: int = MOST_POINTS) -> Curves:
    """One worker's lines."""
    return Curves(
        seconds=series[-1].offset if series else 0.0,
        series={name: _line([(each.offset, of(each)) for each in series], most) for name, of in _OF_A_WORKER.items()},
    )


def _stretches(seconds: Sequence[Second]) -> Iterable[Stretch]:
    for phase, group in groupby(seconds, key=lambda second: second.phase):
        within = list(group)
        if phase:
            yield Stretch(name=phase, began=within[0].offset, ended=within[-1].offset + 1)


def _line(points: Sequence[Point], most: int) -> tuple[Point, ...]:
    return tuple((round(x, 1), _short(y)) for x, y in thinned(points, most))


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """At most ``most`` points: the least and the greatest of each stretch, in order; one point for a stretch without values.

    Stretches are 4, 8, 16 … points wide, so that the points of a growing line stay the same until the width doubles.
    """
    if len(points) <= most:
        return points
    wide = 4
    while 2 * -(-len(points) // wide) > most:
        wide *= 2
    return [point for begin in range(0, len(points), wide) for point in _extremes(points[begin : begin + wide])]


def _extremes(stretch: Sequence[Point]) -> Sequence[Point]:
    known = [(y, place) for place, (_, y) in enumerate(stretch) if y is not None]
    if not known:
        return stretch[:1]
    least, greatest = min(known)[1], max(known)[1]
    return [stretch[place] for place in sorted({least, greatest})]


def written(curves: Curves) -> dict[str, Any]:
    """Curves as they are stored in a result."""
    plain: dict[str, Any] = msgspec.to_builtins(curves)
    return plain


def read(stored: Any) -> Curves | None:
    """Curves from a result; None: it has none, or they are invalid."""
    if stored is None:
        return None
    try:
        return msgspec.convert(stored, Curves)
    except msgspec.ValidationError:
        return None
