"""drumbeat fleet watch: a fleet as it goes, on a terminal; all of it is read from the store."""

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
from drumbeat.composition.plane import ControlPlane, until_stopped
from drumbeat.core.beat import Beat
from drumbeat.core.errors import StoreError
from drumbeat.core.job import JobCounts, counted
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.worker import TERMINATING, Health, Worker, WorkerStatus, judge
from drumbeat.store.interface import Store

app = typer.Typer()

_LOOKED_EVERY = 1.0
_DECISIONS = 10
_COLOURS = {Health.HEALTHY: "green", Health.STALE: "yellow", Health.LOST: "red"}


@app.command()
def watch(
    pool: PoolArgument,
    once: Annotated[bool, typer.Option("--once", help="Show how it stands, and end.")] = False,
    store: StoreOption = None,
) -> None:
    """Watch a fleet: workers, demand, money against its ceilings, the last decisions with their reasons, or why nothing."""

    async def work(plane: ControlPlane) -> None:
        screen, stop = FleetScreen(plane.store, PoolId(pool)), asyncio.Event()
        await screen.look()
        if once or not console.is_terminal:
            console.print(screen.draw())
        if not once:
            with until_stopped(stop):
                await _keep_looking(screen, stop)

    with_control_plane(store, work)


async def _keep_looking(screen: "FleetScreen", stop: asyncio.Event) -> None:
    """Draw it anew each second; where there is no terminal, say what is new, a line each."""
    live = Live(get_renderable=screen.draw, console=console, refresh_per_second=4, transient=True)
    with live if console.is_terminal else contextlib.nullcontext():
        while not stop.is_set():
            try:
                await screen.look()
            except StoreError as exc:
                screen.trouble = str(exc)
            if not console.is_terminal:
                screen.tell_news()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOKED_EVERY):
                    await stop.wait()


@dataclass(slots=True)
class FleetScreen:
    """What is on the screen. ``look`` reads everything anew."""

    store: Store
    pool_id: PoolId
    pool: PoolRow | None = None
    now: datetime | None = None
    workers: Sequence[Worker] = ()
    counts: JobCounts = field(default_factory=JobCounts)
    beats: list[Beat] = field(default_factory=list)
    trouble: str | None = None
    told: int = 0  #: the last beat that was told of, where there is no screen

    async def look(self) -> None:
        """Raises NotFound, StoreError."""
        self.pool, self.now = await self.store.pools.get(self.pool_id), await self.store.now()
        self.workers = await self.store.workers.list(self.pool_id, live=True)
        self.counts = await self.store.jobs.counts(self.pool_id)
        last = await self.store.beats.last(self.pool_id)
        after = self.beats[-1].n if self.beats else max(last.n - 200, 0) if last else 0
        self.beats = [*self.beats, *await self.store.beats.list(self.pool_id, after=after)][-200:]
        self.trouble = None

    def draw(self) -> RenderableType:
        lines: list[RenderableType] = [Text(f"fleet {self.pool_id} · {self._states()}", style="bold")]
        if self.trouble:
            lines.append(Text(f"could not look: {self.trouble}", style="yellow"))
        lines += [Text(self._demand()), *(Text(line) for line in self._wanted())]
        if self.workers:
            lines += [Text(), table(self.workers, self._columns())]
        recent = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self.decisions()[-_DECISIONS:]]
        return Group(*lines, Text(), Text("last decisions", style="bold"), *(recent or [Text("none yet", style="dim")]))

    def _states(self) -> str:
        by = Counter(worker.standing for worker in self.workers)
        return ", ".join(f"{by[each]} {each}" for each in (*WorkerStatus, TERMINATING) if by[each]) or "no workers"

    def _demand(self) -> str:
        oldest = self.counts.oldest_ready
        waits = f", the oldest for {(self.now - oldest).total_seconds():.0f} s" if oldest and self.now else ""
        ready, delayed, claimed = map(counted, (self.counts.ready, self.counts.delayed, self.counts.claimed))
        return f"jobs: {ready} ready{waits}, {delayed} delayed, {claimed} being done"

    def _wanted(self) -> list[str]:
        """What the last beat wanted, what bound it, what it costs, and why it did nothing."""
        last = next((beat for beat in reversed(self.beats) if beat.view is not None), None)
        if last is None:
            return [f"no beat yet; make one with: drumbeat fleet beat {self.pool_id}"]
        summary = last.summary
        wished = [f"  {wish['rule']} wants {wish['workers']}: {wish['reason']}" for wish in summary.get("wishes", ())]
        bound = [
            f"  {each['name']}: {each['before']} → {each['after']}: {each['reason']}" for each in summary.get("limits", ())
        ]
        nothing = [f"  nothing was done: {last.why_not}"] if last.why_not else []
        head = f"beat {last.n} at {text(last.at)[11:]} UTC wanted {summary.get('wanted', '–')} workers"
        alarms = [f"  alarm: {each}" for each in summary.get("alarms", ())]
        return [head, *alarms, *wished, *bound, *nothing, *self._money(summary.get("spend"), last)]

    def _money(self, spend: Mapping[str, Any] | None, last: Beat) -> list[str]:
        if spend is None:
            return []
        policy = (last.view or {}).get("policy", {})
        parts = [
            f"{spend.get(name, 0.0):.3f}"
            + (f" of {most:g}" if (most := policy.get(f"max_per_{name}")) else "")
            + f" this {name}"
            for name in ("hour", "day", "month")
        ]
        return [f"money: {spend.get('burn_per_hour', 0.0):.3f} an hour now; " + ", ".join(parts)]

    def decisions(self) -> list[str]:
        return [f"{text(beat.at)[11:]}  {sentence(action)}" for beat in self.beats for action in beat.actions]

    def _columns(self) -> Columns:
        return {
            "worker": lambda worker: worker.worker_id,
            "status": lambda worker: worker.standing,
            "health": self._health,
            "age": lambda worker: self.now - worker.created_at if self.now and worker.created_at else None,
            "jobs": lambda worker: worker.active,
            "done": lambda worker: worker.operations,
            "an hour": lambda worker: worker.meta.get("price_per_hour"),
            "leaves by": lambda worker: worker.drain_deadline,
        }

    def _health(self, worker: Worker) -> object:
        if self.now is None or self.pool is None:
            return None
        health = judge(worker, self.now, self.pool.thresholds)
        return Text(health, style=_COLOURS[health])

    def tell_news(self) -> None:
        """Without a screen: what was done since, a line each."""
        for beat in self.beats:
            if beat.n > self.told:
                for action in beat.actions:
                    say(f"{text(beat.at)[11:]}  {sentence(action)}")
        self.told = self.beats[-1].n if self.beats else 0
