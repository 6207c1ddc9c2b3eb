"""One fleet: its workers, its money, its decisions and why not."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.beat import Beat
from drumbeat.core.errors import DrumbeatError, NotFound
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.core.worker import judge, silence
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, confirmed, say, told
from drumbeat.web.pages.auto_refresh import every
from drumbeat.web.pages.components import Filled, PageTable, TableColumn, chart, chart_options
from drumbeat.web.pages.fleet_money import Alarms, Money
from drumbeat.web.pages.fleet_text import BEATS, SpentFigures, course, show_explanation
from drumbeat.web.pages.frame import empty, heading, page, trail
from drumbeat.web.pages.incremental_charts import GrowingChart

if TYPE_CHECKING:
    from drumbeat.composition.plane import BeatExplanation, FleetStatus

EVERY = 3.0
COUNTED_EVERY = 10.0  #: money asks providers
_SPAN = timedelta(hours=6)
_MOST = 500
_SHOWN = 20
_LAST_BEAT = 2**31 - 1  #: above it no database reads a number as a beat's

_WORKERS = (
    TableColumn(name="worker", read=lambda row: row[1].worker_id),
    TableColumn(name="status", read=lambda row: row[1].standing, is_status=True),
    TableColumn(name="health", read=lambda row: judge(row[1], row[0].now, row[0].pool.thresholds), is_status=True),
    TableColumn(name="silent", label="last heard", read=lambda row: silence(row[1], row[0].now), number=True),
    TableColumn(name="jobs", read=lambda row: row[1].active, number=True),
    TableColumn(name="leaves", label="leaves by (UTC)", read=lambda row: row[1].drain_deadline),
)


async def spent(house: AppState, pool_id: str) -> SpentFigures | None:
    """What a fleet costs, by the provider's prices as the last beat saw them; None where its policy cannot be read."""
    desk = house.plane.fleet(pool_id)
    try:
        return await desk.spent_by(await desk.last_decision())
    except DrumbeatError:
        return None


def add(house: AppState) -> None:
    @page(house, "/fleet/{pool_id}", "Fleet")
    async def one(pool_id: str, beat: int = 0, before: int = 0) -> None:
        desk = house.plane.fleet(pool_id)
        status = await desk.status()
        trail(("Fleet", "/fleet"))
        with ui.row().classes("w-full items-center"):
            heading(pool_id)
            ui.space()
            ui.link("Policy", f"/fleet/{quote(pool_id, safe='')}/policy")
            if status.pool.kind is PoolKind.JOBS:
                ui.link("Its jobs", f"/pools/{quote(pool_id, safe='')}")
        await _stand(house, status)
        beats = await latest(house, pool_id)
        decisions = FleetDecisions(house, pool_id, before)
        await decisions.show(beats)
        reasons = Reasons(house, pool_id, beat)
        await told(lambda: reasons.follow(beats))

        async def decided() -> None:
            last = await house.plane.store.beats.last(PoolId(pool_id))
            if last is not None and last.n != decisions.last:
                seen = await latest(house, pool_id)
                await decisions.show(seen)
                await reasons.follow(seen)

        every(EVERY, decided)


async def _stand(house: AppState, status: "FleetStatus") -> None:
    """Figures, alarms and workers, as the fleet stands now."""
    desk, pool_id = house.plane.fleet(status.pool.pool_id), status.pool.pool_id
    alarms, figures, workers = Alarms(), Money(), _workers(house, status)

    def show(seen: "FleetStatus") -> None:
        alarms.show(seen)
        figures.show(seen)
        workers.show([(seen, worker) for worker in seen.workers])

    async def again() -> None:
        show(await desk.status())

    async def count() -> None:
        figures.show_spent(await spent(house, pool_id))

    show(status)
    await count()
    every(EVERY, again)
    every(COUNTED_EVERY, count)


async def latest(house: AppState, pool_id: str) -> Sequence[Beat]:
    """The last beats, oldest first."""
    beats, last = house.plane.store.beats, await house.plane.store.beats.last(PoolId(pool_id))
    after = max(last.n - _MOST, 0) if last else 0
    return await beats.list(PoolId(pool_id), since=await house.plane.store.now() - _SPAN, after=after)


def _workers(house: AppState, status: "FleetStatus") -> Filled:
    desk, pool_id = house.plane.fleet(status.pool.pool_id), status.pool.pool_id

    async def drain(worker: str) -> None:
        if await confirmed(f"Ask {worker} to finish what it holds and leave?", "Drain"):
            asked = await desk.drain([worker])
            say(f"Asked to drain: {', '.join(asked)}." if asked else f"{worker} was asked before.")

    async def kill(worker: str) -> None:
        if await confirmed(f"End {worker} now? Its jobs go back to the queue.", "Kill"):
            async with house.plane.fleets.spawner(pool_id) as spawner:
                await desk.kill(worker, spawner)
            say(f"{worker} is ended.")

    heading("Workers", 2)
    none = ui.label("No worker is live; the explanation below says why.").classes("faint")
    table = PageTable("Workers", _WORKERS, key=lambda row: row[1].worker_id, deeds={"Drain": drain, "Kill": kill})
    return Filled(table, none)


class FleetDecisions:
    """What beats saw and did: the last ones, or a page of those before a beat that the address names."""

    def __init__(self, house: AppState, pool_id: str, before: int) -> None:
        self._house, self._pool_id, self._before = house, pool_id, before
        self.last = 0
        heading("Decisions", 2)
        none = empty("No beat here: nobody keeps this fleet.", f"drumbeat fleet run {pool_id}")
        self._drawn = chart("Workers wanted and live, and ready jobs, over the last hours", course(()), step=True)
        self._chart = GrowingChart(self._drawn)
        self._table = Filled(PageTable("Decisions", BEATS, key=lambda beat: str(beat.n)), none)
        with ui.row().classes("w-full justify-end"):
            self._newest = ui.link("Newest beats", _at(pool_id))
            self._newer = ui.link("Newer beats", _at(pool_id))
            self._older = ui.link("Older beats", _at(pool_id))

    async def show(self, beats: Sequence[Beat]) -> None:
        """Draw the last hours, and list a page."""
        self.last = beats[-1].n if beats else 0
        self._drawn.set_visibility(bool(beats))
        self._chart.show(chart_options(course(beats), step=True))
        shown = await page_before(self._house, self._pool_id, self._before)
        self._table.show(list(reversed(shown)))
        oldest = await self._house.plane.store.beats.list(PoolId(self._pool_id), limit=1)
        self._show_ways(shown[0].n if shown else 0, oldest[0].n if oldest else 0)

    def _show_ways(self, first: int, oldest: int) -> None:
        self._older.set_visibility(first > oldest)
        self._older.props["href"] = _at(self._pool_id, first)
        self._newest.set_visibility(self._before > 0)
        self._newer.set_visibility(self._before > 0)
        self._newer.props["href"] = _at(self._pool_id, self._before + _SHOWN if self._before + _SHOWN <= self.last else 0)


def _at(pool_id: str, before: int = 0) -> str:
    return f"/fleet/{quote(pool_id, safe='')}" + (f"?before={before}" if before else "")


async def page_before(house: AppState, pool_id: str, before: int) -> Sequence[Beat]:
    """A page of beats before the one of this number, oldest first; 0: the newest page."""
    beats = house.plane.store.beats
    last = await beats.last(PoolId(pool_id))
    end = last.n + 1 if last else 1
    before = min(before, end) if before > 0 else end
    found = await beats.list(PoolId(pool_id), after=max(before - 1 - _SHOWN, 0), limit=_SHOWN)
    return [beat for beat in found if beat.n < before]


class Reasons:
    """A beat explained: the one that was chosen, else the last one; or, when asked, what one would do now."""

    def __init__(self, house: AppState, pool_id: str, chosen: int) -> None:
        self._house, self._pool_id, self._chosen = house, pool_id, chosen
        self._told: int | None = None
        self._follows = True
        heading("Why", 2)
        self._place = ui.column().classes("w-full gap-1").props('role=region aria-label="Explanation"')
        button("What would a beat do now?", self._plan, "help_outline").props("outline")

    async def follow(self, beats: Sequence[Beat]) -> None:
        """Explain the last beat, unless something else is looked at."""
        desk = self._house.plane.fleet(self._pool_id)
        beat = await self._find(beats) or (await desk.status()).last
        if beat is None or beat.n == self._told or not self._follows:
            return
        self._told = beat.n
        try:
            _show(self._place, await desk.explain(beat.at), f"Beat {beat.n}")
        except NotFound as exc:
            self._place.clear()
            with self._place:
                ui.label(str(exc))

    async def _find(self, beats: Sequence[Beat]) -> Beat | None:
        """The beat that was chosen, also where it is older than those at hand."""
        known = next((each for each in beats if each.n == self._chosen), None)
        if known is not None or not 0 < self._chosen < _LAST_BEAT:
            return known
        found = await self._house.plane.store.beats.list(PoolId(self._pool_id), after=self._chosen - 1, limit=1)
        return next((each for each in found if each.n == self._chosen), None)

    async def _plan(self) -> None:
        async with self._house.plane.fleets.spawner(self._pool_id) as spawner:
            found = await self._house.plane.fleet(self._pool_id).plan(spawner)
        self._follows = False
        _show(self._place, found, "What a beat would do now; nothing is done")


def _show(place: ui.column, found: "BeatExplanation", words: str) -> None:
    place.clear()
    with place, ui.card().props("flat bordered").classes("w-full gap-1"):
        ui.label(words).classes("faint")
        show_explanation(found)
