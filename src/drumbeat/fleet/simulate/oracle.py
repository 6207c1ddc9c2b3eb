"""The oracle: an ideal fleet that knows all arrivals in advance, and the lowest cost of beginning every job at its arrival.

It starts each worker one spawn lag before its first job and pays for that start. A job takes the worker that became free
last. In the gap until its next job, a worker is kept if the gap is at most the spawn lag (or the billing granule, if longer);
otherwise it is ended and started again. So the cost is the busy time and, for each gap, the shorter of gap and lag. A policy
that lets jobs wait can cost less.
"""

from math import ceil

from drumbeat.fleet.simulate.values import SimulatedLoad


def oracle_seconds(load: SimulatedLoad, lag: float, granule: float = 1.0, concurrency: int = 1) -> float:
    """Return the worker-seconds that the oracle (an ideal fleet that knows all arrivals in advance) pays for a load."""
    worth = max(lag, granule)
    free: list[tuple[float, float]] = []  #: free workers: since when they are free, and since when they are paid
    taken: list[float] = []  #: workers in use: since when they are paid
    paid, active = 0.0, 0
    for at, change in _changes(load):
        before, active = ceil(active / concurrency), active + change
        now = ceil(active / concurrency)
        if now < before:
            free.append((at, taken.pop()))
        elif now > before:
            since, began = free.pop() if free else (None, at - lag)
            if since is not None and at - since > worth:
                paid += _billed(since - began, granule)
                began = at - lag
            taken.append(began)
    return paid + sum(_billed(since - began, granule) for since, began in free)


def _changes(load: SimulatedLoad) -> list[tuple[float, int]]:
    """Return when each job begins (1) and ends (-1), in order of time; at equal times, ends come first."""
    begins = [(at, 1) for at, lasts in zip(load.arrivals, load.durations, strict=True) if at + lasts > at]
    ends = [(at + lasts, -1) for at, lasts in zip(load.arrivals, load.durations, strict=True) if at + lasts > at]
    return sorted([*begins, *ends])


def _billed(seconds: float, granule: float) -> float:
    return granule * max(ceil(seconds / granule - 1e-9), 1)
