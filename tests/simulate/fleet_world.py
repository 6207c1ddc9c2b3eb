"""A whole fleet on virtual time, by its seed: two controllers that die, an unreliable provider, workers, jobs, money.

Fleets may share a store, a provider and a clock: ``World(..., beside=first)``. Their workers have equal ids.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from math import ceil
from pathlib import Path
from random import Random

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.job import JobStatus, NewJob
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.runtime.beat import BeatReport
from drumbeat.settings import Settings
from drumbeat.spawn.runpod import API_KEY_VARIABLE, RunPodSettings, RunPodSpawner
from drumbeat.store.interface import PoolChange
from drumbeat.store.memory import MemoryStore
from simulate.fleet_crew import Crew, CrewedSimulator, Watched
from simulate.fleet_line import POOLS, Crash, Line, UnsteadyWire
from simulate.fleet_purse import DRAIN, EVERY, PRICE, Decided, Meter, Purse, purse
from simulate.fleet_weather import CALM, HIDDEN, HIDDEN_FROM_LEAPS, LEAP, contested, drawn, provider_faults
from simulate.virtual_time import VirtualClock
from spawn.runpod.machines import Card
from spawn.runpod.simulator import KEY

POOL, *BESIDE = POOLS
CARDS = (Card(id="L4", secure=0.44), Card(id="T4", secure=0.2))
SOON = 300 - 2 * LEAP  #: seconds of work that no clock's jump makes look stuck: a job's age is known by the store's clock alone
RARELY = 4  #: times as long between two beats of a fleet that is over
RUNAWAY = 150  #: pods; no run needs so many, and one that has them is not continued


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


LIMITS = replace(
    PRESETS[PoolKind.FLEET],
    lost_after=seconds(120),
    give_up_after=seconds(100),
    start_within=seconds(300),
    drain_within=DRAIN,
)


class World:
    """One fleet of a run."""

    def __init__(
        self,
        seed: int,
        group: asyncio.TaskGroup,
        every: timedelta = EVERY,
        may_spend: Purse | None = None,
        *,
        stops: bool = True,
        pool_id: PoolId = POOL,
        beside: "World | None" = None,
    ) -> None:
        """One that ``stops`` is not continued once a promise is broken. Its surroundings are new, or those of another."""
        self.pool_id = pool_id
        self.fleets: list[World] = [self] if beside is None else beside.fleets
        self.every = every
        self.stops = stops
        self.chance = Random(seed)
        more = Random(seed + 3)
        is_contested = more.random() < 0.2
        self.weather = contested(drawn(self.chance)) if is_contested else drawn(self.chance)
        self.purse = may_spend or purse(Random(seed + 2))
        self.group = group
        self.met: Counter[str] = Counter()
        if beside is None:
            self._settle_down(seed, more)
        else:
            self._join(beside)
        self.lease = every * (4 / 3 if is_contested else more.choice([4 / 3, 2, 5]))
        self.policy = self._policy()
        self.meter = Meter(purse=self.purse, simulator=self.simulator, clock=self.clock, pool_id=pool_id)
        self.simulator.watched[pool_id] = Watched(meter=self.meter, most=self.policy.max_workers)
        self.outdated: list[str] = []  #: what was written by a controller after another had begun to lead
        self.hasty: list[str] = []  #: who was sent away by a look that had lost others
        self.lines: list[Line] = []
        self.rests = False  #: whether it is over, while others are not

    def _settle_down(self, seed: int, more: Random) -> None:
        """New surroundings: clocks, a store, a provider, and the workers in its pods."""
        self.clock, self.store_clock = VirtualClock(self.purse.begins), VirtualClock(self.purse.begins)
        self.store = MemoryStore(self.store_clock)
        starts_in = seconds(more.choice([more.uniform(10, 120), more.uniform(10, 120), more.uniform(180, 280)]))
        stock = {("L4", "SECURE", "EU-1"): 50, ("T4", "SECURE", "US-1"): self.chance.choice([1, 2, 50])}
        self.simulator = CrewedSimulator(self.clock, cards=CARDS, stock=stock, schema=None, starts_in=starts_in)
        self.crew = Crew(
            store=self.store,
            clock=self.clock,
            chance=Random(seed + 1),
            weather=self.weather,
            leaps=bool(self.weather.leaps),
            group=self.group,
            controller_gone_after=LIMITS.controller_gone_after,
        )
        self.simulator.crew, self.simulator.watched, self.simulator.doubles, self.simulator.above = self.crew, {}, [], []
        self.simulator.listed = set()
        self.foreign: list[str] = []  #: what was done to one fleet on account of another

    def _join(self, other: "World") -> None:
        """The surroundings of another fleet."""
        self.clock, self.store_clock, self.store = other.clock, other.store_clock, other.store
        self.simulator, self.crew, self.foreign = other.simulator, other.crew, other.foreign
        self.weather = other.weather
        self.fleets.append(self)

    def _policy(self) -> FleetPolicy:
        pick = self.chance.choice
        return FleetPolicy(
            policy=pick([PolicyName.QUEUE_RATIO, PolicyName.QUEUE_COVER, PolicyName.LAG_AWARE]),
            every=self.every,
            min_workers=0,
            max_workers=pick([1, 3, 6, 10]),
            idle_timeout=seconds(60),
            max_per_hour=self.purse.ceilings.get("hour"),
            max_per_day=self.purse.ceilings.get("day"),
            max_per_month=self.purse.ceilings.get("month"),
            failure_min=pick([3, 5]),
        )

    async def open(self) -> None:
        await self.store.pools.create(pool(self.pool_id, PoolKind.JOBS, LIMITS, **self.policy.to_json()))

    def is_broken(self) -> bool:
        """Whether a promise is broken already, so that nothing more is to be found out."""
        together = (self.simulator.doubles, self.simulator.above, self.crew.wronged, self.crew.taken, self.foreign)
        each = (wrong for fleet in self.fleets for wrong in (fleet.meter.unpaid, fleet.outdated, fleet.hasty))
        return self.stops and (any(together) or any(each) or len(self.simulator.pods) >= RUNAWAY * len(self.fleets))

    async def control(self, number: int) -> None:
        """A controller that is started again, some time after each death."""
        await self.clock.sleep(seconds(number * 7))
        while not self.is_broken():
            line = Line(
                chance=self.chance,
                clock=self.clock,
                beyond=self.group,
                weather=self.weather,
                meter=self.meter,
                outdated=self.outdated,
                met=self.met,
                pool_id=self.pool_id,
                foreign=self.foreign,
            )
            self.lines.append(line)
            try:
                await self._control(line)
            except* Crash:
                await self.clock.sleep(seconds(self.chance.uniform(1, 90)))
            self.lines.remove(line)

    async def _control(self, line: Line) -> None:
        plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), line.store(self.store), self.clock)
        async with self._spawner(line) as spawner:
            loop = plane.fleets.loop(self.pool_id, spawner, self.every, self.lease)
            while not self.is_broken():
                began, line.began = self.clock.elapsed(), self.clock.now()
                report = await loop.beat()
                self.hasty += _hasty(report) if self.meter.is_at_ease(_living(report)) else []
                if _did_all(report):
                    self.meter.decided.append(Decided(began=line.began, ended=self.clock.now()))
                pause = self.every * (RARELY if self.rests else 1)
                await self.clock.sleep(max(pause - (self.clock.elapsed() - began), seconds(1)))

    def _spawner(self, line: Line) -> RunPodSpawner:
        settings = RunPodSettings(image="i", max_price_per_hour=PRICE, billing_granule=self.purse.granule)
        return RunPodSpawner(settings, {}, self.clock, {API_KEY_VARIABLE: KEY}, UnsteadyWire(self.simulator, line))

    async def trouble(self) -> None:
        """Minute by minute: what befalls the provider and the store's clock."""
        while True:
            await self.clock.sleep(seconds(60 * self.chance.random() * 2))
            weather = self.weather
            count = int(weather.provider) + (self.chance.random() < weather.provider % 1)
            names = [pod.name for pod in self.simulator.pods[-6:]]
            for _ in range(count):
                fault = provider_faults(self.chance, names, HIDDEN_FROM_LEAPS if weather.leaps else HIDDEN)
                self.met[f"provider: {type(fault).__name__}"] += 1
                self.simulator.faults.append(fault)
            if self.chance.random() < weather.leaps:
                self.met["leaps of the store's clock"] += 1
                before, self.store_clock.skew = self.store_clock.skew, seconds(self.chance.uniform(-LEAP, LEAP))
                for fleet in self.fleets:
                    fleet.meter.leaps.append((self.clock.now(), before - self.store_clock.skew))

    async def lend_a_hand(self, chance: Random) -> None:
        """Now and then a person drains a fleet's workers, or kills one."""
        while True:
            await self.clock.sleep(seconds(chance.uniform(60, 1200)))
            fleet = chance.choice(self.fleets)
            live = await self.store.workers.list(fleet.pool_id, live=True)
            if live and self.weather.kills:
                await fleet.by_hand(chance, chance.choice(live).worker_id)

    async def by_hand(self, chance: Random, worker_id: WorkerId) -> None:
        plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), self.store, self.clock)
        if chance.random() < 0.5:
            self.met["drained by hand"] += 1
            await plane.fleet(self.pool_id).drain([] if chance.random() < 0.5 else [worker_id])
            return
        self.met["killed by hand"] += 1
        line = Line(
            chance=chance,
            clock=self.clock,
            beyond=self.group,
            weather=CALM,
            meter=self.meter,
            outdated=self.outdated,
            met=self.met,
            pool_id=self.pool_id,
            foreign=self.foreign,
        )
        plane = ControlPlane(plane.settings, line.store(self.store), self.clock)
        async with self._spawner(line) as spawner:
            with contextlib.suppress(DrumbeatError):  # it may have ended meanwhile; its provider may refuse
                await plane.fleet(self.pool_id).kill(worker_id, spawner)

    async def push(self) -> int:
        """Jobs in bursts, the first as large as the purse demands; answers with how many."""
        pushed, most = 0, ceil(self.purse.work / 60)
        for burst in range(self.chance.randint(1, 4)):
            longest = min(self.chance.choice([20, 120, 240]), SOON if self.weather.leaps else 240)
            count = self.chance.randint(1, 10) if burst or not most else most * 120 // longest
            jobs = [NewJob(payload={"seconds": self.chance.uniform(2, longest)}, max_crashes=10**6) for _ in range(count)]
            pushed += len(await self.store.queue.push(self.pool_id, jobs))
            await self.clock.sleep(seconds(self.chance.uniform(30, 360)))
        return pushed

    async def calm_down(self) -> None:
        """Nothing goes wrong any more; what has begun goes on. What waits for another hour's money is cancelled."""
        if self.purse.work and "hour" in self.purse.ceilings:
            waiting = await self.store.jobs.list(self.pool_id, statuses=[JobStatus.PENDING], limit=10_000)
            await self.store.jobs.cancel([job.job_id for job in waiting])
        self.weather = self.crew.weather = CALM
        self.simulator.faults.clear()
        for line in self.lines:
            line.weather = CALM

    async def wind_down(self) -> None:
        """A policy may keep an idle worker for many hours, if starting one has taken long; now it may not."""
        counts = await self.store.jobs.counts(self.pool_id)
        if not (counts.pending or counts.claimed):
            await self.store.pools.change(self.pool_id, PoolChange(policy={"max_workers": 0}))

    async def is_over(self) -> bool:
        """Whether every job is done, or what is left waits for money, and nobody is left."""
        counts = await self.store.jobs.counts(self.pool_id)
        rows = await self.store.workers.list(self.pool_id)
        waits = counts.pending and not await self.is_broke()
        return not (waits or counts.claimed or self.meter.alive()) and all(row.reaped_at for row in rows)

    async def is_broke(self) -> bool:
        """Whether a ceiling is what keeps the last beat from starting workers."""
        last = await self.store.beats.last(self.pool_id)
        limits = last.summary.get("limits", ()) if last else ()
        return any(limit["name"].startswith("money per") and limit["after"] == 0 for limit in limits)


def _living(report: BeatReport) -> int:
    """How many workers a beat had to take for costly."""
    return sum(row["reaped_at"] is None for row in (report.view or {"workers": ()})["workers"])


def _hasty(report: BeatReport) -> list[str]:
    """Whom a beat sent away though others, whom it did not close, were missing from its list for the
    first time, and no limit demanded it."""
    view, limits = report.view or {"workers": ()}, report.summary.get("limits", ())
    if any(limit["name"].startswith(("money", "policy max", "unsure")) for limit in limits):
        return []
    closed = {each["worker"]["worker_id"] for each in report.actions if "worker" in each}
    here = {row["worker_id"] for row in view["workers"] if row["status"] == "active"} - closed
    if here and len(here) > view["policy"]["max_workers"]:  # a limit that changes nothing, as nobody is wanted, is not recorded
        return []
    lost = here - {seen["worker_id"] for seen in view["instances"]} if here else set()
    doubted = bool(lost - {*((view["state"] or {}).get("missing") or ())}) if lost else False
    return [
        f"{each['worker_id']}, without {sorted(lost)}" for each in report.actions if doubted and each["type"] == "AskToDrain"
    ]


def _did_all(report: BeatReport) -> bool:
    """Whether a beat saw everything, and did all it decided but for what a provider refused to start."""
    saw = report.led and report.view is not None and report.view["queue"] is not None
    return saw and not any(action.get("error") for action in report.actions if action["type"] != "Spawn")
