"""The page of one fleet: workers, costs, decisions and their explanation."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.beat import Beat
from drumbeat.core.errors import DrumbeatError, NotFound
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.core.worker import shown_health, silence
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, confirm, notify, report_errors
from drumbeat.web.pages.auto_refresh import refresh_every
from drumbeat.web.pages.components import PageTable, TableColumn, TableOrPlaceholder, chart, chart_options
from drumbeat.web.pages.fleet_money import Alarms, FleetTiles
from drumbeat.web.pages.fleet_text import BEATS, SpentFigures, show_explanation, worker_series
from drumbeat.web.pages.frame import breadcrumbs, empty_state, heading, page
from drumbeat.web.pages.incremental_charts import GrowingChart

if TYPE_CHECKING:
    from drumbeat.composition.plane import BeatExplanation, FleetStatus

REFRESH_SECONDS = 3.0
COST_REFRESH_SECONDS = 10.0  #: costs are refreshed less often than the rest of the page
_CHART_SPAN = timedelta(hours=6)
_CHART_BEATS = 500
_PAGE = 20
_MAX_BEAT = 2**31 - 1  #: largest beat number that every database accepts

_WORKERS = (
    TableColumn(name="worker", read=lambda row: row[1].worker_id),
    TableColumn(name="status", read=lambda row: row[1].fleet_status, is_status=True),
    TableColumn(name="health", read=lambda row: shown_health(row[1], row[0].now, row[0].pool.thresholds), is_status=True),
    TableColumn(name="silent", label="last heartbeat", read=lambda row: silence(row[1], row[0].now), number=True),
    TableColumn(name="jobs", label="jobs in progress", read=lambda row: row[1].active, number=True),
    TableColumn(name="engine", read=lambda row: row[1].engine),
    TableColumn(name="host", read=lambda row: row[1].place),
    TableColumn(name="leaves", label="drain deadline (UTC)", read=lambda row: row[1].drain_deadline),
    TableColumn(name="problem", read=lambda row: row[1].not_started),
)


async def spending(app: AppState, pool_id: str) -> SpentFigures | None:
    """Return a fleet's costs, at the prices recorded with its last decision; None if its policy cannot be read."""
    fleet = app.plane.fleet(pool_id)
    try:
        return await fleet.spent_by(await fleet.last_decision())
    except DrumbeatError:
        return None


def add(app: AppState) -> None:
    @page(app, "/fleet/{pool_id}", "Fleets")
    async def one(pool_id: str, beat: int = 0, before: int = 0) -> None:
        fleet = app.plane.fleet(pool_id)
        status = await fleet.status()
        breadcrumbs(("Fleets", "/fleet"))
        with ui.row().classes("w-full items-center"):
            heading(pool_id)
            ui.space()
            ui.link("Policy", f"/fleet/{quote(pool_id, safe='')}/policy")
            if status.pool.kind is PoolKind.JOBS:
                ui.link("Jobs", f"/pools/{quote(pool_id, safe='')}")
        await _show_status(app, status)
        beats = await latest_beats(app, pool_id)
        decisions = FleetDecisions(app, pool_id, before)
        await decisions.show(beats)
        reasons = ExplanationPanel(app, pool_id, beat)
        await report_errors(lambda: reasons.follow(beats))

        async def refresh_decisions() -> None:
            last = await app.plane.store.beats.last(PoolId(pool_id))
            if last is not None and last.n != decisions.last:
                newest = await latest_beats(app, pool_id)
                await decisions.show(newest)
                await reasons.follow(newest)

        refresh_every(REFRESH_SECONDS, refresh_decisions)


async def _show_status(app: AppState, status: "FleetStatus") -> None:
    """Show alarms, costs and workers of a fleet, refreshed every few seconds."""
    fleet, pool_id = app.plane.fleet(status.pool.pool_id), status.pool.pool_id
    alarms, money, workers = Alarms(), FleetTiles(), _workers(app, status)

    def show(status: "FleetStatus") -> None:
        alarms.show(status)
        money.show(status)
        workers.show([(status, worker) for worker in status.workers])

    async def refresh() -> None:
        show(await fleet.status())

    async def refresh_cost() -> None:
        money.show_spent(await spending(app, pool_id))

    show(status)
    await refresh_cost()
    refresh_every(REFRESH_SECONDS, refresh)
    refresh_every(COST_REFRESH_SECONDS, refresh_cost)


async def latest_beats(app: AppState, pool_id: str) -> Sequence[Beat]:
    """Return the beats (passes of the autoscaler) of the last hours, oldest first."""
    beats, last = app.plane.store.beats, await app.plane.store.beats.last(PoolId(pool_id))
    after = max(last.n - _CHART_BEATS, 0) if last else 0
    return await beats.list(PoolId(pool_id), since=await app.plane.store.now() - _CHART_SPAN, after=after)


def _workers(app: AppState, status: "FleetStatus") -> TableOrPlaceholder:
    fleet, pool_id = app.plane.fleet(status.pool.pool_id), status.pool.pool_id

    async def drain(worker: str) -> None:
        if await confirm(f"Drain {worker}? It finishes its jobs and stops.", "Drain"):
            draining = await fleet.drain([worker])
            notify(f"Draining {', '.join(draining)}." if draining else f"{worker} is already draining.")

    async def kill(worker: str) -> None:
        requeued = " Its jobs go back to the queue." if status.pool.kind is PoolKind.JOBS else ""
        if await confirm(f"Kill {worker} now?{requeued}", "Kill"):
            async with app.plane.fleets.spawner(pool_id) as spawner:
                await fleet.kill(worker, spawner)
            notify(f"Killed {worker}.")

    heading("Workers", 2)
    none = ui.label("No live workers. The explanation below says why.").classes("faint")
    table = PageTable("Workers", _WORKERS, key=lambda row: row[1].worker_id, actions={"Drain": drain, "Kill": kill})
    return TableOrPlaceholder(table, none)


class FleetDecisions:
    """A chart of recent decisions, and a table with one page of decisions: the newest page, or the page before the beat (pass
    of the autoscaler) whose number is in the URL."""

    def __init__(self, app: AppState, pool_id: str, before: int) -> None:
        self._app, self._pool_id, self._before = app, pool_id, before
        self.last = 0
        heading("Decisions", 2)
        none = empty_state("No decisions yet: no autoscaler runs for this fleet. Start one:", f"drumbeat fleet run {pool_id}")
        with ui.column().classes("w-full gap-0") as self._chart_box:
            self._chart = GrowingChart(chart("Workers and ready jobs, last 6 hours (UTC)", worker_series(())))
        self._table = TableOrPlaceholder(PageTable("Decisions", BEATS, key=lambda beat: str(beat.n)), none)
        with ui.row().classes("w-full justify-end"):
            self._newest = ui.link("Newest decisions", _url(pool_id))
            self._newer = ui.link("Newer decisions", _url(pool_id))
            self._older = ui.link("Older decisions", _url(pool_id))

    async def show(self, beats: Sequence[Beat]) -> None:
        """Draw the chart and fill the table of decisions."""
        self.last = beats[-1].n if beats else 0
        self._chart_box.set_visibility(bool(beats))
        self._chart.show(chart_options(worker_series(beats)))
        shown = await page_before(self._app, self._pool_id, self._before)
        self._table.show(list(reversed(shown)))
        oldest = await self._app.plane.store.beats.list(PoolId(self._pool_id), limit=1)
        self._show_links(shown[0].n if shown else 0, oldest[0].n if oldest else 0)

    def _show_links(self, first: int, oldest: int) -> None:
        self._older.set_visibility(first > oldest)
        self._older.props["href"] = _url(self._pool_id, first)
        self._newest.set_visibility(self._before > 0)
        self._newer.set_visibility(self._before > 0)
        self._newer.props["href"] = _url(self._pool_id, self._before + _PAGE if self._before + _PAGE <= self.last else 0)


def _url(pool_id: str, before: int = 0) -> str:
    return f"/fleet/{quote(pool_id, safe='')}" + (f"?before={before}" if before else "")


async def page_before(app: AppState, pool_id: str, before: int) -> Sequence[Beat]:
    """Return one page of beats (passes of the autoscaler) before beat number ``before``, oldest first; 0: the newest page."""
    beats = app.plane.store.beats
    last = await beats.last(PoolId(pool_id))
    end = last.n + 1 if last else 1
    before = min(before, end) if before > 0 else end
    found = await beats.list(PoolId(pool_id), after=max(before - 1 - _PAGE, 0), limit=_PAGE)
    return [beat for beat in found if beat.n < before]


class ExplanationPanel:
    """Explains the selected beat (pass of the autoscaler), or the latest; a button previews the next decision."""

    def __init__(self, app: AppState, pool_id: str, selected: int) -> None:
        self._app, self._pool_id, self._selected = app, pool_id, selected
        self._explained: int | None = None
        self._follows = True
        heading("Explanation", 2)
        self._column = ui.column().classes("w-full gap-1").props('role=region aria-label="Explanation"')
        button("Preview next decision", self._preview, "help_outline").props("outline")

    async def follow(self, beats: Sequence[Beat]) -> None:
        """Explain the selected beat (autoscaler pass), or the latest if none is selected; does not replace a shown preview."""
        fleet = self._app.plane.fleet(self._pool_id)
        beat = await self._find(beats) or (await fleet.status()).last
        if beat is None or beat.n == self._explained or not self._follows:
            return
        self._explained = beat.n
        try:
            _show(self._column, await fleet.explain(beat.at), f"Decision {beat.n}")
        except NotFound as exc:
            self._column.clear()
            with self._column:
                ui.label(str(exc))

    async def _find(self, beats: Sequence[Beat]) -> Beat | None:
        """Return the selected beat (autoscaler pass), from ``beats`` or the store; None if none is selected or found."""
        known = next((each for each in beats if each.n == self._selected), None)
        if known is not None or not 0 < self._selected < _MAX_BEAT:
            return known
        found = await self._app.plane.store.beats.list(PoolId(self._pool_id), after=self._selected - 1, limit=1)
        return next((each for each in found if each.n == self._selected), None)

    async def _preview(self) -> None:
        async with self._app.plane.fleets.spawner(self._pool_id) as spawner:
            found = await self._app.plane.fleet(self._pool_id).plan(spawner)
        self._follows = False
        _show(self._column, found, "Preview of the next decision; nothing is changed")


def _show(column: ui.column, found: "BeatExplanation", title: str) -> None:
    column.clear()
    with column, ui.card().props("flat bordered").classes("w-full gap-1"):
        ui.label(title).classes("faint")
        show_explanation(found)
