"""Previews of a template: its SQL, and the plan of a run."""

from datetime import timedelta
from typing import Any

from nicegui import ui

from drumbeat.web.app_state import AppState
from drumbeat.web.pages.components import PageTable, TableColumn, as_text, text_block
from drumbeat.web.pages.fleet_text import money
from drumbeat.web.pages.frame import heading
from drumbeat.web.pages.plain_words import PHASES, counted, plain
from drumbeat.web.pages.templates_values import show_value_sources

_PHASES = (
    TableColumn(name="phase", read=lambda row: plain(PHASES, row.phase)),
    TableColumn(name="duration", read=lambda row: row.duration if row.duration is not None else "open-ended"),
)


async def show_sql(app: AppState, document: Any) -> None:
    """Show the SQL statements generated for each kind of operation, and the sources of their values."""
    found = await app.plane.bench().preview(document)
    heading("Generated SQL", 2)
    for operation in found:
        ui.label(f"{operation.kind}, {operation.weight} %").classes("text-weight-medium")
        for statement in operation.statements:
            text_block(statement.sql, "SQL statement")
    show_value_sources(found)


async def show_plan(app: AppState, document: Any) -> None:
    """Show the planned workers, connections, phases and cost of a run, with warnings."""
    found = await app.plane.bench().plan(document)
    heading("Run plan", 2)
    maximum = f"max {as_text(found.most_workers)}" if found.most_workers else "no maximum"
    ui.label(
        f"{counted(found.workers, 'worker')} at the start ({maximum}); "
        f"{counted(found.total_connections, 'connection')}, max {found.cap} per worker."
    )
    known = [each.duration for each in found.phases if each.duration is not None]
    ui.label(f"Total duration of the timed phases: {as_text(sum(known, timedelta()))}.")
    if found.estimated_cost is not None:
        ui.label(f"Estimated cost: {money(found.estimated_cost)} {found.currency}.")
    PageTable("Phases", _PHASES, key=lambda row: str(row.phase)).show(found.phases)
    for error in found.errors:
        _line("error_outline", "negative", f"Cannot run: {error}")
    for warning in found.warnings:
        _line("warning_amber", "warning", warning)


def _line(icon: str, colour: str, text: str) -> None:
    with ui.row().classes("items-center gap-2 no-wrap"):
        ui.icon(icon, color=colour).props("aria-hidden=true")
        ui.label(text)
