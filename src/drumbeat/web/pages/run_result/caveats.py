"""What a reader must know before believing a run's figures, in the words of its reports."""

from nicegui import ui

from drumbeat.core.run import Result


def doubts_card(whole: Result | None) -> None:
    """Nothing where there is nothing to doubt, and for runs of before such were kept."""
    found = (whole.custom_metrics.get("doubts") if whole else None) or ()
    if not found:
        return
    with ui.card().props("flat bordered").classes("w-full"):
        ui.label("Before you believe these figures").classes("text-subtitle1")
        with ui.column().classes("gap-1"):
            for doubt in found:
                with ui.row().classes("items-start no-wrap gap-2"):
                    ui.icon("warning", size="sm").classes("text-warning").props('aria-hidden="true"')
                    ui.label(doubt)
