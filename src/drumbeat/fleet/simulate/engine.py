"""Run a simulation beat by beat until the last job ends, and sum up its cost and waits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.simulate.oracle import oracle_seconds
from drumbeat.fleet.simulate.values import (
    SimulatedLoad,
    SimulatedOrders,
    SimulatedProvider,
    SimulatedSeries,
    SimulationResult,
    percentile,
)
from drumbeat.fleet.simulate.world import World

HOUR = 3600.0
MAX_STALLED_BEATS = 20_000  #: after this many beats without progress, the simulation is given up
MAX_BEATS = 1_000_000  #: maximum number of beats in one simulation

Controller = Callable[[World], SimulatedOrders]


@dataclass(slots=True)
class _Record:
    at: list[float] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)

    begun: tuple[int, int] = (0, 0)  #: number of jobs begun, and the last beat with progress

    def add(self, world: World) -> None:
        self.at.append(world.now)
        self.workers.append(len(world.machines))
        self.busy.append(world.busy)
        self.queued.append(len(world.queue))
        self._check(world)
        if len(self.at) > MAX_BEATS:
            raise _too_long(world.every)

    def _check(self, world: World) -> None:
        """Raise InvalidInput after ``MAX_STALLED_BEATS`` beats in which no job began, ran or was still to arrive."""
        if len(world.waits) != self.begun[0] or world.busy or world.next_arrival < float("inf"):
            self.begun = len(world.waits), len(self.at)
        if len(self.at) - self.begun[1] > MAX_STALLED_BEATS:
            raise InvalidInput(f"{len(world.queue)} jobs wait and no worker is started; expected a policy that starts workers")

    def series(self) -> SimulatedSeries:
        return SimulatedSeries(at=self.at, workers=self.workers, busy=self.busy, queued=self.queued)


def simulate(
    load: SimulatedLoad,
    control: Controller,
    provider: SimulatedProvider,
    *,
    name: str,
    every: float = 30.0,
    concurrency: int = 1,
    sleeps: bool = True,
    skip: int = 0,
) -> SimulationResult:
    """Simulate the jobs of ``load`` with a controller that decides every ``every`` seconds. The results leave
    out the first ``skip`` jobs.

    With ``sleeps``, a pool without workers and jobs skips its beats until the next arrival, since they would do nothing. Raises
    InvalidInput if some jobs are never served, or if the simulation would take too many beats.
    """
    _check_length(load, provider, every, sleeps=sleeps)
    world, record, due = World(load, provider, every, concurrency), _Record(), load.arrivals[0]
    world.advance(due)
    while not world.is_over:
        orders = control(world)
        world.obey(orders)
        world.arrived.clear()
        world.finished.clear()
        record.add(world)
        due = _next_beat(world, due, orders, sleeps=sleeps)
        world.advance(due)
    return _result(world, name, record.series(), skip)


def _check_length(load: SimulatedLoad, provider: SimulatedProvider, every: float, *, sleeps: bool) -> None:
    """Raise InvalidInput for jobs that take more than ``MAX_BEATS`` beats, whatever the controller decides."""
    longest = max(load.durations) + provider.spawn_lag.total_seconds() * (1 - provider.jitter)
    span = longest if sleeps else max(longest, load.arrivals[-1] - load.arrivals[0])
    if span > MAX_BEATS * every:
        raise _too_long(every)


def _too_long(every: float) -> InvalidInput:
    return InvalidInput(
        f"expected a simulation of at most {MAX_BEATS} beats, one every {every:g} s, got jobs that take longer; "
        f"check that the trace is in seconds, or beat less often, for example with --set every=10m"
    )


def _next_beat(world: World, due: float, orders: SimulatedOrders, *, sleeps: bool) -> float:
    due += world.every
    still = not world.machines and not world.queue and not orders.spawn and not orders.drain
    if sleeps and still and due < world.next_arrival < float("inf"):
        due += world.every * max(int((world.next_arrival - due) / world.every), 0)
    return due


def _result(world: World, name: str, full: SimulatedSeries, skip: int) -> SimulationResult:
    provider, waits, since = world.provider, sorted(world.waits[skip:]), world.load.arrivals[skip]
    lag, series = provider.spawn_lag.total_seconds(), full.since(since) if skip else full
    paid, oracle = world.paid(world.now) - (world.paid(since) if skip else 0.0), _oracle(world, skip)
    started = [each for each in world.everyone if each.created >= since]
    return SimulationResult(
        policy=name,
        jobs=len(waits),
        spawn_lag_s=lag,
        worker_hours=paid / HOUR,
        oracle_hours=oracle / HOUR,
        cost_ratio=paid / oracle if oracle else 0.0,
        wait_p50_s=percentile(waits, 0.50),
        wait_p95_s=percentile(waits, 0.95),
        wait_p99_s=percentile(waits, 0.99),
        wait_mean_s=sum(waits) / len(waits),
        spawns=len(started),
        flaps=flaps([turn for turn in world.turns if turn[0] >= since], max(2 * lag, 2 * world.every)),
        short_lives=sum(1 for each in started if each.ended is not None and each.ended - each.created < 2 * lag),
        most_workers=max(series.workers, default=0),
        beats=len(series.at),
        hours=(world.now - since) / HOUR,
        cost=paid / HOUR * provider.price_per_hour,
        series=series,
    )


def _oracle(world: World, skip: int) -> float:
    """Return the worker-seconds that the oracle (an ideal fleet) pays for all jobs, minus those for the first ``skip`` jobs."""
    load, lag, granule = world.load, world.provider.spawn_lag.total_seconds(), world.provider.granule.total_seconds()
    before = oracle_seconds(load.first(skip), lag, granule, world.concurrency) if skip else 0.0
    return oracle_seconds(load, lag, granule, world.concurrency) - before


def flaps(turns: Sequence[tuple[float, int]], window: float) -> int:
    """Count how often the fleet scaled up and then down, or down and then up, within ``window`` seconds."""
    pairs = pairwise(turns)
    return sum(1 for (before, one), (after, other) in pairs if one != other and after - before <= window)
