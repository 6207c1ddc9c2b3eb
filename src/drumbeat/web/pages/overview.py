"""The overview page: active runs, pools, and what needs attention."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.job import JobCounts, format_count
from drumbeat.core.pool import PoolKind, PoolRow
from drumbeat.core.run import RUN_ENDED, RunStatus
from drumbeat.core.worker import Health, Worker, shown_health
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.auto_refresh import refresh_every
from drumbeat.web.pages.components import FigureTile, PageTable, TableColumn, TableOrPlaceholder, duration_text, tiles
from drumbeat.web.pages.fleet_one import spending
from drumbeat.web.pages.fleet_text import money
from drumbeat.web.pages.frame import FIRST_RUN, empty_state, heading, page
from drumbeat.web.pages.plain_words import COSTS, PHASES, POISONED, RUN_STATUSES, counted, plain
from drumbeat.web.pages.runs.listing import JudgedRun, run_columns
from drumbeat.web.verdicts import verdict_words

REFRESH_SECONDS = 2.0
_COST_REFRESH_SECONDS = 10.0  #: costs are refreshed less often than the rest of the page
_LATEST_RUNS = 8
_ACTIVE = tuple(status for status in RunStatus if status not in RUN_ENDED and status is not RunStatus.PREPARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSummary:
    """A pool with its job counts and live workers."""

    pool: PoolRow
    counts: JobCounts
    workers: tuple[Worker, ...]
    now: datetime

    @property
    def oldest_age(self) -> timedelta | None:
        oldest = self.counts.oldest_ready
        return None if oldest is None else max(self.now - oldest, timedelta())

    @property
    def is_paused(self) -> bool:
        return self.pool.paused_until is not None and self.pool.paused_until > self.now

    @property
    def unhealthy(self) -> list[Worker]:
        return [each for each in self.workers if self._health(each) is not Health.HEALTHY]

    def _health(self, worker: Worker) -> Health | None:
        return shown_health(worker, self.now, self.pool.thresholds)

    def worker_problem(self, worker: Worker) -> str:
        """Return what is wrong with a worker that is not healthy: it was not started, its heartbeat is late, or it is lost."""
        if worker.not_started is not None:
            return f"not started: {worker.not_started}"
        return "late heartbeat" if self._health(worker) is Health.STALE else "lost"

    @property
    def href(self) -> str:
        section = "pools" if self.pool.kind is PoolKind.JOBS else "fleet"
        return f"/{section}/{quote(self.pool.pool_id, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewData:
    """The data of the overview page: latest runs, active runs and pools."""

    runs: tuple[JudgedRun, ...]  #: the latest runs
    active_runs: tuple[JudgedRun, ...]
    pools: tuple[PoolSummary, ...]


async def read_overview(app: AppState) -> OverviewData:
    """Read the data of the overview page from the store."""
    store = app.plane.store
    pools = [each for each in await store.pools.list() if each.kind is not PoolKind.BENCH]
    return OverviewData(
        runs=await _runs(app, limit=_LATEST_RUNS),
        active_runs=await _runs(app, statuses=_ACTIVE),
        pools=tuple([await pool_summary(app, each) for each in pools]),
    )


async def _runs(app: AppState, **filters: Any) -> tuple[JudgedRun, ...]:
    store = app.plane.store
    runs = await store.runs.list(**filters) if store.traits.keeps_runs else ()
    return tuple([JudgedRun(run, await app.verdicts.of(run)) for run in runs])


async def pool_summary(app: AppState, pool: PoolRow) -> PoolSummary:
    """Read the current state of one pool."""
    store = app.plane.store
    return PoolSummary(
        pool=pool,
        counts=await store.jobs.counts(pool.pool_id) if pool.kind is PoolKind.JOBS else JobCounts(),
        workers=tuple(await store.workers.list(pool.pool_id, live=True)),
        now=await store.now(),
    )


def attention_items(data: OverviewData) -> list[tuple[str, str]]:
    """Return what needs attention, such as poisoned jobs, unhealthy workers and failed runs, each as text and link."""
    found: list[tuple[str, str]] = []
    for each in data.pools:
        name = each.pool.pool_id
        if each.counts.poisoned:
            found.append((f"{counted(each.counts.poisoned, 'poisoned job')} in {name}", f"{each.href}?status=poisoned"))
        if each.counts.ready and not each.workers and not each.is_paused:
            age = f" (longest wait: {duration_text(each.oldest_age)})" if each.oldest_age else ""
            jobs = counted(each.counts.ready, "ready job", format_count(each.counts.ready))
            found.append((f"{jobs} in {name}{age}, but no workers", each.href))
        if each.is_paused:
            found.append((f"pool {name} is paused", each.href))
        found += [
            (f"worker {worker.worker_id} of {name}: {each.worker_problem(worker)}", each.href) for worker in each.unhealthy
        ]
    return found + _run_items(data)


def _run_items(data: OverviewData) -> list[tuple[str, str]]:
    """Return text and link of each run that needs attention: it failed, missed an objective, or has no orchestrator."""
    orphans = [row for row in data.active_runs if row.judgement.is_orphan]
    bad = [row for row in data.runs if row.judgement.is_bad]
    return [
        (f"run {_name(row)} is {plain(RUN_STATUSES, row.run.status)}: {row.judgement.reason}", _run_href(row))
        for row in orphans
    ] + [(f"run {_name(row)}: {verdict_words(row.judgement)}: {row.judgement.reason or '–'}", _run_href(row)) for row in bad]


def _name(row: JudgedRun) -> str:
    return row.run.name or row.run.run_id


def _run_href(row: JudgedRun) -> str:
    return f"/runs/{row.run.run_id}"


_RUNS = (
    *run_columns(),
    TableColumn(name="phase", read=lambda row: plain(PHASES, row.run.phase)),
    TableColumn(name="operations", read=lambda row: row.run.operations, number=True),
    TableColumn(name="ops_s", label="operations/s", read=lambda row: row.run.qps, number=True),
    TableColumn(name="started", label="started (UTC)", read=lambda row: row.run.started_at),
)
_POOLS = (
    TableColumn(name="pool", label="pool or fleet", loose=True, read=lambda row: row.pool.pool_id, href=lambda row: row.href),
    TableColumn(name="ready", read=lambda row: format_count(row.counts.ready), number=True),
    TableColumn(name="oldest", label="longest wait", read=lambda row: row.oldest_age, number=True),
    TableColumn(name="claimed", label="in progress", read=lambda row: format_count(row.counts.claimed), number=True),
    TableColumn(name="poisoned", read=lambda row: row.counts.poisoned, number=True),
    TableColumn(name="workers", read=lambda row: workers_text(row.workers)),
)


def workers_text(workers: Iterable[Worker]) -> str:
    """Return how many workers there are of each status, such as ``2 active, 1 terminating``."""
    found = Counter(each.fleet_status for each in workers)
    return ", ".join(f"{count} {status}" for status, count in sorted(found.items())) or "none"


def add(app: AppState) -> None:
    @page(app, "/", "Overview")
    async def overview() -> None:
        heading("Overview")
        panels = _OverviewPanels(await read_overview(app))

        async def refresh() -> None:
            panels.show(await read_overview(app))

        async def refresh_cost() -> None:
            panels.spent.show(await cost_today(app))

        refresh_every(REFRESH_SECONDS, refresh)
        refresh_every(_COST_REFRESH_SECONDS, refresh_cost, at_once=True)


async def cost_today(app: AppState) -> str | None:
    """Return today's cost of all fleets; None if no worker has a price."""
    pools = [each.pool_id for each in await app.plane.store.pools.list() if each.is_scaled]
    found = [each for pool_id in pools if (each := await spending(app, pool_id)) is not None and each.price_per_hour]
    return money(sum(each.spent.day for each in found)) if found else None


def no_pools() -> ui.card:
    return empty_state("No pools yet. Push a job to create one:", 'drumbeat pool push mail \'{"to": "you@example.org"}\'')


class _OverviewPanels:
    """The parts of the overview page that are refreshed every few seconds."""

    def __init__(self, data: OverviewData) -> None:
        with tiles():
            self._active_runs = FigureTile("Active runs", "Benchmark runs that have been started and have not ended")
            self._ready = FigureTile("Ready jobs")
            self._in_progress = FigureTile("Jobs in progress")
            self._poisoned = FigureTile("Poisoned jobs", POISONED)
            self._workers = FigureTile("Workers")
            self.spent = FigureTile("Cost today (UTC)", COSTS)
        heading("Needs attention", 2)
        self._attention = ui.column().classes("w-full gap-1").props("aria-live=polite")
        self._items: list[tuple[str, str]] | None = None
        heading("Latest benchmark runs", 2)
        no_runs = empty_state("No benchmark runs yet. Save a template and run it, or use the command line:", FIRST_RUN)
        self._runs = TableOrPlaceholder(PageTable("Latest benchmark runs", _RUNS, key=lambda row: row.run.run_id), no_runs)
        heading("Job pools and fleets", 2)
        table = PageTable("Job pools and fleets", _POOLS, key=lambda row: row.pool.pool_id)
        self._pools = TableOrPlaceholder(table, no_pools())
        self.show(data)

    def show(self, data: OverviewData) -> None:
        self._active_runs.show(len(data.active_runs))
        self._ready.show(format_count(*(each.counts.ready for each in data.pools)))
        self._in_progress.show(format_count(*(each.counts.claimed for each in data.pools)))
        self._poisoned.show(sum(each.counts.poisoned for each in data.pools))
        self._workers.show(sum(len(each.workers) for each in data.pools))
        self._runs.show(data.runs)
        self._pools.show(data.pools)
        self._show_attention(attention_items(data))

    def _show_attention(self, found: list[tuple[str, str]]) -> None:
        if found == self._items:
            return
        self._items = found
        self._attention.clear()
        with self._attention:
            for text, href in found:
                with ui.row().classes("items-center gap-2 no-wrap"):
                    ui.icon("error_outline", color="warning").props("aria-hidden=true")
                    ui.link(text, href)
            if not found:
                ui.label("Nothing needs attention.").classes("faint")
