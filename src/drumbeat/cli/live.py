"""A live view of a run, read from the store: phases, workers, figures, steps and decisions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from drumbeat.bench.model import RunJudgement, ms
from drumbeat.cli.render import Columns, console, say, sentence, table, text
from drumbeat.cli.worker_columns import place_columns
from drumbeat.core.beat import Beat
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.errors import StoreError
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.repeats import SOON, collapsed
from drumbeat.core.run import RUN_ENDED, Phase, Run, RunId, RunStatus, Step
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import Health, Worker, shown_health
from drumbeat.store.interface import Store

SPARKS = " ▁▂▃▄▅▆▇█"
_REFRESH_SECONDS = 0.5
_RECENT = timedelta(seconds=2.5)
_SILENT_AFTER = timedelta(seconds=3)  #: after this time without a beat, the run is shown as waiting for its engine
_HIDDEN = frozenset({"Remember"})  #: types of actions that are not shown
_HEALTH = {Health.HEALTHY: "green", Health.STALE: "yellow", Health.LOST: "red"}
Judge = Callable[[Run], Awaitable[RunJudgement]]
_PHASES = (Phase.PREPARING, Phase.WARMUP, Phase.MEASUREMENT, Phase.COOLDOWN, Phase.PROCESSING)


def sparkline(values: Sequence[float]) -> str:
    highest = max(values, default=0) or 1
    return "".join(SPARKS[round(value / highest * (len(SPARKS) - 1))] for value in values)


def not_started(run_id: RunId) -> str:
    """Return a text for a run that is PREPARED: it was never started, so no orchestrator will run it."""
    return f"run {run_id} is prepared but not started; start it with: drumbeat bench start {run_id}"


@dataclass(slots=True)
class RunScreen:
    """The state of a run as read from the store, and how it is drawn."""

    store: Store
    run_id: RunId
    judge: Judge | None = None  #: reads the verdict on a run; None: whether the run has an orchestrator is not shown
    judgement: RunJudgement = field(default_factory=RunJudgement)
    run: Run | None = None
    pool: PoolRow | None = None
    now: datetime | None = None
    workers: Sequence[Worker] = ()
    steps: Sequence[Step] = ()
    beats: list[Beat] = field(default_factory=list)
    latest: dict[str, StoredSample] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    last_printed: int = 0  #: number of the last beat that was printed, if there is no terminal
    last_made: dict[str, datetime] = field(default_factory=dict)  #: when each decision was last made
    printed_phase: str | None = None
    printed_wait: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def refresh(self) -> None:
        store, pool_id = self.store, PoolId(self.run_id)
        self.now = await store.now()
        self.run = await store.runs.get(self.run_id)
        self.pool = self.pool or await store.pools.get(pool_id)
        self.workers = await store.workers.list(pool_id)
        self.steps = await store.steps.list(self.run_id)
        self.beats = (self.beats + list(await store.beats.list(pool_id, after=self.beats[-1].n if self.beats else 0)))[-400:]
        for sample in await store.samples.list(pool_id, since=self.now - _RECENT):
            self.latest[sample.worker_id] = sample
        if self.run.status in RUN_ENDED:
            self.ended.set()
        if self.judge is not None:
            self.judgement = RunJudgement() if self.ended.is_set() else await self.judge(self.run)
        if self.run.status is RunStatus.RUNNING:
            self.rates = [*self.rates, self.run.qps][-60:]

    def decisions(self) -> list[tuple[str, int]]:
        """Return the run's decisions as lines of text, each with a count: repetitions within ``SOON`` (10 s) are one line."""
        made = [(beat.at, sentence(action)) for beat in self.beats for action in beat.actions if action["type"] not in _HIDDEN]
        grouped = collapsed(made, lambda each: each[1], lambda each: each[0])
        return [(f"{text(each.first[0])[11:]}  {each.first[1]}", each.times) for each in grouped]

    def draw(self) -> RenderableType:
        run = self.run
        if run is None:
            return Text("loading …")
        lines: list[RenderableType] = [self._heading(run), self._phases(run), Text(self._figures(run)), Text()]
        if banner := (run.custom_metrics.get("soft_guardrails") or {}).get("state", "normal").replace("normal", ""):
            lines.append(Text(f"guardrails: {banner}", style="yellow"))
        if waiting := self.waiting():
            lines.append(Text(waiting, style="yellow"))
        lines += [Text(sparkline(self.rates), style="cyan"), Text(), table(self.workers, self._columns())]
        if self.steps:
            lines += [Text(), table(self.steps[-8:], STEPS)]
        lines_shown = [f"{line}{f'  ({times} times)' if times > 1 else ''}" for line, times in self.decisions()[-6:]]
        recent = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines_shown]
        return Group(*lines, Text(), Text("decisions", style="bold"), *recent)

    def waiting(self) -> str | None:
        """Return a text that says what a run waits for, such as its start or its engine; None if it does not wait."""
        if self.judgement.is_orphan:
            return self.judgement.reason
        if self.run is not None and self.run.status is RunStatus.PREPARED:
            return not_started(self.run_id)
        if self.run is None or self.run.status is not RunStatus.STARTING:
            return None
        noted: str | None = self.run.custom_metrics.get("waiting")
        return self._slow_engine(self.run) or noted

    def _slow_engine(self, run: Run) -> str | None:
        """Return a text that says that the run waits for its engine; None for the engine ``local``, or if the orchestrator's
        last beat was recent."""
        engine = (run.config.get("scaling") or {}).get("engine") or DEFAULT_ENGINE
        last = self.beats[-1].at if self.beats else run.updated_at
        is_slow = engine != DEFAULT_ENGINE and self.now and last and self.now - last > _SILENT_AFTER
        return f"waiting for engine {engine} to answer" if is_slow else None

    def _heading(self, run: Run) -> Text:
        bounds = (run.custom_metrics.get("bounds_state") or {}).get("message")
        since = f" · {(self.now - run.started_at).total_seconds():.0f} s" if self.now and run.started_at else ""
        return Text(f"{run.name} · {run.run_id} · {run.status}{since}" + (f" · {bounds}" if bounds else ""), style="bold")

    def _phases(self, run: Run) -> Text:
        drawn = Text()
        reached = _PHASES.index(Phase(run.phase)) if run.phase in _PHASES else -1
        for index, phase in enumerate(_PHASES):
            mark, style = ("●", "green") if index < reached else ("◉", "bold cyan") if index == reached else ("○", "dim")
            drawn.append(f"{mark} {phase}   ", style=style)
        return drawn

    def _figures(self, run: Run) -> str:
        latest: dict[str, Any] = run.custom_metrics.get("latest") or {}
        return (
            f"{run.qps:>9,.0f} ops/s  p50 {ms(latest.get('p50_ms'))}  p95 {ms(latest.get('p95_ms'))}  "
            f"p99 {ms(latest.get('p99_ms'))}  errors {run.errors}  "
            f"connections {latest.get('connections') or 0:.0f}/{latest.get('target_connections') or 0}{self._search(run)}"
        )

    def _search(self, run: Run) -> str:
        search = run.controller_state.get("find_max")
        if not search:
            return ""
        best = (search.get("best") or {}).get("connections")
        return f"  step {search.get('step')}: {search.get('connections')} ({search.get('status')}), best so far {best or '–'}"

    def _columns(self) -> Columns:
        return {
            "worker": lambda worker: worker.worker_id,
            "status": lambda worker: worker.shown_status,
            "health": self._health,
            **place_columns(self.workers),
            "target": lambda worker: worker.target,
            "connections": lambda worker: worker.applied_target,
            "ops/s": lambda worker: self._sample(worker, lambda sample: f"{sample.qps:,.0f}"),
            "p99": lambda worker: self._sample(worker, lambda sample: sample.latency.percentile(99)),
            "errors": lambda worker: worker.errors,
            "cpu %": lambda worker: worker.cpu_percent if worker.is_live else None,
        }

    def _health(self, worker: Worker) -> object:
        if self.now is None or self.pool is None:
            return None
        health = shown_health(worker, self.now, self.pool.thresholds)
        return None if health is None else Text(health, style=_HEALTH[health])

    def _sample(self, worker: Worker, read: Any) -> object:
        sample = self.latest.get(worker.worker_id)
        return read(sample) if sample and worker.is_live else None

    def print_changes(self) -> None:
        """Print what has changed since the last call, one per line: the phase, waiting for the engine, and new decisions."""
        if self.run is not None and self.run.phase != self.printed_phase:
            self.printed_phase = self.run.phase
            say(f"• {self.run.phase}")
        if (wait := self._wait_to_print()) and wait != self.printed_wait:
            self.printed_wait = wait
            say(f"  {wait}", style="yellow")
        for line in self.new_decisions():
            say(f"  {line}")

    def _wait_to_print(self) -> str | None:
        """Return what the run waits for, without its progress notes, which change often; None if it does not wait."""
        if self.judgement.is_orphan:
            return self.judgement.reason
        if self.run is not None and self.run.status is RunStatus.PREPARED:
            return not_started(self.run_id)
        return self._slow_engine(self.run) if self.run is not None and self.run.status is RunStatus.STARTING else None

    def new_decisions(self) -> Iterator[str]:
        """Yield the decisions since the last call, except those that repeat a decision made within ``SOON`` (10 s) before."""
        for beat in self.beats:
            if beat.n <= self.last_printed:
                continue
            self.last_printed = beat.n
            for action in beat.actions:
                line = sentence(action)
                last, self.last_made[line] = self.last_made.get(line), beat.at
                if action["type"] not in _HIDDEN and (last is None or beat.at - last > SOON):
                    yield f"{text(beat.at)[11:]}  {line}"


STEPS: Columns = {
    "step": lambda step: step.n,
    "connections": lambda step: step.to_target,
    "ops/s": lambda step: f"{step.qps:,.0f}" if step.qps is not None else None,
    "p95": lambda step: ms(step.p95_ms),
    "Δ p95": lambda step: _percent(step.p95_vs_baseline),
    "p99": lambda step: ms(step.p99_ms),
    "errors": lambda step: f"{step.error_rate * 100:.2f} %",
    "outcome": lambda step: step.outcome,
    "probe": lambda step: "probe" if step.is_probe else "",
    "reason": lambda step: step.reason,
}


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f} %"


@asynccontextmanager
async def watched(store: Store, run_id: RunId, judge: Judge | None = None, *, quiet: bool = False) -> AsyncIterator[RunScreen]:
    """Show a run during the block: live on a terminal, plain lines without one, nothing if ``quiet``."""
    screen = RunScreen(store, run_id, judge)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_keep_refreshing(screen, quiet=quiet))
        try:
            if quiet or not console.is_terminal:
                yield screen
            else:
                with Live(get_renderable=screen.draw, console=console, refresh_per_second=4, transient=True):
                    yield screen
        finally:
            task.cancel()


async def _keep_refreshing(screen: RunScreen, *, quiet: bool) -> None:
    while not quiet:
        try:
            await screen.refresh()
        except StoreError as exc:
            say(f"could not read the store: {exc}; retrying", style="yellow")
        if not console.is_terminal:
            screen.print_changes()
        await asyncio.sleep(_REFRESH_SECONDS)
