"""Three fleets of real processes in one store, with equal worker ids; all are killed with SIGKILL at random, by a seed.

By default workers run on this machine and the store is SQLite; another ``Ground`` has an engine, and links that can be cut.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random

import psutil

from cli.given import environment, processes_of
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.job import Attempt, AttemptOutcome, Job, JobStatus, NewJob
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.pool.worker.options import WorkPlan
from drumbeat.settings import load_settings
from drumbeat.store import Store, open_store

POOLS = (PoolId("p"), PoolId("q"), PoolId("r"))
JOBS = 5  #: of each pool
KILLS = 6
SETTLES_WITHIN = 120.0  #: seconds
HANDLER = """command:sh -c 'read payload; seconds=${payload##*:}; sleep ${seconds%?}; echo "$payload"'"""


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
    max_workers=2,
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
    disturbed: int = 0  #: times that a link was cut or an engine stood still
    started: int = 0  #: workers


class Ground:
    """Where a run takes place: its store, and the engine of its workers. This one: SQLite, and this machine."""

    engine = DEFAULT_ENGINE
    settles_within = SETTLES_WITHIN
    variables: Mapping[str, str] = {}  #: more variables for the controllers

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/drumbeat.db"

    def processes(self) -> list[psutil.Process]:
        """The workers that live, and their children."""
        return processes_of(self.folder)

    async def disturb(self, chance: Random) -> bool:
        """Disturb the engine or the network for a moment; False if there is nothing to disturb."""
        return False


class EngineGround(Ground):
    """The workers run on an engine of the folder's engines.toml; their processes are seen on this machine."""

    def __init__(self, folder: Path, engine: str, url: str) -> None:
        super().__init__(folder)
        self.engine, self._url = engine, url

    @property
    def url(self) -> str:
        return self._url

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return _worker_of(process) is not None and process.environ().get("DRUMBEAT_STORE") == self._url
        except psutil.Error:
            return False


class Battle:
    """One run."""

    def __init__(self, seed: int, store: Store, ground: Ground) -> None:
        self.chance = Random(seed)
        self.toll = Toll(seed)
        self.store = store
        self.ground = ground
        self.folder = ground.folder
        self.variables = {"DRUMBEAT_STORE": ground.url, "DRUMBEAT_STATE_DIR": str(self.folder / "state"), **ground.variables}
        self.controllers: list[tuple[PoolId, subprocess.Popen[bytes]]] = []
        self.killed: set[tuple[PoolId, WorkerId]] = set()

    def lead(self, pool_id: PoolId) -> None:
        """One controller more."""
        with (self.folder / "controllers.log").open("ab") as log:
            command = [sys.executable, "-m", "drumbeat", "fleet", "run", pool_id]
            started = subprocess.Popen(command, cwd=self.folder, env=environment(**self.variables), stdout=log, stderr=log)
        self.controllers.append((pool_id, started))

    async def live(self) -> list[Worker]:
        """Workers of all pools whose processes have joined."""
        rows = [row for pool_id in POOLS for row in await self.store.workers.list(pool_id, live=True)]
        return [row for row in rows if row.pid]

    async def someone_works(self, clock: Clock) -> None:
        """Wait for it, for a while."""
        deadline = clock.elapsed() + PATIENCE
        while clock.elapsed() < deadline and not await self.is_over():
            if await self.live():
                return
            await clock.sleep(seconds(0.1))

    async def kill_one(self) -> None:
        """Kill a controller or a worker without a word, or disturb the engine."""
        if self.chance.random() < 0.3 and await self.ground.disturb(self.chance):
            self.toll.disturbed += 1
            return
        workers = [process for process in self.ground.processes() if _worker_of(process)]
        if workers and self.chance.random() < 0.6:
            victim = self.chance.choice(workers)
            with contextlib.suppress(psutil.NoSuchProcess):
                pool_id, worker_id = _worker_of(victim) or ("", "")
                self.killed.add((PoolId(pool_id), WorkerId(worker_id)))
                victim.kill()
                self.toll.workers += 1
            return
        pool_id, controller = self.controllers.pop(self.chance.randrange(len(self.controllers)))
        controller.kill()
        controller.wait()
        self.toll.controllers += 1
        self.lead(pool_id)

    def watch(self) -> None:
        """Two processes must never be one worker, and no pool may have more than its maximum."""
        names = Counter(name for process in self.ground.processes() if (name := _worker_of(process)) and not _is_fork(process))
        self.toll.wrong += [f"{name} runs {count} times" for name, count in names.items() if count > 1]
        pools = Counter(pool_id for pool_id, _ in names)
        self.toll.wrong += [f"{count} workers of {name} run" for name, count in pools.items() if count > POLICY.max_workers]

    async def is_over(self) -> bool:
        return all([await self._is_over(pool_id) for pool_id in POOLS])

    async def _is_over(self, pool_id: PoolId) -> bool:
        counts = await self.store.jobs.counts(pool_id)
        return counts.done == JOBS and all(row.reaped_at for row in await self.store.workers.list(pool_id))

    def stop(self) -> list[int | None]:
        """End the controllers in good order; their exit codes."""
        for _, controller in self.controllers:
            controller.terminate()
        for _, controller in self.controllers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                controller.wait(30)
        return [controller.poll() for _, controller in self.controllers]

    def clear_away(self) -> None:
        for _, controller in self.controllers:
            controller.kill()
            controller.wait()
        for process in self.ground.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()


def _worker_of(process: psutil.Process) -> tuple[str, str] | None:
    """The pool and the name of the worker a process is; None if it is only a child of one."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return None
    if not words or "python" not in Path(words[0]).name:  # what holds a worker, as an init does, has its arguments too
        return None
    named = [words[words.index(option) + 1] for option in ("--run-id", "--worker-id") if option in words]
    return (named[0], named[1]) if len(named) == 2 else None


def _is_fork(process: psutil.Process) -> bool:
    """Whether a process is a worker's child that has not begun its own program yet: until then it has the worker's command."""
    try:
        parent = process.parent()
        return parent is not None and _worker_of(parent) == _worker_of(process)
    except psutil.Error:
        return True


async def fought(seed: int, ground: Ground) -> Toll:
    """Run a seed, and say what came of it."""
    async with open_store(ground.url, create=True) as store:
        battle = Battle(seed, store, ground)
        await _prepare(battle, store)
        try:
            await _fight(battle)
        finally:
            battle.clear_away()
        return battle.toll


async def _prepare(battle: Battle, store: Store) -> None:
    from drumbeat.client import Mode, parse_handlers
    from drumbeat.composition.plane import ControlPlane

    settings = load_settings(battle.variables, battle.folder / "drumbeat.toml")
    plane = ControlPlane(settings, store, SystemClock())
    plan = WorkPlan(handlers=parse_handlers([HANDLER]), mode=Mode.LOOP)
    policy = replace(POLICY, provider=battle.ground.engine)
    for pool_id in POOLS:
        await plane.fleets.scale_pool(pool_id, policy, plan, LIMITS)
        spans = [battle.chance.uniform(0.1, 1.5) for _ in range(JOBS)]
        jobs = [NewJob(payload={"n": n, "seconds": span}, max_crashes=1000) for n, span in enumerate(spans)]
        await store.queue.push(pool_id, jobs)


async def _fight(battle: Battle) -> None:
    clock = SystemClock()
    for pool_id in (*POOLS, POOLS[0]):
        battle.lead(pool_id)
    for _ in range(KILLS):
        await battle.someone_works(clock)
        await clock.sleep(seconds(battle.chance.uniform(0, 2)))
        battle.watch()
        await battle.kill_one()
    deadline = clock.elapsed() + seconds(battle.ground.settles_within)
    while not (over := await battle.is_over()) and clock.elapsed() < deadline:
        await clock.sleep(seconds(0.2))
    codes = await asyncio.to_thread(battle.stop)
    await _judge(battle, over=over, codes=codes)


async def _judge(battle: Battle, *, over: bool, codes: Sequence[int | None]) -> None:
    store = battle.store
    rows = [row for pool_id in POOLS for row in await store.workers.list(pool_id)]
    jobs = [job for pool_id in POOLS for job in await store.jobs.list(pool_id, limit=1000)]
    attempts = {job.job_id: await store.jobs.attempts(job.job_id) for job in jobs}
    done = {name: [each.outcome for each in tried].count(AttemptOutcome.DONE) for name, tried in attempts.items()}
    left = [f"{_worker_of(process)} ({process.pid})" for process in battle.ground.processes()]
    unreaped = [(row.pool_id, row.worker_id, row.status) for row in rows if not row.reaped_at]
    foreign = _foreign(battle, rows, [(job, each) for job in jobs for each in attempts[job.job_id]])
    found = {
        f"not over after {battle.ground.settles_within:g} s: {unreaped}": over,
        f"processes left: {left}": not left,
        f"{len(jobs)} of {JOBS * len(POOLS)} jobs are kept": len(jobs) == JOBS * len(POOLS),
        f"undone: {[job.job_id for job in jobs if job.status is not JobStatus.DONE]}": all(
            job.status is JobStatus.DONE for job in jobs
        ),
        f"completed twice: {done}": all(count <= 1 for count in done.values()),
        f"foreign: {foreign}": not foreign,
        f"controllers left with {codes}": all(code in {0, -signal.SIGTERM} for code in codes),  # the latter before they began
    }
    battle.toll.wrong += [fault for fault, holds in found.items() if not holds]
    battle.toll.started = len(rows)


def _foreign(battle: Battle, rows: Sequence[Worker], tried: Sequence[tuple[Job, Attempt]]) -> list[str]:
    """Attempts of another pool's worker, and those that crashed though their own worker was not killed and left in good order.

    A worker that was given no processor for longer than its lease loses its jobs by that, and by nobody's fault.
    """
    well = {(row.pool_id, row.worker_id) for row in rows if row.status is WorkerStatus.TERMINATED} - battle.killed
    well -= {(row.pool_id, row.worker_id) for row in rows if row.meta.get("drain_timed_out")}
    strange = [
        f"{job.job_id} of {job.pool_id}, held by {each.worker_pool}" for job, each in tried if each.worker_pool != job.pool_id
    ]
    return strange + [
        f"{job.job_id} was taken from {each.worker_id} of {job.pool_id}: {each.error}"
        for job, each in tried
        if each.outcome is AttemptOutcome.CRASHED
        and (job.pool_id, each.worker_id) in well
        and "ran out" not in (each.error or "")
    ]
