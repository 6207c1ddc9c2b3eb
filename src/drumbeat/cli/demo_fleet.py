"""The fleet's demo: workers join, start, change targets; one is killed and replaced; all drain."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from drumbeat.cli.options import run
from drumbeat.cli.render import Columns, console, say, sentence, table, text
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.beat import Beat
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.pool import PoolRow, Thresholds
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import Worker, WorkerStatus, judge
from drumbeat.fleet.model import FleetPolicy
from drumbeat.settings import Settings

_EVERY = timedelta(milliseconds=500)
_PATIENCE = timedelta(seconds=30)  #: for one step of the story
_REDRAWN_EVERY = 0.25

_COLOURS = {
    WorkerStatus.SPAWNING: "cyan",
    WorkerStatus.STARTING: "cyan",
    WorkerStatus.WAITING: "blue",
    WorkerStatus.ACTIVE: "green",
    WorkerStatus.DRAINING: "yellow",
    WorkerStatus.TERMINATED: "dim",
    WorkerStatus.ERROR: "red",
    WorkerStatus.LOST: "red",
}


def demo_thresholds() -> Thresholds:
    """Faster than usual, so that a silence shows within seconds; no worker gives up because the machine is busy."""
    return Thresholds(
        heartbeat_every=timedelta(milliseconds=500),
        stale_after=timedelta(seconds=3),
        lost_after=timedelta(seconds=30),
        give_up_after=timedelta(seconds=25),
        start_within=timedelta(seconds=30),
        drain_within=timedelta(seconds=20),
        controller_gone_after=timedelta(seconds=30),
    )


def play_fleet(settings: Settings, workers: int) -> str:
    """Watch a fleet for half a minute: start, retarget, kill -9, replace, drain; then read why. Answers with its page."""
    return run(_play(settings, workers))


@dataclass(slots=True)
class _Stage:
    """What is on the screen."""

    plane: ControlPlane
    pool: PoolRow
    began: datetime
    chapter: str = ""
    told: list[str] = field(default_factory=list)
    workers: Sequence[Worker] = ()
    beats: list[Beat] = field(default_factory=list)
    latest: dict[str, StoredSample] = field(default_factory=dict)
    now: datetime | None = None

    async def look(self) -> None:
        """Read everything from the store again: the screen shows nothing else."""
        store, pool_id = self.plane.store, self.pool.pool_id
        self.now = await store.now()
        self.workers = await store.workers.list(pool_id)
        self.beats += await store.beats.list(pool_id, after=self.beats[-1].n if self.beats else 0)
        for sample in await store.samples.list(pool_id, since=self.now - timedelta(seconds=3)):
            self.latest[sample.worker_id] = sample

    def say(self, chapter: str) -> None:
        self.chapter = chapter
        self.told.append(chapter)
        if not console.is_terminal:
            say(f"• {chapter}")

    def decisions(self) -> list[str]:
        return [f"{text(beat.at)[11:]}  {sentence(action)}" for beat in self.beats for action in beat.actions]

    def draw(self) -> RenderableType:
        heading = Text(f"drumbeat demo · {self.chapter}", style="bold")
        recent = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self.decisions()[-8:]]
        return Group(heading, Text(), table(self.workers, self._columns()), Text(), Text("decisions", style="bold"), *recent)

    def _columns(self) -> Columns:
        return {
            "worker": lambda worker: worker.worker_id,
            "slot": lambda worker: worker.slot,
            "status": lambda worker: Text(worker.status, style=_COLOURS[worker.status]),
            "health": self._health,
            "last beat": self._silence,
            "target": lambda worker: worker.target,
            "holds": lambda worker: worker.active,
            "ticks/s": lambda worker: self._sample(worker, lambda sample: f"{sample.qps:.0f}"),
            "p99 lag": lambda worker: self._sample(worker, lambda sample: sample.latency.percentile(99)),
            "cpu %": lambda worker: worker.cpu_percent if worker.is_live else None,
        }

    def _health(self, worker: Worker) -> object:
        return judge(worker, self.now, self.pool.thresholds) if worker.is_live and self.now else None

    def _silence(self, worker: Worker) -> object:
        return self.now - worker.heartbeat_at if worker.is_live and self.now and worker.heartbeat_at else None

    def _sample(self, worker: Worker, read: Callable[[StoredSample], object]) -> object:
        sample = self.latest.get(worker.worker_id)
        return read(sample) if sample and worker.is_live else None


async def _play(settings: Settings, workers: int) -> str:
    async with open_control_plane(settings, create=True) as plane, plane.local_spawner() as spawner:
        pool = await plane.fleets.create(f"demo-{uuid4().hex[:6]}", FleetPolicy(workers=workers, target=2), demo_thresholds())
        stage = _Stage(plane, pool, await plane.store.now())
        failure: DrumbeatError | None = None
        async with _running(plane.fleets.loop(pool.pool_id, spawner, _EVERY).run), _screen(stage):
            try:
                await _story(stage, workers)
            except DrumbeatError as exc:
                failure = exc
        if failure is None:
            await stage.look()  # the last beat is written once its deeds are done
        _conclude(stage)
        if failure is not None:
            raise failure
        return f"/fleet/{pool.pool_id}"


@asynccontextmanager
async def _running(run: Callable[[asyncio.Event], Coroutine[object, object, None]]) -> AsyncIterator[None]:
    """A controller that beats for as long as the block lasts."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(run(stop))
        try:
            yield
        finally:
            stop.set()


@asynccontextmanager
async def _screen(stage: _Stage) -> AsyncIterator[None]:
    """A live view on a terminal; plain lines elsewhere."""
    if not console.is_terminal:
        yield
        return
    with Live(get_renderable=stage.draw, console=console, refresh_per_second=4, transient=True):
        yield


async def _story(stage: _Stage, workers: int) -> None:
    plane, pool_id = stage.plane, stage.pool.pool_id
    stage.say(f"a controller starts {workers} workers; each row exists before its process")
    await _until(stage, lambda: _active(stage) == workers and all(worker.active == 2 for worker in _living(stage)))
    stage.say("they joined, got START and beat; now each is told to hold 5 instead of 2, over 2 seconds")
    await plane.fleets.set_policy(pool_id, FleetPolicy(workers=workers, target=5, ramp=timedelta(seconds=2)))
    await _until(stage, lambda: all(worker.active == 5 for worker in _living(stage)))
    victim = _living(stage)[-1]
    stage.say(f"kill -9 of {victim.worker_id} (pid {victim.pid})")
    _kill(victim)
    await _until(stage, lambda: victim.worker_id not in _names(stage) and _active(stage) == workers)
    await _until(stage, lambda: all(worker.active == 5 for worker in _living(stage)))
    stage.say(f"noticed, closed and replaced by {_living(stage)[-1].worker_id}; now all are told to drain")
    await plane.fleets.set_policy(pool_id, FleetPolicy(workers=0, target=5))
    await _until(stage, lambda: not _living(stage) and all(worker.reaped_at for worker in stage.workers))
    stage.say("all have left; no process is left behind")


def _kill(victim: Worker) -> None:
    if victim.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)


async def _until(stage: _Stage, happened: Callable[[], bool]) -> None:
    """Look until it has happened. Raises DrumbeatError when it does not."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE.total_seconds()
    while True:
        try:
            await stage.look()
        except DrumbeatError as exc:
            stage.told.append(f"could not look: {exc}")
        if happened():
            return
        if asyncio.get_running_loop().time() > deadline:
            raise DrumbeatError(f"the demo waited {text(_PATIENCE)} in vain after: {stage.chapter}; its decisions say more")
        await asyncio.sleep(_REDRAWN_EVERY)


def _living(stage: _Stage) -> list[Worker]:
    return [worker for worker in stage.workers if worker.is_live]


def _names(stage: _Stage) -> set[str]:
    return {worker.worker_id for worker in _living(stage)}


def _active(stage: _Stage) -> int:
    return sum(worker.status is WorkerStatus.ACTIVE for worker in stage.workers)


def _conclude(stage: _Stage) -> None:
    if console.is_terminal:
        for chapter in stage.told:
            say(f"• {chapter}")
    say("\nWhat the controller decided, and why", style="bold")
    for line in stage.decisions():
        say(f"  {line}")
    quiet = [beat for beat in stage.beats if not beat.actions]
    last = f" ({quiet[-1].why_not})" if quiet else ""
    say(f"\n{len(stage.beats)} beats; in {len(quiet)} of them nothing was to be done{last}.")
