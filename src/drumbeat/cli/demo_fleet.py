"""The fleet demo: workers start and get more work; one is killed and replaced; in the end all drain (finish and exit)."""

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
_STEP_TIMEOUT = timedelta(seconds=30)
_REFRESH_SECONDS = 0.25

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
    """Return the demo's timeouts: short for heartbeats, so that a killed worker is noticed soon; long to start and end."""
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
    """Run the fleet demo, which starts, kills, replaces and drains workers. Returns the path of its dashboard page."""
    return run(_play(settings, workers))


@dataclass(slots=True)
class _Screen:
    """The demo's screen: its workers and decisions, as read from the store, and how they are drawn."""

    plane: ControlPlane
    pool: PoolRow
    began: datetime
    step: str = ""
    messages: list[str] = field(default_factory=list)
    workers: Sequence[Worker] = ()
    beats: list[Beat] = field(default_factory=list)
    latest: dict[str, StoredSample] = field(default_factory=dict)
    now: datetime | None = None

    async def refresh(self) -> None:
        """Read the current workers, decisions and measurements of the demo from the store."""
        store, pool_id = self.plane.store, self.pool.pool_id
        self.now = await store.now()
        self.workers = await store.workers.list(pool_id)
        self.beats += await store.beats.list(pool_id, after=self.beats[-1].n if self.beats else 0)
        for sample in await store.samples.list(pool_id, since=self.now - timedelta(seconds=3)):
            self.latest[sample.worker_id] = sample

    def say(self, step: str) -> None:
        self.step = step
        self.messages.append(step)
        if not console.is_terminal:
            say(f"• {step}")

    def decisions(self) -> list[str]:
        return [f"{text(beat.at)[11:]}  {sentence(action)}" for beat in self.beats for action in beat.actions]

    def draw(self) -> RenderableType:
        heading = Text(f"drumbeat demo · {self.step}", style="bold")
        recent = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self.decisions()[-8:]]
        return Group(heading, Text(), table(self.workers, self._columns()), Text(), Text("decisions", style="bold"), *recent)

    def _columns(self) -> Columns:
        return {
            "worker": lambda worker: worker.worker_id,
            "slot": lambda worker: worker.slot,
            "status": lambda worker: Text(worker.status, style=_COLOURS[worker.status]),
            "health": self._health,
            "last heartbeat": self._silence,
            "target": lambda worker: worker.target,
            "active": lambda worker: worker.active,
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
        screen = _Screen(plane, pool, await plane.store.now())
        failure: DrumbeatError | None = None
        async with _running(plane.fleets.loop(pool.pool_id, spawner, _EVERY).run), _live_view(screen):
            try:
                await _story(screen, workers)
            except DrumbeatError as exc:
                failure = exc
        if failure is None:
            await screen.refresh()  # the last beat is written after its actions are done
        _conclude(screen)
        if failure is not None:
            raise failure
        return f"/fleet/{pool.pool_id}"


@asynccontextmanager
async def _running(run: Callable[[asyncio.Event], Coroutine[object, object, None]]) -> AsyncIterator[None]:
    """Run a controller in the background during the block; it is asked to stop at the end."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(run(stop))
        try:
            yield
        finally:
            stop.set()


@asynccontextmanager
async def _live_view(screen: _Screen) -> AsyncIterator[None]:
    """Draw the screen live during the block, if there is a terminal."""
    if not console.is_terminal:
        yield
        return
    with Live(get_renderable=screen.draw, console=console, refresh_per_second=4, transient=True):
        yield


async def _story(screen: _Screen, workers: int) -> None:
    plane, pool_id = screen.plane, screen.pool.pool_id
    screen.say(f"the controller starts {workers} workers; each is in the store before its process starts")
    await _until(screen, lambda: _active(screen) == workers and all(worker.active == 2 for worker in _live_workers(screen)))
    screen.say("all workers are active; their target is raised from 2 to 5 over 2 seconds")
    await plane.fleets.set_policy(pool_id, FleetPolicy(workers=workers, target=5, ramp=timedelta(seconds=2)))
    await _until(screen, lambda: all(worker.active == 5 for worker in _live_workers(screen)))
    victim = _live_workers(screen)[-1]
    screen.say(f"kill -9 of {victim.worker_id} (pid {victim.pid})")
    _kill(victim)
    await _until(screen, lambda: victim.worker_id not in _names(screen) and _active(screen) == workers)
    await _until(screen, lambda: all(worker.active == 5 for worker in _live_workers(screen)))
    screen.say(f"the controller replaced it with {_live_workers(screen)[-1].worker_id}; now all workers drain")
    await plane.fleets.set_policy(pool_id, FleetPolicy(workers=0, target=5))
    await _until(screen, lambda: not _live_workers(screen) and all(worker.reaped_at for worker in screen.workers))
    screen.say("all workers have exited; no process is left")


def _kill(victim: Worker) -> None:
    if victim.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)


async def _until(screen: _Screen, condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, reading the demo's state again and again. Raises DrumbeatError after a timeout."""
    deadline = asyncio.get_running_loop().time() + _STEP_TIMEOUT.total_seconds()
    while True:
        try:
            await screen.refresh()
        except DrumbeatError as exc:
            screen.messages.append(f"could not read the store: {exc}")
        if condition():
            return
        if asyncio.get_running_loop().time() > deadline:
            raise DrumbeatError(f"demo timed out after {text(_STEP_TIMEOUT)} in step: {screen.step}; see the decisions above")
        await asyncio.sleep(_REFRESH_SECONDS)


def _live_workers(screen: _Screen) -> list[Worker]:
    return [worker for worker in screen.workers if worker.is_live]


def _names(screen: _Screen) -> set[str]:
    return {worker.worker_id for worker in _live_workers(screen)}


def _active(screen: _Screen) -> int:
    return sum(worker.status is WorkerStatus.ACTIVE for worker in screen.workers)


def _conclude(screen: _Screen) -> None:
    if console.is_terminal:
        for message in screen.messages:
            say(f"• {message}")
    say("\nWhat the controller decided, and why", style="bold")
    for line in screen.decisions():
        say(f"  {line}")
    quiet = [beat for beat in screen.beats if not beat.actions]
    last = f" ({quiet[-1].why_not})" if quiet else ""
    say(f"\n{len(screen.beats)} beats; in {len(quiet)} of them nothing had to be done{last}.")
