"""Data-quality warnings of a run, the same as in its reports."""

from nicegui import ui

from drumbeat.core.run import Result


def caveats_card(total: Result | None) -> None:
    """Show the data-quality warnings, if there are any. Runs recorded by older versions have none."""
    found = (total.custom_metrics.get("doubts") if total else None) or ()
    if not found:
        return
    with ui.card().props("flat bordered").classes("w-full"):
        ui.label("Data-quality warnings").classes("text-subtitle1")
        with ui.column().classes("gap-1"):
            for caveat in found:
                with ui.row().classes("items-start no-wrap gap-2"):
                    ui.icon("warning", size="sm").classes("text-warning").props('aria-hidden="true"')
                    ui.label(caveat)
