"""One run of a fleet with faults, and everything that was not as promised: ``judged(seed)``."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from drumbeat.core.job import JobStatus
from simulate.fleet_purse import EVERY
from simulate.fleet_world import POOL, RUNAWAY, World, seconds
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
        world = World(seed, group)
        await world.open()
        tasks = [group.create_task(each) for each in (world.control(0), world.control(1), world.trouble())]
        verdict.jobs = await world.push()
        await world.clock.sleep(seconds(world.chance.uniform(60, 600)))
        await world.calm_down()
        await _judge(world, verdict, over=await _settled(world))
        for task in (*tasks, *world.crew.lives.values()):
            task.cancel()
    return verdict


async def _settled(world: World) -> bool:
    """Whether it comes to rest in time, and stays so."""
    deadline = world.clock.elapsed() + SETTLES_WITHIN
    while world.clock.elapsed() < deadline and not world.is_broken():
        over = await world.is_over()
        if world.clock.elapsed() > deadline - SETTLES_WITHIN / 2:
            await world.wind_down()
        await world.clock.sleep(LINGERS if over else EVERY)
        if over and await world.is_over():
            return True
    return False


async def _judge(world: World, verdict: Verdict, *, over: bool) -> None:
    """Everything that was promised. Of a run that was not continued, only why."""
    verdict.tight, verdict.granule = world.purse.work > 0, world.purse.a_granule
    verdict.used = max(world.meter.used(), default=0.0)
    verdict.passed, verdict.allowed = max(world.meter.passed(), key=lambda told: told[0] - told[1], default=(-1.0, 0.0))
    verdict.met = world.met + world.crew.met
    verdict.pods, verdict.beats = len(world.simulator.pods), len(await world.store.beats.list(POOL, limit=100_000))
    verdict.minutes, verdict.spent = world.clock.elapsed().total_seconds() / 60, world.simulator.spent()
    promised = _at_once(world) if world.is_broken() else await _in_the_end(world, verdict, over=over)
    verdict.wrong = [fault for fault, holds in promised.items() if not holds]


def _at_once(world: World) -> dict[str, bool]:
    return {
        f"{len(world.simulator.pods)} pods were made": len(world.simulator.pods) < RUNAWAY,
        f"spawned twice: {world.simulator.doubles}": not world.simulator.doubles,
        f"written while another led: {world.outdated}": not world.outdated,
        f"sent away in haste: {world.hasty}": not world.hasty,
        f"given up though well: {world.crew.wronged}": not world.crew.wronged,
        f"bought without money: {world.meter.unpaid}": not world.meter.unpaid,
    }


async def _in_the_end(world: World, verdict: Verdict, *, over: bool) -> dict[str, bool]:
    jobs = await world.store.jobs.list(POOL, limit=10_000)
    fine = {JobStatus.DONE, JobStatus.CANCELLED, *([JobStatus.PENDING] if await world.is_broke() else [])}
    undone = [job.job_id for job in jobs if job.status not in fine]
    verdict.waiting = sum(job.status is JobStatus.PENDING for job in jobs)
    twice = [job_id for job_id, count in world.crew.accepted.items() if count > 1]
    unheard = [job.job_id for job in jobs if job.status is JobStatus.DONE and not world.crew.accepted[job.job_id]]
    orphans = [f"{pod.name} ({pod.id})" for pod in world.simulator.alive()]
    over_by, allowed = verdict.passed, verdict.allowed
    return {
        f"{len(jobs)} of {verdict.jobs} jobs are kept": len(jobs) == verdict.jobs,
        f"orphans: {orphans}": not orphans,
        f"not over: {await world.store.workers.list(POOL, live=True)}": over or bool(orphans),
        f"undone: {undone}": not undone,
        f"completed twice: {twice}": not twice,
        f"done by nobody: {unheard}": not unheard,
        f"passed the ceiling by {over_by:.4f}, {allowed:.4f} allowed": over_by <= verdict.granule + allowed,
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
