"""Makes time series for charts: at most a few hundred points for a run of any length, with all peaks. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from drumbeat.bench.model.record import Second, WorkerSecond
from drumbeat.bench.model.watching import Curves, Point, Stretch
from drumbeat.bench.results.availability import outages
from drumbeat.core.downsample import downsample

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
    """Return the chart lines of a whole run: throughput, errors, latencies, connections, CPU, memory."""
    return Curves(
        seconds=seconds[-1].offset + 1 if seconds else 0.0,
        phases=tuple(_stretches(seconds)),
        outages=tuple(Stretch(name=OUTAGE, began=began, ended=ended) for began, ended in outages(seconds)),
        series={name: _line([(each.offset, of(each)) for each in seconds], most) for name, of in _OF_A_SECOND.items()},
    )


def worker_curves(series: Sequence[WorkerSecond], most: int = MOST_POINTS) -> Curves:
    """Return the chart lines of one worker: throughput, p95, connections, CPU, memory."""
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
    return tuple((round(x, 1), _short(y)) for x, y in downsample(points, most))


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def encode_curves(curves: Curves) -> dict[str, Any]:
    """Convert curves to plain values, the form in which a run's result stores them."""
    plain: dict[str, Any] = msgspec.to_builtins(curves)
    return plain


def decode_curves(stored: Any) -> Curves | None:
    """Convert the curves in a run's stored result from JSON. Returns None if there are none or they are invalid."""
    if stored is None:
        return None
    try:
        return msgspec.convert(stored, Curves)
    except msgspec.ValidationError:
        return None
