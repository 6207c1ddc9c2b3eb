"""Input and result of a simulation."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf

from drumbeat.core.errors import InvalidInput

_LONGEST_LAG = timedelta(days=366)
MOST_SECONDS = 1e10  #: the largest arrival or duration, three hundred years; a larger number is not in seconds


def in_seconds(arrival: float, duration: float) -> bool:
    """Whether arrival and duration are plausible numbers of seconds; ``nan`` and milliseconds since 1970 are not."""
    return abs(arrival) <= MOST_SECONDS and 0 <= duration <= MOST_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLoad:
    """Jobs in order of arrival: when each arrives and how long it takes, in seconds."""

    arrivals: Sequence[float]
    durations: Sequence[float]

    def __post_init__(self) -> None:
        if not self.arrivals or len(self.arrivals) != len(self.durations):
            raise InvalidInput(
                f"expected jobs, each with a duration, got {len(self.arrivals)} arrivals and {len(self.durations)} durations"
            )
        if any(late < early for early, late in zip(self.arrivals, self.arrivals[1:], strict=False)):
            raise InvalidInput("expected jobs in order of arrival, got a job that arrives before the previous one")
        if not all(in_seconds(at, lasts) for at, lasts in zip(self.arrivals, self.durations, strict=True)):
            raise InvalidInput(f"expected arrivals and durations of at most {MOST_SECONDS:g} s, and no duration below 0 s")

    def __len__(self) -> int:
        return len(self.arrivals)

    def first(self, count: int) -> "SimulatedLoad":
        """Return a load of only the first ``count`` jobs."""
        return SimulatedLoad(arrivals=self.arrivals[:count], durations=self.durations[:count])

    def twice(self) -> "SimulatedLoad":
        """Return a load of these jobs twice; the second pass begins to arrive when all jobs of the first could have ended.
        Raises InvalidInput if that takes longer than MOST_SECONDS."""
        began = self.arrivals[0]
        again = max(at + lasts for at, lasts in zip(self.arrivals, self.durations, strict=True)) - began
        arrivals = [at - began for at in self.arrivals]
        return SimulatedLoad(
            arrivals=[*arrivals, *(at + again for at in arrivals)], durations=[*self.durations, *self.durations]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedProvider:
    """The provider of a simulation: how long starts take, and what workers cost."""

    spawn_lag: timedelta = timedelta(seconds=120)
    jitter: float = 0.0  #: each start takes between 1 - jitter and 1 + jitter spawn lags
    granule: timedelta = timedelta(seconds=1)
    price_per_hour: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        times = "spawn_lag and granule (paid time is rounded up to it)"
        if self.spawn_lag <= timedelta() or self.granule <= timedelta() or not 0 <= self.jitter < 1:
            raise InvalidInput(f"expected {times} above 0 s and jitter from 0 to below 1, got {self}")
        if max(self.spawn_lag, self.granule) > _LONGEST_LAG or not 0 <= self.price_per_hour < inf:
            raise InvalidInput(f"expected {times} of at most {_LONGEST_LAG.days} days and price_per_hour from 0, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOrders:
    """What a simulated beat decides: workers to start and workers to drain."""

    spawn: Sequence[tuple[str, int]] = ()  #: name and slot (position) of each worker to start
    drain: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSeries:
    """Workers, busy workers and queued jobs at each beat, for plots."""

    at: Sequence[float] = ()
    workers: Sequence[int] = ()
    busy: Sequence[int] = ()
    queued: Sequence[int] = ()

    def since(self, moment: float) -> "SimulatedSeries":
        """Return the part of the series from a moment on."""
        n = bisect_left(self.at, moment)
        return SimulatedSeries(at=self.at[n:], workers=self.workers[n:], busy=self.busy[n:], queued=self.queued[n:])


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """Cost and waits of a simulation, and the cost of the oracle, an ideal fleet that knows all arrivals in advance."""

    policy: str
    jobs: int
    spawn_lag_s: float
    worker_hours: float
    oracle_hours: float
    cost_ratio: float
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    wait_mean_s: float
    spawns: int
    flaps: int
    short_lives: int  #: workers that existed for less than two spawn lags
    most_workers: int
    beats: int
    hours: float  #: from the first arrival to the last job's end
    cost: float = 0.0
    series: SimulatedSeries = field(default=SimulatedSeries(), repr=False)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of a sorted sequence, by nearest rank; ``share`` is 0 to 1."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0
