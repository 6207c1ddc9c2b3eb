"""The best fixed number of workers, chosen with knowledge of the whole load."""

from dataclasses import dataclass
from heapq import heapreplace

from drumbeat.fleet.simulate import SimulatedLoad
from drumbeat.fleet.simulate.values import percentile

MOST = 4096
HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Cost and wait of a fixed number of workers, from the first arrival to the last job's end."""

    workers: int
    hours: float
    wait_p95_s: float


def fixed(load: SimulatedLoad, workers: int, lag: float, skip: int = 0) -> Fixed:
    """Serve a load first come, first served. All workers start at the first arrival; the first ``skip`` jobs do not count."""
    free, waits, end = [load.arrivals[0] + lag] * workers, list[float](), 0.0
    for at, lasts in zip(load.arrivals, load.durations, strict=True):
        begins = max(free[0], at)
        heapreplace(free, begins + lasts)
        waits.append(begins - at)
        end = max(end, begins + lasts)
    paid = workers * (end - load.arrivals[skip])
    return Fixed(workers=workers, hours=paid / HOUR, wait_p95_s=percentile(sorted(waits[skip:]), 0.95))


def cheapest(load: SimulatedLoad, lag: float, wait_p95: float, skip: int = 0) -> Fixed | None:
    """Return the smallest fixed size whose 95th percentile of waits is at most ``wait_p95``. None if no size reaches it."""
    few, many = 0, 1
    while fixed(load, many, lag, skip).wait_p95_s > wait_p95 + 1e-6:
        few, many = many, many * 2
        if many > MOST:
            return None
    while many - few > 1:
        half = (few + many) // 2
        few, many = (few, half) if fixed(load, half, lag, skip).wait_p95_s <= wait_p95 + 1e-6 else (half, many)
    return fixed(load, many, lag, skip)
