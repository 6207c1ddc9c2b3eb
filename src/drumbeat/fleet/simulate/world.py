"""The simulated world: workers, jobs and virtual time, driven by a heap of events."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf

from drumbeat.fleet.simulate.values import SimulatedLoad, SimulatedOrders, SimulatedProvider


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """A simulated worker: when it is created, ready and ended, and the jobs it holds."""

    name: str
    slot: int
    created: float
    ready: float
    jobs: dict[int, float] = field(default_factory=dict)  #: the jobs it holds, and since when
    leaving: bool = False
    ended: float | None = None

    def is_ready(self, now: float) -> bool:
        return self.ready <= now


class RandomNumbers:
    """A small random number generator, from 0 to 1; the same seed gives the same numbers."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 2 + 1

    def next(self) -> float:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        return (self._state >> 11) / 9007199254740992.0


class World:
    """All simulated workers and jobs at one moment. ``advance`` moves time forward, ``obey`` starts and drains workers."""

    def __init__(self, load: SimulatedLoad, provider: SimulatedProvider, every: float, concurrency: int = 1) -> None:
        self.load, self.provider = load, provider
        self.every, self.concurrency = every, concurrency
        self.now = load.arrivals[0]
        self.arrivals_count = 0  #: number of jobs that have arrived
        self.done = 0
        self.queue: deque[int] = deque()
        self.machines: dict[str, SimulatedWorker] = {}  #: workers that exist now, by name
        self.gone: list[SimulatedWorker] = []
        self.waits: list[float] = []  #: how long each begun job has waited, in order of arrival
        self.arrived: Counter[int] = Counter()  #: number of arrivals since the last beat, by minute
        self.finished: list[tuple[str, float, float]] = []  #: worker, duration and end of jobs since the last beat
        self.turns: list[tuple[float, int]] = []  #: time of each beat that scaled, and 1 for up or -1 for down
        self._free: list[SimulatedWorker] = []  #: ready workers with a free job slot that are not leaving
        #: coming events: time, order, worker, and the job that ends (-1: the worker becomes ready)
        self._events: list[tuple[float, int, SimulatedWorker, int]] = []
        self._count = 0
        self._random = RandomNumbers(provider.seed)

    @property
    def claimed(self) -> int:
        return sum(len(each.jobs) for each in self.machines.values())

    @property
    def busy(self) -> int:
        return sum(1 for each in self.machines.values() if each.jobs)

    @property
    def is_over(self) -> bool:
        return self.done == len(self.load)

    @property
    def next_arrival(self) -> float:
        return self.load.arrivals[self.arrivals_count] if self.arrivals_count < len(self.load) else inf

    def advance(self, until: float) -> None:
        """Process all events up to a moment, or until the last job is done."""
        arrivals = self.load.arrivals
        while not self.is_over:
            due = self._events[0][0] if self._events else inf
            arrival = arrivals[self.arrivals_count] if self.arrivals_count < len(arrivals) else inf
            if min(due, arrival) > until:
                self.now = until
                return
            self.now = min(due, arrival)
            if due <= arrival:
                self._handle(*heappop(self._events)[2:])
            else:
                self._arrive()

    def _arrive(self) -> None:
        self.queue.append(self.arrivals_count)
        self.arrived[int(self.now // 60)] += 1
        self.arrivals_count += 1
        self._serve()

    def _handle(self, machine: SimulatedWorker, job: int) -> None:
        if machine.ended is not None:
            return
        if job >= 0:
            self._finish(machine, job)
        elif not machine.leaving:
            self._free.append(machine)
        self._serve()

    def _finish(self, machine: SimulatedWorker, job: int) -> None:
        self.finished.append((machine.name, self.now - machine.jobs.pop(job), self.now))
        self.done += 1
        if not machine.leaving and len(machine.jobs) == self.concurrency - 1:
            self._free.append(machine)

    def _serve(self) -> None:
        """Give the oldest jobs to random free workers."""
        while self.queue and self._free:
            job, n = self.queue.popleft(), int(self._random.next() * len(self._free))
            machine = self._free[n]
            self.waits.append(self.now - self.load.arrivals[job])
            machine.jobs[job] = self.now
            self._at(self.now + self.load.durations[job], machine, job)
            if len(machine.jobs) >= self.concurrency:
                self._free[n] = self._free[-1]
                self._free.pop()

    def _at(self, when: float, machine: SimulatedWorker, job: int) -> None:
        self._count += 1
        heappush(self._events, (when, self._count, machine, job))

    def obey(self, orders: SimulatedOrders) -> None:
        """Start and drain workers as a beat orders, and end workers without jobs that an earlier beat drained."""
        for machine in [each for each in self.machines.values() if each.leaving and not each.jobs]:
            self.end(machine)
        for name, slot in orders.spawn:
            self._start(name, slot)
        for name in orders.drain:
            self._drain(self.machines[name])
        if orders.spawn or orders.drain:
            self.turns.append((self.now, 1 if orders.spawn else -1))

    def _start(self, name: str, slot: int) -> None:
        lag = self.provider.spawn_lag.total_seconds() * (1 + self.provider.jitter * (2 * self._random.next() - 1))
        machine = SimulatedWorker(name, slot, self.now, self.now + lag)
        self.machines[name] = machine
        self._at(machine.ready, machine, -1)

    def _drain(self, machine: SimulatedWorker) -> None:
        machine.leaving = True
        if machine in self._free:
            self._free.remove(machine)

    def end(self, machine: SimulatedWorker) -> None:
        machine.ended = self.now
        self.gone.append(self.machines.pop(machine.name))

    def paid(self, until: float) -> float:
        """Return the worker-seconds paid until a moment, rounded up to whole billing granules for each worker."""
        granule = self.provider.granule.total_seconds()
        begun = [each for each in self.everyone if each.created <= until]
        lifetimes = [min(inf if each.ended is None else each.ended, until) - each.created for each in begun]
        return sum(granule * max(ceil(lifetime / granule - 1e-9), 1) for lifetime in lifetimes)

    @property
    def everyone(self) -> Sequence[SimulatedWorker]:
        return [*self.gone, *self.machines.values()]
