"""The triggers page: when each trigger last fired, when it fires next, and a button to fire it now."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nicegui import ui

from drumbeat.composition.base import triggers_file
from drumbeat.triggers.model import BeatKind
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import notify
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.frame import empty_state, heading, page
from drumbeat.web.pages.plain_words import TRIGGER_ACTIONS, TRIGGER_TYPES, plain

if TYPE_CHECKING:
    from drumbeat.composition.plane import TriggerService

_ALL_POOLS = "all pools"


def add(app: AppState) -> None:
    @page(app, "/triggers", "Triggers")
    async def triggers() -> None:
        heading("Triggers")
        service = _trigger_service(app)
        if service is None:
            empty_state("No triggers configured. Write a triggers.yml, then run:", "drumbeat serve --triggers triggers.yml")
            return
        for problem in await service.problems():
            with ui.row().classes("items-center gap-2"):
                ui.icon("error_outline", color="warning").props("aria-hidden=true")
                ui.label(problem)
        await _table(service)


def _trigger_service(app: AppState) -> "TriggerService | None":
    """Return this server's trigger service; if it has none, a new one for the triggers file; None if there is no such file."""
    if app.triggers is not None:
        return app.triggers
    file = app.settings.triggers or triggers_file()
    return app.plane.triggers(file) if file else None


async def _table(service: "TriggerService") -> None:
    async def fire(name: str) -> None:
        await service.fire(name)
        rows = await _rows(service)
        last = next((last for trigger, last, _ in rows if trigger.name == name), None)
        text, failed = fired_text(name, last)
        notify(text, error=failed)
        table.show(rows)

    table = PageTable("Triggers", _TRIGGERS, key=lambda row: row[0].name, actions={"Fire now": fire})
    table.show(await _rows(service))


def fired_text(name: str, last: Any) -> tuple[str, bool]:
    """Return the message about a trigger that was fired, and whether it failed. ``last``: its recorded outcome, if any."""
    if last is None:
        return f"Fired {name}.", False
    return (f"Fired {name}. {last.outcome}", False) if last.ok else (f"Fired {name}, but it failed: {last.outcome}", True)


async def _rows(service: "TriggerService") -> list[tuple[Any, Any, Any]]:
    """Return each trigger, when and how it last fired (None: never), and when it is due next (None: it has no schedule)."""
    last = await service.last_fired()
    return [(each, last.get(each.name), service.due(each)) for each in service.triggers]


def _schedule_text(trigger: Any) -> str | None:
    return f"{trigger.schedule} ({trigger.timezone or 'UTC'})" if trigger.schedule else None


def pool_href(trigger: Any) -> str | None:
    """Return the path of the page of a trigger's pool or, if the trigger scales a fleet, of its fleet; None for all pools."""
    if trigger.pool_id is None:
        return None
    section = "fleet" if trigger.machine is BeatKind.FLEET else "pools"
    return f"/{section}/{quote(trigger.pool_id, safe='')}"


_TRIGGERS = (
    TableColumn(name="trigger", read=lambda row: row[0].name),
    TableColumn(name="type", label="fired by", read=lambda row: plain(TRIGGER_TYPES, row[0].type)),
    TableColumn(name="machine", label="action", read=lambda row: plain(TRIGGER_ACTIONS, row[0].machine)),
    TableColumn(
        name="pool",
        read=lambda row: row[0].pool_id or _ALL_POOLS,
        href=lambda row: pool_href(row[0]),
    ),
    TableColumn(name="schedule", read=lambda row: _schedule_text(row[0])),
    TableColumn(name="last", label="last fired (UTC)", read=lambda row: row[1].at if row[1] else "never"),
    TableColumn(name="outcome", loose=True, read=lambda row: row[1].outcome if row[1] else None),
    TableColumn(name="due", label="next due (UTC)", read=lambda row: row[2]),
)
