"""A database with a known knee, the workers that load it, and a search that is steered against them on virtual time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import sqrt
from random import Random
from typing import Any

import msgspec

from drumbeat.bench.control.modes.find_max import steer
from drumbeat.bench.model import Figures, FindMaxState, Finish, LoadDecision, ModeView, RunPlan
from drumbeat.core.run import RunId, Step

START = datetime(2026, 1, 1, tzinfo=UTC)
TAIL = 1.7  #: p95 over the mean

Latency = Callable[[float], float]  #: the mean response time in seconds with so many connections, in a closed loop


def sharp(knee: float, latency: float = 0.01) -> Latency:
    """Flat up to the knee, then every further connection only waits: throughput is min(N / L, C)."""
    return lambda connections: max(latency, latency * connections / knee)


def gradual(knee: float, latency: float = 0.01, bend: float = 4.0) -> Latency:
    """The same two lines with a rounded corner, as several queues in a row give."""
    return lambda connections: float(latency * (1 + (connections / knee) ** bend) ** (1 / bend))


def retrograde(knee: float, latency: float = 0.01) -> Latency:
    """Connections that hinder one another (crosstalk): throughput falls again beyond its peak."""
    return lambda connections: latency * (1 + 0.02 * (connections - 1) / knee + (connections / knee) ** 2 / 4)


@dataclass(slots=True, kw_only=True)
class SimulatedServer:
    """Answers as its curve says; each ``grain`` of time is off by a random share of its own."""

    latency: Latency
    noise: float = 0.0  #: one standard deviation of throughput and of p95, each
    grain: timedelta = timedelta(seconds=1)  #: how long one deviation lasts; None of a step is shorter than it
    rng: Random = field(default_factory=lambda: Random(0))
    waiting: float | None = None
    error_rate: float = 0.0

    def p95_ms(self, connections: float) -> float:
        return 1000 * TAIL * self.latency(connections)

    def qps(self, connections: float) -> float:
        return connections / self.latency(connections)

    def figures(self, since: datetime, until: datetime, connections: int, workers: int) -> Figures:
        """What the workers measure together in a window."""
        draws = max(1, round((until - since) / self.grain))
        qps = self.qps(connections) * self._off(draws)
        operations = round(qps * (until - since).total_seconds())
        p95 = self.p95_ms(connections) * self._off(draws)
        return Figures(
            since=since,
            until=until,
            operations=operations,
            errors=round(operations * self.error_rate),
            qps=qps,
            p50_ms=p95 / 2,
            p95_ms=p95,
            p99_ms=p95 * 1.5,
            connections=connections,
            workers=workers,
            waiting=self.waiting,
        )

    def _off(self, draws: int) -> float:
        return max(0.1, 1 + self.rng.gauss(0, self.noise / sqrt(draws))) if self.noise else 1.0


def oracle(server: SimulatedServer, plan: RunPlan, ceiling: int = 10_000) -> int:
    """The knee: what the plan's rules would answer without any noise, level by level from the start.

    For a sharp server it is its corner × (1 + latency_stability_pct), if the search starts below the corner.
    """
    rules = plan.find_max
    level = min(rules.start_connections, ceiling)
    highest_p95 = server.p95_ms(level) * (1 + rules.latency_stability_pct / 100)
    peak = server.qps(level)
    while level < ceiling:
        after = level + 1
        if server.p95_ms(after) > highest_p95 or server.qps(after) < peak * (1 - rules.qps_stability_pct / 100):
            break
        level, peak = after, max(peak, server.qps(after))
    return level


@dataclass(slots=True, kw_only=True)
class Search:
    """A search and all that became of it. ``beat`` is what the orchestrator does each second."""

    plan: RunPlan
    server: SimulatedServer
    rng: Random = field(default_factory=lambda: Random(1))
    state: FindMaxState = field(default_factory=FindMaxState)
    now: datetime = START
    told: int = 0
    held: int = 0
    ready: int = 0
    beats: Sequence[float] = (0.0, 1.0, 5.0, 20.0)  #: seconds between two: they come late, and twice
    steps: list[Step] = field(default_factory=list)
    finish: Finish | None = None

    def run(self, most: int = 100_000) -> dict[str, Any]:
        """Beat until the search ends, sometimes late, sometimes twice."""
        for _ in range(most):
            self.beat()
            if self.finish is not None:
                return dict(self.finish.result)
        raise AssertionError(f"no end after {most} beats: {self.state}")

    def beat(self) -> LoadDecision:
        view = self.view()
        said = steer(view, self.state)
        assert said == steer(view, self.state)
        self.follow(said)
        self.now += timedelta(seconds=self.rng.choice(self.beats))
        return said

    def view(self) -> ModeView:
        warm = self.now - START >= self.plan.warmup
        return ModeView(
            run_id=RunId("r"),
            now=self.now,
            plan=self.plan,
            phase="MEASUREMENT" if warm else "WARMUP",
            phase_began=START + self.plan.warmup if warm else START,
            connections=self.told,
            held=self.held,
            ready=self.ready,
            coming=0,
            most_workers=self.plan.scaling.most_workers,
            figures=self.figures(),
        )

    def figures(self) -> Figures | None:
        window = self.state.window
        if window is None or self.now < window.until:
            return None
        state = self.server.rng.getstate()
        measured = self.server.figures(window.since, window.until, self.held, self.ready)
        if self.rng.random() < 0.2:
            self.server.rng.setstate(state)
        return measured

    def follow(self, said: LoadDecision) -> None:
        """Workers reach what they are told with the next beat or the one after."""
        assert said.find_max is not None
        self.state = msgspec.convert(msgspec.json.decode(msgspec.json.encode(said.find_max)), FindMaxState)
        assert self.state == said.find_max
        if self.told == said.connections:
            self.held, self.ready = self.told, said.workers
        self.told = said.connections
        if said.step is not None:
            self.steps.append(said.step)
        self.finish = said.finish


def search(plan: RunPlan, server: SimulatedServer, **changes: Any) -> tuple[Search, dict[str, Any]]:
    """A search run to its end."""
    done = replace(Search(plan=plan, server=server), **changes)
    return done, done.run()
