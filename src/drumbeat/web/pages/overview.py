"""The first page: what is under way, and what needs attention."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.job import JobCounts, counted
from drumbeat.core.pool import PoolKind, PoolRow
from drumbeat.core.run import RUN_ENDED, RunStatus
from drumbeat.core.worker import Health, Worker, judge
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.auto_refresh import every
from drumbeat.web.pages.components import FigureTile, Filled, PageTable, TableColumn, lasting, tiles, words
from drumbeat.web.pages.fleet_one import spent
from drumbeat.web.pages.fleet_text import money
from drumbeat.web.pages.frame import FIRST_RUN, empty, heading, page
from drumbeat.web.pages.runs.listing import JudgedRun, run_columns
from drumbeat.web.verdicts import verdict_words

EVERY = 2.0
_COUNTED_EVERY = 10.0  #: money asks providers
_LATEST = 8
_UNDER_WAY = tuple(status for status in RunStatus if status not in RUN_ENDED and status is not RunStatus.PREPARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSummary:
    """One pool at a glance."""

    pool: PoolRow
    counts: JobCounts
    workers: tuple[Worker, ...]
    now: datetime

    @property
    def oldest_waits(self) -> timedelta | None:
        oldest = self.counts.oldest_ready
        return None if oldest is None else max(self.now - oldest, timedelta())

    @property
    def is_paused(self) -> bool:
        return self.pool.paused_until is not None and self.pool.paused_until > self.now

    @property
    def ill(self) -> list[Worker]:
        return [each for each in self.workers if judge(each, self.now, self.pool.thresholds) is not Health.HEALTHY]

    @property
    def href(self) -> str:
        place = "pools" if self.pool.kind is PoolKind.JOBS else "fleet"
        return f"/{place}/{quote(self.pool.pool_id, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewData:
    """Everything the page shows."""

    runs: tuple[JudgedRun, ...]  #: the latest
    under_way: tuple[JudgedRun, ...]
    pools: tuple[PoolSummary, ...]


async def look_around(house: AppState) -> OverviewData:
    """Read everything anew."""
    store = house.plane.store
    pools = [each for each in await store.pools.list() if each.kind is not PoolKind.BENCH]
    return OverviewData(
        runs=await _runs(house, limit=_LATEST),
        under_way=await _runs(house, statuses=_UNDER_WAY),
        pools=tuple([await standing(house, each) for each in pools]),
    )


async def _runs(house: AppState, **filters: Any) -> tuple[JudgedRun, ...]:
    store = house.plane.store
    runs = await store.runs.list(**filters) if store.traits.keeps_runs else ()
    return tuple([JudgedRun(run, await house.verdicts.of(run)) for run in runs])


async def standing(house: AppState, pool: PoolRow) -> PoolSummary:
    """One pool, as it is now."""
    store = house.plane.store
    return PoolSummary(
        pool=pool,
        counts=await store.jobs.counts(pool.pool_id) if pool.kind is PoolKind.JOBS else JobCounts(),
        workers=tuple(await store.workers.list(pool.pool_id, live=True)),
        now=await store.now(),
    )


def needs(sight: OverviewData) -> list[tuple[str, str]]:
    """What needs attention: words, and where to go."""
    found: list[tuple[str, str]] = []
    for each in sight.pools:
        name = each.pool.pool_id
        if each.counts.poisoned:
            found.append((f"{words(each.counts.poisoned)} poisoned jobs in {name}", f"{each.href}?status=poisoned"))
        if each.counts.ready and not each.workers and not each.is_paused:
            waits = f", the oldest for {lasting(each.oldest_waits)}" if each.oldest_waits else ""
            found.append((f"{counted(each.counts.ready)} jobs wait in {name}{waits}, and it has no worker", each.href))
        if each.is_paused:
            found.append((f"{name} is paused", each.href))
        found += [(f"worker {worker.worker_id} of {name} is silent", each.href) for worker in each.ill]
    return found + _runs_in_need(sight)


def _runs_in_need(sight: OverviewData) -> list[tuple[str, str]]:
    """Runs nobody leads, and the latest that failed or missed an objective."""
    orphans = [row for row in sight.under_way if row.judgement.is_orphan]
    bad = [row for row in sight.runs if row.judgement.is_bad]
    return [(f"run {_name(row)} is {row.run.status}: {row.judgement.reason}", _run_href(row)) for row in orphans] + [
        (f"run {_name(row)}: {verdict_words(row.judgement)}: {row.judgement.reason or '–'}", _run_href(row)) for row in bad
    ]


def _name(row: JudgedRun) -> str:
    return row.run.name or row.run.run_id


def _run_href(row: JudgedRun) -> str:
    return f"/runs/{row.run.run_id}"


_RUNS = (
    *run_columns(),
    TableColumn(name="phase", read=lambda row: row.run.phase),
    TableColumn(name="operations", read=lambda row: row.run.operations, number=True),
    TableColumn(name="ops_s", label="ops/s", read=lambda row: row.run.qps, number=True),
    TableColumn(name="started", label="started (UTC)", read=lambda row: row.run.started_at),
)
_POOLS = (
    TableColumn(name="pool", loose=True, read=lambda row: row.pool.pool_id, href=lambda row: row.href),
    TableColumn(name="ready", read=lambda row: counted(row.counts.ready), number=True),
    TableColumn(name="oldest", label="oldest waits", read=lambda row: row.oldest_waits, number=True),
    TableColumn(name="claimed", read=lambda row: counted(row.counts.claimed), number=True),
    TableColumn(name="poisoned", read=lambda row: row.counts.poisoned, number=True),
    TableColumn(name="workers", read=lambda row: _by_status(row.workers)),
)


def _by_status(workers: tuple[Worker, ...]) -> str:
    found = Counter(str(each.status) for each in workers)
    return ", ".join(f"{count} {status}" for status, count in sorted(found.items())) or "none"


def add(house: AppState) -> None:
    @page(house, "/", "Overview")
    async def overview() -> None:
        heading("Overview")
        shown = _Shown(await look_around(house))

        async def again() -> None:
            shown.show(await look_around(house))

        async def count() -> None:
            shown.spent.show(await spent_today(house))

        every(EVERY, again)
        every(_COUNTED_EVERY, count, at_once=True)


async def spent_today(house: AppState) -> str | None:
    """What all fleets have cost today; None where no worker has a price."""
    pools = [each.pool_id for each in await house.plane.store.pools.list() if each.is_scaled]
    found = [each for pool_id in pools if (each := await spent(house, pool_id)) is not None and each.price_per_hour]
    return money(sum(each.spent.day for each in found)) if found else None


def no_pool() -> ui.card:
    return empty("No pool yet: push a job, and its pool is made.", 'drumbeat pool push mail \'{"to": "you@example.org"}\'')


class _Shown:
    """The page's parts, shown anew every few seconds."""

    def __init__(self, sight: OverviewData) -> None:
        with tiles():
            self._under_way = FigureTile("Runs under way")
            self._ready = FigureTile("Jobs ready")
            self._claimed = FigureTile("Jobs in work")
            self._poisoned = FigureTile("Poisoned")
            self._workers = FigureTile("Workers")
            self.spent = FigureTile("Spent today")
        heading("Needs attention", 2)
        self._needs = ui.column().classes("w-full gap-1").props("aria-live=polite")
        self._told: list[tuple[str, str]] | None = None
        heading("Runs", 2)
        no_run = empty("No run yet: keep a template and run it, or", FIRST_RUN)
        self._runs = Filled(PageTable("Latest runs", _RUNS, key=lambda row: row.run.run_id), no_run)
        heading("Pools", 2)
        self._pools = Filled(PageTable("Pools", _POOLS, key=lambda row: row.pool.pool_id), no_pool())
        self.show(sight)

    def show(self, sight: OverviewData) -> None:
        self._under_way.show(len(sight.under_way))
        self._ready.show(counted(*(each.counts.ready for each in sight.pools)))
        self._claimed.show(counted(*(each.counts.claimed for each in sight.pools)))
        self._poisoned.show(sum(each.counts.poisoned for each in sight.pools))
        self._workers.show(sum(len(each.workers) for each in sight.pools))
        self._runs.show(sight.runs)
        self._pools.show(sight.pools)
        self._show_needs(needs(sight))

    def _show_needs(self, found: list[tuple[str, str]]) -> None:
        if found == self._told:
            return
        self._told = found
        self._needs.clear()
        with self._needs:
            for said, href in found:
                with ui.row().classes("items-center gap-2 no-wrap"):
                    ui.icon("error_outline", color="warning").props("aria-hidden=true")
                    ui.link(said, href)
            if not found:
                ui.label("Nothing: all is well.").classes("faint")
