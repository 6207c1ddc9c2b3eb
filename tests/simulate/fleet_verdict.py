"""One run of a fleet with faults, and everything that was not as promised: ``judged(seed)``."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from drumbeat.core.job import JobStatus
from simulate.fleet_purse import EVERY, Purse
from simulate.fleet_world import BESIDE, RUNAWAY, World, seconds
from simulate.virtual_time import run_virtually

SETTLES_WITHIN = timedelta(hours=8)  #: and after half of that nobody is kept for later
LINGERS = timedelta(minutes=5)  #: after all is done: does anything turn up?


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
    tight: bool = False  #: whether there was a ceiling, and twice the work it pays for
    passed: float = -1.0  #: by how much the meter was above a ceiling, at its worst
    allowed: float = 0.0  #: of that, since nobody was able to do anything about it
    granule: float = 1.0  #: what one costs
    used: float = 0.0  #: the share of a ceiling that was spent, at the most


async def _story(seed: int) -> Verdict:
    verdict = Verdict(seed)
    async with asyncio.TaskGroup() as group:
        first = World(seed, group)
        beside = [
            World(seed + 10_000_000 * n, group, may_spend=Purse(), pool_id=name, beside=first)
            for n, name in enumerate(BESIDE, 1)
        ]
        fleets = [first, *beside]
        for world in fleets:
            await world.open()
        stories = [
            first.trouble(),
            first.lend_a_hand(Random(seed + 4)),
            *(world.control(n) for world in fleets for n in (0, 1)),
        ]
        tasks = [group.create_task(each) for each in stories]
        pushed = [group.create_task(world.push()) for world in fleets]
        numbers = [await each for each in pushed]
        await first.clock.sleep(seconds(first.chance.uniform(60, 600)))
        tasks[1].cancel()
        for world in fleets:
            await world.calm_down()
        over = await _settled(fleets)
        await _judge(fleets, verdict, numbers, over=over)
        for task in (*tasks, *first.crew.lives.values()):
            task.cancel()
    return verdict


async def _settled(fleets: Sequence[World]) -> bool:
    """Whether all come to rest in time, and stay so."""
    clock = fleets[0].clock
    deadline = clock.elapsed() + SETTLES_WITHIN
    while clock.elapsed() < deadline and not fleets[0].is_broken():
        over = await _are_over(fleets)
        for world in fleets:
            if world is not fleets[0] or clock.elapsed() > deadline - SETTLES_WITHIN / 2:
                await world.wind_down()
        await clock.sleep(LINGERS if over else EVERY)
        if over and await _are_over(fleets):
            return True
    return False


async def _are_over(fleets: Sequence[World]) -> bool:
    """A fleet that is over beats more rarely until the others are, so that runs take no longer than they must."""
    for world in fleets:
        world.rests = await world.is_over()
    return all(world.rests for world in fleets)


async def _judge(fleets: Sequence[World], verdict: Verdict, pushed: Sequence[int], *, over: bool) -> None:
    """Everything that was promised. Of a run that was not continued, only why."""
    first = fleets[0]
    verdict.jobs = sum(pushed)
    verdict.tight, verdict.granule = first.purse.work > 0, first.purse.a_granule
    verdict.used = max(first.meter.used(), default=0.0)
    verdict.passed, verdict.allowed = max(first.meter.passed(), key=lambda told: told[0] - told[1], default=(-1.0, 0.0))
    verdict.met = sum((world.met for world in fleets), first.crew.met)
    verdict.pods = len(first.simulator.pods)
    verdict.beats = sum([len(await first.store.beats.list(world.pool_id, limit=100_000)) for world in fleets])
    verdict.minutes, verdict.spent = first.clock.elapsed().total_seconds() / 60, first.simulator.spent()
    if first.is_broken():
        promised = _at_once(fleets)
    else:
        promised = {}
        for world, count in zip(fleets, pushed, strict=True):
            promised |= await _in_the_end(world, verdict, count, over=over)
        over_by, allowed = verdict.passed, verdict.allowed
        promised[f"passed the ceiling by {over_by:.4f}, {allowed:.4f} allowed"] = over_by <= verdict.granule + allowed
    verdict.wrong = [fault for fault, holds in promised.items() if not holds]


def _at_once(fleets: Sequence[World]) -> dict[str, bool]:
    first = fleets[0]
    outdated, hasty = [one for world in fleets for one in world.outdated], [one for world in fleets for one in world.hasty]
    unpaid = [one for world in fleets for one in world.meter.unpaid]
    return {
        f"{len(first.simulator.pods)} pods were made": len(first.simulator.pods) < RUNAWAY * len(fleets),
        f"spawned twice: {first.simulator.doubles}": not first.simulator.doubles,
        f"more than the maximum: {first.simulator.above}": not first.simulator.above,
        f"foreign: {first.foreign}": not first.foreign,
        f"taken from the living: {first.crew.taken}": not first.crew.taken,
        f"written while another led: {outdated}": not outdated,
        f"sent away in haste: {hasty}": not hasty,
        f"given up though well: {first.crew.wronged}": not first.crew.wronged,
        f"bought without money: {unpaid}": not unpaid,
    }


async def _in_the_end(world: World, verdict: Verdict, pushed: int, *, over: bool) -> dict[str, bool]:
    pool_id = world.pool_id
    jobs = await world.store.jobs.list(pool_id, limit=10_000)
    fine = {JobStatus.DONE, JobStatus.CANCELLED, *([JobStatus.PENDING] if await world.is_broke() else [])}
    undone = [job.job_id for job in jobs if job.status not in fine]
    verdict.waiting += sum(job.status is JobStatus.PENDING for job in jobs)
    accepted = world.crew.accepted
    twice = [job.job_id for job in jobs if accepted[job.job_id] > 1]
    unheard = [job.job_id for job in jobs if job.status is JobStatus.DONE and not accepted[job.job_id]]
    orphans = [f"{pod.name} ({pod.id})" for pod in world.meter.alive()]
    return {
        f"{len(jobs)} of {pushed} jobs of {pool_id} are kept": len(jobs) == pushed,
        f"orphans: {orphans}": not orphans,
        f"not over: {await world.store.workers.list(pool_id, live=True)}": over or bool(orphans),
        f"undone in {pool_id}: {undone}": not undone,
        f"completed twice in {pool_id}: {twice}": not twice,
        f"done by nobody in {pool_id}: {unheard}": not unheard,
    }


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Nobody reads ten thousand runs' logs."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # noqa: TID251
    try:
        yield
    finally:
        logging.disable(before)  # noqa: TID251


def judged(seed: int) -> Verdict:
    """Run a seed, and say what came of it."""
    with _quietly():
        return run_virtually(_story(seed))
