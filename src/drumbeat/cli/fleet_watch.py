"""drumbeat fleet watch: a live view of a fleet, read from the store."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from drumbeat.cli.fleet_options import PoolArgument
from drumbeat.cli.options import StoreOption, with_control_plane
from drumbeat.cli.render import Columns, console, say, sentence, table, text
from drumbeat.cli.worker_columns import place_columns, problem
from drumbeat.composition.plane import ControlPlane, until_stopped
from drumbeat.core.beat import Beat
from drumbeat.core.errors import StoreError
from drumbeat.core.job import JobCounts, format_count
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.worker import NOT_STARTED, TERMINATING, Health, Worker, WorkerStatus, shown_health
from drumbeat.store.interface import Store

app = typer.Typer()

_REFRESH_SECONDS = 1.0
_DECISIONS = 10
_COLOURS = {Health.HEALTHY: "green", Health.STALE: "yellow", Health.LOST: "red"}


@app.command()
def watch(
    pool: PoolArgument,
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    store: StoreOption = None,
) -> None:
    """Watch a fleet live: workers, queue, spending and its limits, and the last decisions with their reasons."""

    async def work(plane: ControlPlane) -> None:
        screen, stop = FleetScreen(plane.store, PoolId(pool)), asyncio.Event()
        await screen.refresh()
        if once or not console.is_terminal:
            console.print(screen.draw())
        if not once:
            with until_stopped(stop):
                await _keep_refreshing(screen, stop)

    with_control_plane(store, work)


async def _keep_refreshing(screen: "FleetScreen", stop: asyncio.Event) -> None:
    """Refresh the screen each second; without a terminal, print new decisions, one per line."""
    live = Live(get_renderable=screen.draw, console=console, refresh_per_second=4, transient=True)
    with live if console.is_terminal else contextlib.nullcontext():
        while not stop.is_set():
            try:
                await screen.refresh()
            except StoreError as exc:
                screen.error = str(exc)
            if not console.is_terminal:
                screen.print_new_decisions()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_SECONDS):
                    await stop.wait()


@dataclass(slots=True)
class FleetScreen:
    """The state of a fleet as read from the store, and how it is drawn."""

    store: Store
    pool_id: PoolId
    pool: PoolRow | None = None
    now: datetime | None = None
    workers: Sequence[Worker] = ()
    counts: JobCounts = field(default_factory=JobCounts)
    beats: list[Beat] = field(default_factory=list)
    error: str | None = None
    last_printed: int = 0  #: number of the last beat that was printed, if there is no terminal

    async def refresh(self) -> None:
        """Read everything from the store again. Raises NotFound, StoreError."""
        self.pool, self.now = await self.store.pools.get(self.pool_id), await self.store.now()
        self.workers = await self.store.workers.list(self.pool_id, live=True)
        self.counts = await self.store.jobs.counts(self.pool_id)
        last = await self.store.beats.last(self.pool_id)
        after = self.beats[-1].n if self.beats else max(last.n - 200, 0) if last else 0
        self.beats = [*self.beats, *await self.store.beats.list(self.pool_id, after=after)][-200:]
        self.error = None

    def draw(self) -> RenderableType:
        lines: list[RenderableType] = [Text(f"fleet {self.pool_id} · {self._states()}", style="bold")]
        if self.error:
            lines.append(Text(f"could not read the store: {self.error}", style="yellow"))
        lines += [Text(self._queue()), *(Text(line) for line in self._last_beat())]
        if self.workers:
            lines += [Text(), table(self.workers, self._columns())]
        recent = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self.decisions()[-_DECISIONS:]]
        return Group(*lines, Text(), Text("last decisions", style="bold"), *(recent or [Text("none yet", style="dim")]))

    def _states(self) -> str:
        count = Counter(worker.fleet_status for worker in self.workers)
        shown = (*WorkerStatus, TERMINATING, NOT_STARTED)
        return ", ".join(f"{count[each]} {each}" for each in shown if count[each]) or "no workers"

    def _queue(self) -> str:
        oldest = self.counts.oldest_ready
        waits = f", the oldest for {(self.now - oldest).total_seconds():.0f} s" if oldest and self.now else ""
        ready, delayed, claimed = map(format_count, (self.counts.ready, self.counts.delayed, self.counts.claimed))
        return f"jobs: {ready} ready{waits}, {delayed} delayed, {claimed} running"

    def _last_beat(self) -> list[str]:
        """Return lines about the last pass of the autoscaler: workers wanted, limits applied, why it did nothing, spending."""
        last = next((beat for beat in reversed(self.beats) if beat.view is not None), None)
        if last is None:
            return [f"no beat yet; run one with: drumbeat fleet beat {self.pool_id}"]
        summary = last.summary
        rules = [f"  {wish['rule']} wants {wish['workers']}: {wish['reason']}" for wish in summary.get("wishes", ())]
        limits = [
            f"  {each['name']}: {each['before']} → {each['after']}: {each['reason']}" for each in summary.get("limits", ())
        ]
        nothing = [f"  nothing was done: {last.why_not}"] if last.why_not else []
        head = f"beat {last.n} at {text(last.at)[11:]} UTC wanted {summary.get('wanted', '–')} workers"
        alarms = [f"  alarm: {each}" for each in summary.get("alarms", ())]
        return [head, *alarms, *rules, *limits, *nothing, *self._spending(summary.get("spend"), last)]

    def _spending(self, spend: Mapping[str, Any] | None, last: Beat) -> list[str]:
        if spend is None:
            return []
        policy = (last.view or {}).get("policy", {})
        parts = [
            f"{spend.get(name, 0.0):.3f}"
            + (f" of {most:g}" if (most := policy.get(f"max_per_{name}")) else "")
            + f" this {name}"
            for name in ("hour", "day", "month")
        ]
        return [f"spending: {spend.get('burn_per_hour', 0.0):.3f} per hour now; " + ", ".join(parts)]

    def decisions(self) -> list[str]:
        return [f"{text(beat.at)[11:]}  {sentence(action)}" for beat in self.beats for action in beat.actions]

    def _columns(self) -> Columns:
        return {
            "worker": lambda worker: worker.worker_id,
            "status": lambda worker: worker.fleet_status,
            "health": self._health,
            **place_columns(self.workers),
            "age": lambda worker: self.now - worker.created_at if self.now and worker.created_at else None,
            "jobs": lambda worker: worker.active,
            "done": lambda worker: worker.operations,
            "per hour": lambda worker: worker.meta.get("price_per_hour"),
            "leaves by": lambda worker: worker.drain_deadline,
            **({"problem": problem} if any(map(problem, self.workers)) else {}),
        }

    def _health(self, worker: Worker) -> object:
        if self.now is None or self.pool is None:
            return None
        health = shown_health(worker, self.now, self.pool.thresholds)
        return None if health is None else Text(health, style=_COLOURS[health])

    def print_new_decisions(self) -> None:
        """Print the actions since the last call, one per line."""
        for beat in self.beats:
            if beat.n > self.last_printed:
                for action in beat.actions:
                    say(f"{text(beat.at)[11:]}  {sentence(action)}")
        self.last_printed = self.beats[-1].n if self.beats else 0
