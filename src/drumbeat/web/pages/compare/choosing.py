"""The field that selects the runs to compare; the selection is in the URL."""

from collections.abc import Sequence

from nicegui import ui

from drumbeat.core.run import Run
from drumbeat.web.pages.runs.listing import FEWEST, MOST


class RunSelector:
    """A field to select runs, and a button that compares them."""

    def __init__(self, runs: Sequence[Run], selected: Sequence[str]) -> None:
        names = {str(run.run_id): _name(run) for run in runs}
        names |= {run_id: run_id for run_id in selected if run_id not in names}
        with ui.row().classes("items-center w-full gap-2"):
            self._runs = ui.select(names, value=list(selected), multiple=True, label="Runs (baseline first)", with_input=True)
            self._runs.classes("grow").style("min-width: min(420px, 100%)").props("use-chips")
            ui.button("Compare", icon="balance", on_click=self._compare).props("no-caps unelevated")

    def _compare(self) -> None:
        selected = list(self._runs.value or ())
        if not FEWEST <= len(selected) <= MOST:
            ui.notify(f"Select {FEWEST} to {MOST} runs.", type="warning")
            return
        ui.navigate.to(f"/compare?runs={','.join(selected)}")


def _name(run: Run) -> str:
    when = f", {run.created_at:%Y-%m-%d %H:%M} UTC" if run.created_at else ""
    return f"{run.name or run.run_id}{when} ({run.run_id})"
