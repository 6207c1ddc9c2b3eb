"""What a template would do before it does: its SQL, and the plan of a run."""

from datetime import timedelta
from typing import Any

from nicegui import ui

from drumbeat.web.app_state import AppState
from drumbeat.web.pages.components import PageTable, TableColumn, listing, words
from drumbeat.web.pages.frame import heading
from drumbeat.web.pages.templates_values import show_value_sources

_PHASES = (
    TableColumn(name="phase", read=lambda row: row.phase),
    TableColumn(name="takes", read=lambda row: row.duration if row.duration is not None else "as long as it takes"),
)


async def show_sql(house: AppState, document: Any) -> None:
    """The statements each kind of operation would run, made for the table, and where their values come from."""
    found = await house.plane.bench().preview(document)
    heading("Generated SQL", 2)
    for operation in found:
        ui.label(f"{operation.kind}, {operation.weight} %").classes("text-weight-medium")
        for statement in operation.statements:
            listing(statement.sql)
    show_value_sources(found)


async def show_plan(house: AppState, document: Any) -> None:
    """How many workers and connections, how long, at what cost, and what to beware of."""
    found = await house.plane.bench().plan(document)
    heading("Plan", 2)
    most = f", at most {words(found.most_workers)}" if found.most_workers else ", as many as it takes"
    ui.label(
        f"{found.workers} workers at the start{most}; {found.total_connections} connections, {found.cap} a worker at most."
    )
    known = [each.duration for each in found.phases if each.duration is not None]
    ui.label(f"Known phases take {words(sum(known, timedelta()))}.")
    if found.estimated_cost is not None:
        ui.label(f"Estimated cost: {found.estimated_cost:,.2f} {found.currency}.")
    PageTable("Phases", _PHASES, key=lambda row: str(row.phase)).show(found.phases)
    for error in found.errors:
        _line("error_outline", "negative", f"It cannot run: {error}")
    for warning in found.warnings:
        _line("warning_amber", "warning", warning)


def _line(icon: str, colour: str, said: str) -> None:
    with ui.row().classes("items-center gap-2 no-wrap"):
        ui.icon(icon, color=colour).props("aria-hidden=true")
        ui.label(said)
