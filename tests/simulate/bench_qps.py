"""A simulated fleet of paced workers against a database whose latency can change: a second at a time, no clock, no process."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec

from drumbeat.bench.control.modes import qps
from drumbeat.bench.control.modes.allocate import allocate
from drumbeat.bench.model import Figures, Finish, ModeView, QpsState, RunPlan
from drumbeat.bench.model.steering import SAMPLES_ARRIVE_WITHIN
from drumbeat.core.run import RunId, Step

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """What all workers did in one second."""

    at: datetime
    operations: float
    busy: float  #: connection-seconds in use
    held: int
    workers: int


@dataclass(slots=True, kw_only=True)
class Simulated:
    """One worker."""

    slot: int
    ready_at: datetime
    lost_at: datetime | None = None
    target: int = 0
    held: int = 0
    overdue: float = 0.0
    noticed: bool = False  #: that it is lost


@dataclass(slots=True, kw_only=True)
class PacedFleet:
    """Workers that issue their share of a rate on at most their connections, and an orchestrator that beats each second.

    ``catches_up``: what a worker could not begin when it was due it begins later, as the driver does; else it is dropped.
    ``most_at_once``: beyond so many busy connections the database gets no quicker.
    """

    plan: RunPlan
    latency: float  #: seconds
    seed: int = 0
    noise: float = 0.05
    catches_up: bool = False
    most_at_once: float = 1e9
    opens_per_second: int = 150
    phase: str = "MEASUREMENT"
    now: datetime = START
    state: QpsState = field(default_factory=QpsState)
    reasons: set[str] = field(default_factory=set)
    workers: list[Simulated] = field(default_factory=list)
    seconds: list[Second] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    finish: Finish | None = None
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._beat()
        for worker in self.workers:
            worker.ready_at = self.now

    def run(self, intervals: float) -> None:
        until = self.now + intervals * self.plan.qps.interval
        while self.now < until and self.finish is None:
            self._beat()
            self._work()
            self.now += timedelta(seconds=1)

    def lose(self) -> None:
        """One worker dies; the orchestrator sees it some seconds later."""
        victim = self.random.choice(self._known())
        victim.lost_at, victim.held, victim.overdue = self.now, 0, 0.0

    def throughput(self, since: datetime) -> list[float]:
        """Of each whole interval from then on."""
        length = int(self.plan.qps.interval.total_seconds())
        done = [second.operations for second in self.seconds if second.at >= since]
        return [sum(done[n : n + length]) / length for n in range(0, len(done) - length + 1, length)]

    def _known(self) -> list[Simulated]:
        return [worker for worker in self.workers if not worker.noticed and worker.ready_at <= self.now]

    def _beat(self) -> None:
        self._notice()
        self.state = msgspec.convert(msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(self.state))), QpsState)
        steered = qps.steer(self.view(), self.state)
        assert steered.qps_state is not None
        self.state, self.finish = steered.qps_state, steered.finish
        self.reasons.add(steered.reason)
        self.steps += [steered.step] if steered.step else []
        self._spawn(steered.workers)
        targets = allocate(steered.connections, [worker.slot for worker in self._known()], self.plan.scaling)
        for worker in self._known():
            worker.target = targets[worker.slot]

    def view(self) -> ModeView:
        known = self._known()
        return ModeView(
            run_id=RunId("r"),
            now=self.now,
            plan=self.plan,
            phase=self.phase,
            phase_began=START,
            connections=sum(worker.target for worker in known),
            held=sum(worker.held for worker in known),
            ready=len(known),
            coming=sum(worker.ready_at > self.now for worker in self.workers),
            most_workers=self.plan.scaling.most_workers,
            figures=self._figures(),
        )

    def _notice(self) -> None:
        for worker in self.workers:
            if worker.lost_at is not None and self.now - worker.lost_at >= timedelta(seconds=3 + self.seed % 5):
                worker.noticed = True

    def _spawn(self, wanted: int) -> None:
        living = sum(not worker.noticed for worker in self.workers)
        for _ in range(wanted - living):
            slot = len(self.workers)
            self.workers.append(Simulated(slot=slot, ready_at=self.now + timedelta(seconds=self.random.randint(1, 4))))

    def _work(self) -> None:
        latency = self.latency * max(0.5, self.random.gauss(1, self.noise))
        alive = [worker for worker in self._known() if worker.lost_at is None]
        rate = self.plan.qps.target_qps / max(1, len(self._known()))
        latency *= max(1.0, sum(worker.held for worker in alive) / self.most_at_once)
        done = sum(self._issue(worker, rate, latency) for worker in alive)
        held = sum(worker.held for worker in alive)
        self.seconds.append(Second(at=self.now, operations=done, busy=done * latency, held=held, workers=len(alive)))
        for worker in alive:
            more = worker.target - worker.held
            worker.held += min(more, self.opens_per_second)

    def _issue(self, worker: Simulated, rate: float, latency: float) -> float:
        wanted = rate * max(0.0, self.random.gauss(1, 0.01)) + worker.overdue
        done = min(wanted, worker.held / latency)
        worker.overdue = wanted - done if self.catches_up else 0.0
        return done

    def _figures(self) -> Figures | None:
        window = self.state.window
        if window is None or self.now < window.until + SAMPLES_ARRIVE_WITHIN:
            return None
        seen = [second for second in self.seconds if window.since <= second.at < window.until]
        operations = sum(second.operations for second in seen)
        return Figures(
            since=window.since,
            until=window.until,
            operations=int(operations),
            qps=operations / len(seen),
            service_ms=1000 * sum(second.busy for second in seen) / operations if operations else None,
            connections=sum(second.held for second in seen) / len(seen),
            workers=max(second.workers for second in seen),
        )
