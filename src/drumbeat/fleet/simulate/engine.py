"""A load's way through a fleet: beat after beat to the last job's end, and what it came to."""

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
PATIENCE = 20_000  #: beats after the last arrival without a job begun or ended: nobody will ever serve the rest
MOST_BEATS = 1_000_000  #: of one simulation

Controller = Callable[[World], SimulatedOrders]


@dataclass(slots=True)
class _Record:
    at: list[float] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)

    begun: tuple[int, int] = (0, 0)  #: jobs begun, and the beat at which they last grew

    def add(self, world: World) -> None:
        self.at.append(world.now)
        self.workers.append(len(world.machines))
        self.busy.append(world.busy)
        self.queued.append(len(world.queue))
        self._check(world)
        if len(self.at) > MOST_BEATS:
            raise _too_long(world.every)

    def _check(self, world: World) -> None:
        """Raises InvalidInput when nothing has come or begun for so long that nothing will."""
        if len(world.waits) != self.begun[0] or world.busy or world.next_arrival < float("inf"):
            self.begun = len(world.waits), len(self.at)
        if len(self.at) - self.begun[1] > PATIENCE:
            raise InvalidInput(f"{len(world.queue)} jobs wait and no worker comes; expected a policy that starts some")

    def course(self) -> SimulatedSeries:
        return SimulatedSeries(at=self.at, workers=self.workers, busy=self.busy, queued=self.queued)


def simulate(
    load: SimulatedLoad,
    control: Controller,
    around: SimulatedProvider,
    *,
    name: str,
    every: float = 30.0,
    concurrency: int = 1,
    sleeps: bool = True,
    skip: int = 0,
) -> SimulationResult:
    """Run a load under a controller that beats every so many seconds. The first ``skip`` jobs are run and not counted.

    With ``sleeps``, beats are left out while there is no worker and no job, once a beat there did nothing: the next would do
    nothing either. Raises InvalidInput when jobs are left that nobody will ever serve, or it would take too many beats.
    """
    _check_length(load, around, every, sleeps=sleeps)
    world, record, due = World(load, around, every, concurrency), _Record(), load.arrivals[0]
    world.advance(due)
    while not world.is_over:
        orders = control(world)
        world.obey(orders)
        world.arrived.clear()
        world.finished.clear()
        record.add(world)
        due = _next_beat(world, due, orders, sleeps=sleeps)
        world.advance(due)
    return _outcome(world, name, record.course(), skip)


def _check_length(load: SimulatedLoad, around: SimulatedProvider, every: float, *, sleeps: bool) -> None:
    """Raise InvalidInput for what could not be over in time, whatever was decided."""
    longest = max(load.durations) + around.spawn_lag.total_seconds() * (1 - around.jitter)
    span = longest if sleeps else max(longest, load.arrivals[-1] - load.arrivals[0])
    if span > MOST_BEATS * every:
        raise _too_long(every)


def _too_long(every: float) -> InvalidInput:
    return InvalidInput(
        f"expected a simulation of {MOST_BEATS} beats at the most, one in {every:g} s, got jobs that take longer; "
        f"expected seconds in the trace; or beat less often, such as with --set every=10m"
    )


def _next_beat(world: World, due: float, orders: SimulatedOrders, *, sleeps: bool) -> float:
    due += world.every
    still = not world.machines and not world.queue and not orders.spawn and not orders.drain
    if sleeps and still and due < world.next_arrival < float("inf"):
        due += world.every * max(int((world.next_arrival - due) / world.every), 0)
    return due


def _outcome(world: World, name: str, whole: SimulatedSeries, skip: int) -> SimulationResult:
    around, waits, since = world.around, sorted(world.waits[skip:]), world.load.arrivals[skip]
    lag, course = around.spawn_lag.total_seconds(), whole.since(since) if skip else whole
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
        most_workers=max(course.workers, default=0),
        beats=len(course.at),
        hours=(world.now - since) / HOUR,
        cost=paid / HOUR * around.price_per_hour,
        course=course,
    )


def _oracle(world: World, skip: int) -> float:
    """What the oracle pays for the jobs that count, beyond what it has paid for those before them."""
    load, lag, granule = world.load, world.around.spawn_lag.total_seconds(), world.around.granule.total_seconds()
    before = oracle_seconds(load.first(skip), lag, granule, world.concurrency) if skip else 0.0
    return oracle_seconds(load, lag, granule, world.concurrency) - before


def flaps(turns: Sequence[tuple[float, int]], window: float) -> int:
    """How often scaling turned from one direction to the other within the window."""
    pairs = pairwise(turns)
    return sum(1 for (before, one), (after, other) in pairs if one != other and after - before <= window)
