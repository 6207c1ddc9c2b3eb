"""One fleet: its workers, its money, its decisions and why not."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.beat import Beat
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.pool import Pool, PoolId, PoolKind
from drumbeat.core.worker import judge, silence
from drumbeat.web.house import House
from drumbeat.web.pages.asking import confirmed, say, told
from drumbeat.web.pages.fleet_seen import BEATS, Spent, course, money, money_of, share_of, show_explanation
from drumbeat.web.pages.frame import empty, heading, page, trail
from drumbeat.web.pages.parts import Column, Table, Tile, chart, tiles

if TYPE_CHECKING:
    from drumbeat.control_plane import Explanation, FleetStatus

EVERY = 3.0
_SPAN = timedelta(hours=6)
_MOST = 500
_SHOWN = 20
PERIODS = ("hour", "day", "month")

_WORKERS = (
    Column(name="worker", read=lambda row: row[1].worker_id),
    Column(name="status", read=lambda row: row[1].status, is_status=True),
    Column(name="health", read=lambda row: judge(row[1], row[0].now, row[0].pool.thresholds), is_status=True),
    Column(name="silent", label="last heard", read=lambda row: silence(row[1], row[0].now), number=True),
    Column(name="jobs", read=lambda row: row[1].active, number=True),
    Column(name="leaves", label="leaves by (UTC)", read=lambda row: row[1].drain_deadline),
)


def is_scaled(pool: Pool) -> bool:
    """Whether a fleet's policy keeps its workers at a number."""
    return pool.kind is PoolKind.FLEET or (pool.kind is PoolKind.JOBS and "policy" in pool.policy)


async def spent(house: House, pool_id: str) -> Spent | None:
    """What a fleet costs; None where its provider cannot be asked."""
    try:
        async with house.plane.fleet_spawner(pool_id) as spawner:
            return await house.plane.fleet(pool_id).spend(spawner)
    except DrumbeatError:
        return None


def add(house: House) -> None:
    @page(house, "/fleet/{pool_id}", "Fleet")
    async def one(pool_id: str, beat: int = 0) -> None:
        desk = house.plane.fleet(pool_id)
        status = await desk.status()
        trail(("Fleet", "/fleet"))
        with ui.row().classes("w-full items-center"):
            heading(pool_id)
            ui.space()
            ui.link("Policy", f"/fleet/{quote(pool_id, safe='')}/policy")
            if status.pool.kind is PoolKind.JOBS:
                ui.link("Its jobs", f"/pools/{quote(pool_id, safe='')}")
        _money(status, await spent(house, pool_id))
        _workers(house, status)
        beats = await latest(house, pool_id)
        _decisions(beats)
        await _reasons(house, pool_id, beats, beat)


async def latest(house: House, pool_id: str) -> Sequence[Beat]:
    """The last beats, oldest first."""
    beats, last = house.plane.store.beats, await house.plane.store.beats.last(PoolId(pool_id))
    after = max(last.n - _MOST, 0) if last else 0
    return await beats.list(PoolId(pool_id), since=await house.plane.store.now() - _SPAN, after=after)


def _money(status: "FleetStatus", found: Spent | None) -> None:
    wanted = status.last.summary.get("wanted") if status.last else None
    with tiles():
        Tile("Live workers", len(status.workers))
        Tile("Wanted", wanted)
        Tile("Burn an hour", money(found.burn_per_hour) if found else None)
        for period in PERIODS:
            with ui.element().classes("tile"):
                Tile(f"Spent this {period}", money_of(found, period))
                share = share_of(found, period) if found else None
                if share is not None:
                    ui.linear_progress(share, show_value=False, color="negative" if share > 0.9 else "primary").props(
                        f'aria-label="Share of this {period}\'s ceiling"'
                    )


def _workers(house: House, status: "FleetStatus") -> None:
    desk, pool_id = house.plane.fleet(status.pool.pool_id), status.pool.pool_id

    async def drain(worker: str) -> None:
        if await confirmed(f"Ask {worker} to finish what it holds and leave?", "Drain"):
            asked = await desk.drain([worker])
            say(f"Asked to drain: {', '.join(asked)}." if asked else f"{worker} was asked before.")

    async def kill(worker: str) -> None:
        if await confirmed(f"End {worker} now? Its jobs go back to the queue.", "Kill"):
            async with house.plane.fleet_spawner(pool_id) as spawner:
                await desk.kill(worker, spawner)
            say(f"{worker} is ended.")

    heading("Workers", 2)
    none = ui.label("No worker is live; the explanation below says why.").classes("faint")
    table = Table("Workers", _WORKERS, key=lambda row: row[1].worker_id, deeds={"Drain": drain, "Kill": kill})

    def show(seen: "FleetStatus") -> None:
        none.set_visibility(not seen.workers)
        table.element.set_visibility(bool(seen.workers))
        table.show([(seen, worker) for worker in seen.workers])

    async def again() -> None:
        show(await desk.status())

    show(status)
    ui.timer(EVERY, again, immediate=False)


def _decisions(beats: Sequence[Beat]) -> None:
    heading("Decisions", 2)
    if not beats:
        empty("No beat in the last hours: nobody keeps this fleet.", "drumbeat fleet run NAME")
        return
    chart("Workers wanted and live, and ready jobs, over the last hours", course(beats), step=True)
    Table("Decisions", BEATS, key=lambda beat: str(beat.n)).show(list(reversed(beats))[:_SHOWN])


async def _reasons(house: House, pool_id: str, beats: Sequence[Beat], chosen: int) -> None:
    """A beat explained, and what one would do now."""
    desk = house.plane.fleet(pool_id)
    heading("Why", 2)
    told_of = next((each for each in beats if each.n == chosen), None)
    place = ui.column().classes("w-full gap-1").props('role=region aria-label="Explanation"')

    async def explain() -> None:
        if beats:
            _show(place, await desk.explain(told_of.at if told_of else None), f"Beat {(told_of or beats[-1]).n}")

    async def plan() -> None:
        async with house.plane.fleet_spawner(pool_id) as spawner:
            _show(place, await desk.plan(spawner), "What a beat would do now; nothing is done")

    await told(explain)
    ui.button("What would a beat do now?", icon="help_outline", on_click=lambda: told(plan)).props("no-caps outline")


def _show(place: ui.column, found: "Explanation", words: str) -> None:
    place.clear()
    with place, ui.card().props("flat bordered").classes("w-full gap-1"):
        ui.label(words).classes("faint")
        show_explanation(found)
