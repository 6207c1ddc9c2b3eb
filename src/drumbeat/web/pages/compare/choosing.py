"""Which runs are compared; the address keeps it."""

from collections.abc import Sequence

from nicegui import ui

from drumbeat.core.run import Run

FEWEST, MOST = 2, 5


class Choosing:
    """A field of many runs, and a button that goes there."""

    def __init__(self, known: Sequence[Run], chosen: Sequence[str]) -> None:
        names = {str(run.run_id): _name(run) for run in known}
        names |= {run_id: run_id for run_id in chosen if run_id not in names}
        with ui.row().classes("items-center w-full gap-2"):
            self._runs = ui.select(names, value=list(chosen), multiple=True, label="runs, the reference first", with_input=True)
            self._runs.classes("grow").style("min-width: min(420px, 100%)").props("use-chips")
            ui.button("Compare", icon="balance", on_click=self._go).props("no-caps unelevated")

    def _go(self) -> None:
        chosen = list(self._runs.value or ())
        if not FEWEST <= len(chosen) <= MOST:
            ui.notify(f"Choose {FEWEST} to {MOST} runs.", type="warning")
            return
        ui.navigate.to(f"/compare?runs={','.join(chosen)}")


def _name(run: Run) -> str:
    when = f", {run.created_at:%Y-%m-%d %H:%M}" if run.created_at else ""
    return f"{run.name or run.run_id}{when} ({run.run_id})"
