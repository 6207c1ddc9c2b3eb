"""A whole fleet on virtual time, by its seed: two controllers that die, an unreliable provider, workers, jobs, money.

``judged(seed)`` runs one and answers with everything that was not as promised.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from pathlib import Path
from random import Random

from drumbeat.control_plane import ControlPlane
from drumbeat.core.beat import Beat
from drumbeat.core.job import JobStatus, NewJob
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.settings import Settings
from drumbeat.spawn.runpod import API_KEY_VARIABLE, RunPodSettings, RunPodSpawner
from drumbeat.store.memory import MemoryStore
from simulate.fleet_crew import Crew, CrewedSimulator
from simulate.fleet_line import Crash, Line, UnsteadyWire
from simulate.fleet_weather import CALM, LEAP, Weather, drawn, provider_faults
from simulate.virtual_time import EPOCH, VirtualClock, run_virtually
from spawn.runpod.machines import Card
from spawn.runpod.simulator import KEY

POOL = PoolId("p")
EVERY = timedelta(seconds=30)
PRICE = 0.5  #: per hour, the most a pod may cost
GRANULE = PRICE / 60  #: what a minute of such a pod costs
CARDS = (Card(id="L4", secure=0.44), Card(id="T4", secure=0.2))
LATE_BEAT = EVERY * 3  #: what the decision itself allows for
SETTLES_WITHIN = timedelta(hours=8)  #: a policy may keep a worker for hours, if starting one has taken long
LINGERS = timedelta(minutes=5)  #: after all is done: does anything turn up?


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


LIMITS = replace(
    PRESETS[PoolKind.FLEET],
    lost_after=seconds(120),
    give_up_after=seconds(100),
    start_within=seconds(300),
    drain_within=seconds(180),
)


@dataclass(slots=True)
class Verdict:
    """What came of one run."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    waiting: int = 0  #: jobs for which there was no money left
    pods: int = 0
    beats: int = 0
    minutes: float = 0.0
    spent: float = 0.0
    led: bool = True  #: whether a beat saw everything at least every LATE_BEAT
    passed: float = -1.0  #: by how much the meter was above a ceiling, at its worst


class World:
    """One run."""

    def __init__(self, seed: int, group: asyncio.TaskGroup, every: timedelta = EVERY) -> None:
        self.every = every
        self.chance = Random(seed)
        self.weather = drawn(self.chance)
        self.clock, self.store_clock = VirtualClock(), VirtualClock()
        self.store = MemoryStore(self.store_clock)
        self.group = group
        stock = {("L4", "SECURE", "EU-1"): 50, ("T4", "SECURE", "US-1"): self.chance.choice([1, 2, 50])}
        self.simulator = CrewedSimulator(
            self.clock, cards=CARDS, stock=stock, schema=None, starts_in=seconds(self.chance.uniform(10, 120))
        )
        self.crew = Crew(
            store=self.store,
            clock=self.clock,
            chance=Random(seed + 1),
            weather=self.weather,
            group=group,
            controller_gone_after=LIMITS.controller_gone_after,
        )
        self.simulator.crew, self.simulator.doubles = self.crew, []
        self.lines: list[Line] = []
        self.met: Counter[str] = Counter()
        self.policy = self._policy()

    def _policy(self) -> FleetPolicy:
        pick = self.chance.choice
        return FleetPolicy(
            policy=pick([PolicyName.QUEUE_RATIO, PolicyName.QUEUE_COVER, PolicyName.LAG_AWARE]),
            every=self.every,
            min_workers=0,
            max_workers=pick([1, 3, 6, 10]),
            idle_timeout=seconds(60),
            max_per_hour=pick([None, 0.6, 1.2]),
            max_per_day=pick([None, 0.06, 0.1, 0.2]),
            failure_min=pick([3, 5]),
        )

    async def open(self) -> None:
        await self.store.pools.create(pool(POOL, PoolKind.JOBS, LIMITS, **self.policy.to_json()))

    def is_calm(self) -> bool:
        return self.weather is CALM

    async def control(self, number: int) -> None:
        """A controller that is started again, some time after each death."""
        await self.clock.sleep(seconds(number * 7))
        while True:
            line = Line(chance=self.chance, clock=self.clock, beyond=self.group, weather=self.weather, met=self.met)
            self.lines.append(line)
            try:
                await self._control(line)
            except* Crash:
                await self.clock.sleep(seconds(self.chance.uniform(1, 90)))
            self.lines.remove(line)

    async def _control(self, line: Line) -> None:
        settings = RunPodSettings(image="i", max_price_per_hour=PRICE)
        wire = UnsteadyWire(self.simulator, line)
        plane = ControlPlane(Settings(store="memory:", state_dir=Path("nowhere")), line.store(self.store), self.clock)
        async with RunPodSpawner(settings, {}, self.clock, {API_KEY_VARIABLE: KEY}, wire) as spawner:
            loop = plane.fleet_loop(POOL, spawner, self.every)
            while True:
                began = self.clock.elapsed()
                await loop.beat()
                await self.clock.sleep(max(self.every - (self.clock.elapsed() - began), seconds(1)))

    async def trouble(self) -> None:
        """Minute by minute: what befalls the provider and the store's clock."""
        while True:
            await self.clock.sleep(seconds(60 * self.chance.random() * 2))
            weather = self.weather
            count = int(weather.provider) + (self.chance.random() < weather.provider % 1)
            names = [pod.name for pod in self.simulator.pods[-6:]]
            for _ in range(count):
                fault = provider_faults(self.chance, names)
                self.met[f"provider: {type(fault).__name__}"] += 1
                self.simulator.faults.append(fault)
            if self.chance.random() < weather.leaps:
                self.met["leaps of the store's clock"] += 1
                self.store_clock.skew = seconds(self.chance.uniform(-LEAP, LEAP))

    async def push(self) -> int:
        """Jobs in bursts; answers with how many."""
        pushed = 0
        for _ in range(self.chance.randint(1, 4)):
            count, longest = self.chance.randint(1, 10), self.chance.choice([20, 120, 240])
            jobs = [NewJob(payload={"seconds": self.chance.uniform(2, longest)}, max_crashes=10**6) for _ in range(count)]
            pushed += len(await self.store.queue.push(POOL, jobs))
            await self.clock.sleep(seconds(self.chance.uniform(30, 360)))
        return pushed

    def calm_down(self) -> None:
        """From now on nothing goes wrong any more; what has begun goes on."""
        self.weather = self.crew.weather = CALM
        self.simulator.faults.clear()
        for line in self.lines:
            line.weather = CALM

    async def is_over(self) -> bool:
        """Whether every job is done, or what is left waits for money, and nobody is left."""
        counts = await self.store.jobs.counts(POOL)
        rows = await self.store.workers.list(POOL)
        waits = counts.pending and not await self.is_broke()
        return not (waits or counts.claimed or self.simulator.alive()) and all(row.reaped_at for row in rows)

    async def is_broke(self) -> bool:
        """Whether a ceiling is what keeps the last beat from starting workers."""
        last = await self.store.beats.last(POOL)
        limits = last.summary.get("limits", ()) if last else ()
        return any(limit["name"] == "money per day" and limit["after"] == 0 for limit in limits)


async def _story(seed: int) -> Verdict:
    verdict = Verdict(seed)
    async with asyncio.TaskGroup() as group:
        world = World(seed, group)
        await world.open()
        tasks = [group.create_task(each) for each in (world.control(0), world.control(1), world.trouble())]
        verdict.jobs = await world.push()
        await world.clock.sleep(seconds(world.chance.uniform(60, 600)))
        world.calm_down()
        await _judge(world, verdict, over=await _settled(world))
        for task in (*tasks, *world.crew.lives.values()):
            task.cancel()
    return verdict


async def _settled(world: World) -> bool:
    """Whether it comes to rest in time, and stays so."""
    deadline = world.clock.elapsed() + SETTLES_WITHIN
    while world.clock.elapsed() < deadline:
        over = await world.is_over()
        await world.clock.sleep(LINGERS if over else EVERY)
        if over and await world.is_over():
            return True
    return False


async def _judge(world: World, verdict: Verdict, *, over: bool) -> None:
    """Everything that was promised."""
    jobs = await world.store.jobs.list(POOL, limit=10_000)
    fine = {JobStatus.DONE, JobStatus.PENDING} if await world.is_broke() else {JobStatus.DONE}
    undone = [job.job_id for job in jobs if job.status not in fine]
    verdict.waiting = sum(job.status is JobStatus.PENDING for job in jobs)
    twice = [job_id for job_id, count in world.crew.accepted.items() if count > 1]
    unheard = [job.job_id for job in jobs if job.status is JobStatus.DONE and not world.crew.accepted[job.job_id]]
    orphans = [f"{pod.name} ({pod.id})" for pod in world.simulator.alive()]
    verdict.passed, unled = passed_by(world), await unled_for(world)
    verdict.led = not unled
    found = {
        f"{len(jobs)} of {verdict.jobs} jobs are kept": len(jobs) == verdict.jobs,
        f"orphans: {orphans}": not orphans,
        f"not over: {await world.store.workers.list(POOL, live=True)}": over or bool(orphans),
        f"undone: {undone}": not undone,
        f"completed twice: {twice}": not twice,
        f"done by nobody: {unheard}": not unheard,
        f"spawned twice: {world.simulator.doubles}": not world.simulator.doubles,
        f"passed the ceiling by {verdict.passed:.4f}": verdict.passed
        <= GRANULE + unled * PRICE / 3600 * world.policy.max_workers,
    }
    verdict.wrong = [fault for fault, holds in found.items() if not holds]
    verdict.met = world.met + world.crew.met
    verdict.pods, verdict.beats = len(world.simulator.pods), len(await world.store.beats.list(POOL, limit=100_000))
    verdict.minutes, verdict.spent = world.clock.elapsed().total_seconds() / 60, world.simulator.spent()


async def unled_for(world: World) -> float:
    """Seconds in which nobody decided, beyond what a late beat is allowed: a ceiling cannot be kept by nobody."""
    beats = await world.store.beats.list(POOL, limit=100_000)
    saw = [world.clock.now() if beat is None else beat.at for beat in (*filter(_saw_all, beats), None)]
    gaps = [later - earlier for earlier, later in pairwise(saw)]
    return sum((gap - LATE_BEAT).total_seconds() for gap in gaps if gap > LATE_BEAT)


def _saw_all(beat: Beat) -> bool:
    return beat.view is not None and beat.view["queue"] is not None


def passed_by(world: World) -> float:
    """By how much the provider's own meter is above a ceiling in its worst hour or day; below zero: it is not."""
    policy, spans = world.policy, {"hour": timedelta(hours=1), "day": timedelta(days=1)}
    ceilings = {"hour": policy.max_per_hour, "day": policy.max_per_day}
    return max(
        (
            _metered(world, EPOCH + spans[name] * n, spans[name]) - most
            for name, most in ceilings.items()
            if most is not None
            for n in range(ceil(world.clock.elapsed() / spans[name]))
        ),
        default=-1.0,
    )


def _metered(world: World, begin: datetime, span: timedelta) -> float:
    """What the pods have cost in the hour, or the day, that begins then."""
    end = min(begin + span, world.clock.now())
    return sum(
        pod.billed(end) - (pod.billed(begin) if pod.created_at < begin else 0.0)
        for pod in world.simulator.pods
        if pod.created_at < end
    )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Nobody reads ten thousand runs' logs."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def judged(seed: int) -> Verdict:
    """Run a seed, and say what came of it."""
    with _quietly():
        return run_virtually(_story(seed))


__all__ = ["GRANULE", "Verdict", "Weather", "judged"]
