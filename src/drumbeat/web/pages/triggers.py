"""Triggers: what wakes beats, when each comes due, and a way to pull one now."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nicegui import ui

from drumbeat.control_plane import triggers_file
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.web.house import House
from drumbeat.web.pages.asking import say
from drumbeat.web.pages.frame import empty, heading, page
from drumbeat.web.pages.parts import Column, Table

if TYPE_CHECKING:
    from drumbeat.control_plane import TriggerDesk

_ANY = "every pool"


def add(house: House) -> None:
    @page(house, "/triggers", "Triggers")
    async def triggers() -> None:
        heading("Triggers")
        desk = _desk(house)
        if desk is None:
            empty("This server keeps no triggers: write a triggers.yml and name it.", "drumbeat serve --triggers triggers.yml")
            return
        for problem in await desk.problems():
            with ui.row().classes("items-center gap-2"):
                ui.icon("error_outline", color="warning").props("aria-hidden=true")
                ui.label(problem)
        await _table(house, desk)


def _desk(house: House) -> "TriggerDesk | None":
    """The triggers this server keeps, or would."""
    if house.triggers is not None:
        return house.triggers
    file = house.settings.triggers or triggers_file()
    return house.plane.triggers(file) if file else None


async def _table(house: House, desk: "TriggerDesk") -> None:
    async def fire(name: str) -> None:
        told = await desk.fire(name)
        say(_outcome(name, told))
        table.show(await _rows(house, desk))

    table = Table("Triggers", _TRIGGERS, key=lambda row: row[0].name, deeds={"Fire now": fire})
    table.show(await _rows(house, desk))


async def _rows(house: House, desk: "TriggerDesk") -> list[tuple[Any, Any, Any]]:
    """Each trigger, when its pool last had a beat, and when it comes due."""
    return [(each, await _last_beat(house, each.pool_id), desk.due(each)) for each in desk.triggers]


async def _last_beat(house: House, pool_id: str | None) -> datetime | None:
    """When the pool, or any pool of jobs, was last looked after."""
    store = house.plane.store
    pools = [PoolId(pool_id)] if pool_id else [each.pool_id for each in await store.pools.list(PoolKind.JOBS)]
    beats = [await store.beats.last(each) for each in pools]
    return max((beat.at for beat in beats if beat is not None), default=None)


_TRIGGERS = (
    Column(name="trigger", read=lambda row: row[0].name),
    Column(name="type", read=lambda row: row[0].type),
    Column(name="wakes", read=lambda row: row[0].machine),
    Column(
        name="pool",
        read=lambda row: row[0].pool_id or _ANY,
        href=lambda row: f"/pools/{row[0].pool_id}" if row[0].pool_id else None,
    ),
    Column(name="schedule", read=lambda row: row[0].schedule),
    Column(name="last", label="last beat (UTC)", read=lambda row: row[1]),
    Column(name="due", label="next due (UTC)", read=lambda row: row[2]),
)


def _outcome(name: str, told: Mapping[str, Any]) -> str:
    """What a firing came to, in a line."""
    if not told:
        return f"{name}: there is no pool to look after."
    said = [f"{pool}: {_did(report)}" for pool, report in told.items()]
    return f"{name} was fired. " + "; ".join(said)


def _did(report: Any) -> str:
    actions = report.get("actions") or report.get("done") or ()
    return f"{len(actions)} actions" if actions else str(report.get("why_not") or "nothing to do")
