"""Triggers: what wakes beats, when each last fired and comes due, and a way to pull one now."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nicegui import ui

from drumbeat.composition.base import triggers_file
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import say
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.frame import empty, heading, page

if TYPE_CHECKING:
    from drumbeat.composition.plane import TriggerService

_ANY = "every pool"


def add(house: AppState) -> None:
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
        await _table(desk)


def _desk(house: AppState) -> "TriggerService | None":
    """The triggers this server keeps, or would."""
    if house.triggers is not None:
        return house.triggers
    file = house.settings.triggers or triggers_file()
    return house.plane.triggers(file) if file else None


async def _table(desk: "TriggerService") -> None:
    async def fire(name: str) -> None:
        await desk.fire(name)
        rows = await _rows(desk)
        said = next((last.outcome for trigger, last, _ in rows if trigger.name == name and last is not None), "")
        say(f"{name} was fired. {said}")
        table.show(rows)

    table = PageTable("Triggers", _TRIGGERS, key=lambda row: row[0].name, deeds={"Fire now": fire})
    table.show(await _rows(desk))


async def _rows(desk: "TriggerService") -> list[tuple[Any, Any, Any]]:
    """Each trigger, when it last fired, and when it comes due."""
    last = await desk.last_fired()
    return [(each, last.get(each.name), desk.due(each)) for each in desk.triggers]


_TRIGGERS = (
    TableColumn(name="trigger", read=lambda row: row[0].name),
    TableColumn(name="type", read=lambda row: row[0].type),
    TableColumn(name="wakes", read=lambda row: row[0].machine),
    TableColumn(
        name="pool",
        read=lambda row: row[0].pool_id or _ANY,
        href=lambda row: f"/pools/{quote(row[0].pool_id, safe='')}" if row[0].pool_id else None,
    ),
    TableColumn(name="schedule", read=lambda row: row[0].schedule),
    TableColumn(name="last", label="last fired (UTC)", read=lambda row: row[1].at if row[1] else "never"),
    TableColumn(name="outcome", loose=True, read=lambda row: row[1].outcome if row[1] else None),
    TableColumn(name="due", label="next due (UTC)", read=lambda row: row[2]),
)
