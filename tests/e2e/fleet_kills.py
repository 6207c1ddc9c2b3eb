"""A fleet of real processes, controllers and workers alike, that are killed with SIGKILL at random; told by its seed."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random

import psutil

from cli.given import environment, processes_of
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.job import JobStatus, NewJob, Outcome
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.pool.work import WorkPlan
from drumbeat.settings import Settings
from drumbeat.store import Store, open_store

POOL = PoolId("p")
JOBS = 10
KILLS = 6
SETTLES_WITHIN = 120.0  #: seconds
HANDLERS = """
import time

def nap(payload):
    time.sleep(payload["seconds"])
    return payload
"""


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


PATIENCE = seconds(20)  #: for a worker to come to be
LIMITS = replace(
    PRESETS[PoolKind.JOBS],
    heartbeat_every=seconds(0.5),
    stale_after=seconds(3),
    lost_after=seconds(6),
    give_up_after=seconds(5),
    start_within=seconds(40),
    drain_within=seconds(10),
)
POLICY = FleetPolicy(
    policy=PolicyName.QUEUE_COVER,
    every=seconds(0.5),
    min_workers=0,
    max_workers=3,
    idle_timeout=seconds(0.5),
    overcapacity_idle_timeout=seconds(0.5),
    stabilisation=seconds(0.5),
    cooldown_down=seconds(0),
    turn_after=seconds(0),
    failure_min=100,
)


@dataclass(slots=True)
class Toll:
    """What came of one run."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    controllers: int = 0  #: killed
    workers: int = 0  #: killed
    started: int = 0  #: workers


class Battle:
    """One run."""

    def __init__(self, seed: int, store: Store, url: str, folder: Path) -> None:
        self.chance = Random(seed)
        self.toll = Toll(seed)
        self.store = store
        self.folder = folder
        self.variables = {"DRUMBEAT_STORE": url, "DRUMBEAT_STATE_DIR": str(folder / "state"), "PYTHONPATH": str(folder)}
        self.controllers: list[subprocess.Popen[bytes]] = []

    def lead(self) -> None:
        """One controller more."""
        with (self.folder / "controllers.log").open("ab") as log:
            command = [sys.executable, "-m", "drumbeat", "fleet", "run", POOL]
            started = subprocess.Popen(command, cwd=self.folder, env=environment(**self.variables), stdout=log, stderr=log)
        self.controllers.append(started)

    async def someone_works(self, clock: Clock) -> None:
        """Wait for it, for a while."""
        deadline = clock.elapsed() + PATIENCE
        while clock.elapsed() < deadline and not await self.is_over():
            if any(row.pid for row in await self.store.workers.list(POOL, live=True)):
                return
            await clock.sleep(seconds(0.1))

    async def kill_one(self) -> None:
        """A controller, or a worker, without a word."""
        workers = [row for row in await self.store.workers.list(POOL, live=True) if row.pid]
        if workers and self.chance.random() < 0.6:
            victim = self.chance.choice(workers)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid or 0, signal.SIGKILL)
                self.toll.workers += 1
            return
        controller = self.controllers.pop(self.chance.randrange(len(self.controllers)))
        controller.kill()
        controller.wait()
        self.toll.controllers += 1
        self.lead()

    def watch(self) -> None:
        """Two processes must never be one worker."""
        names = Counter(_worker_of(process) for process in processes_of(self.folder))
        self.toll.wrong += [f"{name} runs {count} times" for name, count in names.items() if name and count > 1]

    async def is_over(self) -> bool:
        counts = await self.store.jobs.counts(POOL)
        return counts.done == JOBS and all(row.reaped_at for row in await self.store.workers.list(POOL))

    def stop(self) -> list[int | None]:
        """End the controllers in good order; their exit codes."""
        for controller in self.controllers:
            controller.terminate()
        for controller in self.controllers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                controller.wait(30)
        return [controller.poll() for controller in self.controllers]

    def clear_away(self) -> None:
        for controller in self.controllers:
            controller.kill()
            controller.wait()
        for process in processes_of(self.folder):
            with contextlib.suppress(psutil.Error):
                process.kill()


def _worker_of(process: psutil.Process) -> str:
    """The worker a process is; nothing if it is only a child of one."""
    try:
        arguments = process.cmdline()
        return arguments[arguments.index("--worker-id") + 1] if "--worker-id" in arguments else ""
    except psutil.Error:
        return ""


async def fought(seed: int, folder: Path) -> Toll:
    """Run a seed in a folder of its own, and say what came of it."""
    url = f"sqlite:///{folder}/drumbeat.db"
    (folder / "handlers.py").write_text(HANDLERS)
    async with open_store(url, create=True) as store:
        battle = Battle(seed, store, url, folder)
        await _prepare(battle, store, url)
        try:
            await _fight(battle)
        finally:
            battle.clear_away()
        return battle.toll


async def _prepare(battle: Battle, store: Store, url: str) -> None:
    from drumbeat.client import Mode, parse_handlers
    from drumbeat.control_plane import ControlPlane

    plane = ControlPlane(Settings(store=url, state_dir=battle.folder / "state"), store, SystemClock())
    await plane.scale_pool(POOL, POLICY, WorkPlan(handlers=parse_handlers(["handlers:nap"]), mode=Mode.LOOP), LIMITS)
    spans = [battle.chance.uniform(0.1, 1.5) for _ in range(JOBS)]
    await store.queue.push(POOL, [NewJob(payload={"n": n, "seconds": span}, max_crashes=1000) for n, span in enumerate(spans)])


async def _fight(battle: Battle) -> None:
    clock = SystemClock()
    battle.lead()
    battle.lead()
    for _ in range(KILLS):
        await battle.someone_works(clock)
        await clock.sleep(seconds(battle.chance.uniform(0, 2)))
        battle.watch()
        await battle.kill_one()
    deadline = clock.elapsed() + seconds(SETTLES_WITHIN)
    while not (over := await battle.is_over()) and clock.elapsed() < deadline:
        await clock.sleep(seconds(0.2))
    codes = await asyncio.to_thread(battle.stop)
    await _judge(battle, over=over, codes=codes)


async def _judge(battle: Battle, *, over: bool, codes: Sequence[int | None]) -> None:
    store, rows = battle.store, await battle.store.workers.list(POOL)
    jobs = await store.jobs.list(POOL, limit=1000)
    done = {job.job_id: [each.outcome for each in await store.jobs.attempts(job.job_id)].count(Outcome.DONE) for job in jobs}
    left = [f"{_worker_of(process)} ({process.pid})" for process in processes_of(battle.folder)]
    found = {
        f"not over after {SETTLES_WITHIN:g} s: {[(row.worker_id, row.status) for row in rows if not row.reaped_at]}": over,
        f"processes left: {left}": not left,
        f"{len(jobs)} of {JOBS} jobs are kept": len(jobs) == JOBS,
        f"undone: {[job.job_id for job in jobs if job.status is not JobStatus.DONE]}": all(
            job.status is JobStatus.DONE for job in jobs
        ),
        f"completed twice: {done}": all(count <= 1 for count in done.values()),
        f"controllers left with {codes}": all(code in {0, -signal.SIGTERM} for code in codes),  # the latter before they began
    }
    battle.toll.wrong += [fault for fault, holds in found.items() if not holds]
    battle.toll.started = len(rows)
