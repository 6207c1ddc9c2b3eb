"""The compare page: two to five runs side by side, with their differences and statistical significance."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from nicegui import ui

from drumbeat.core.errors import DrumbeatError
from drumbeat.core.run import RUN_ENDED, RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.compare.choosing import RunSelector
from drumbeat.web.pages.compare.overlays import overlays
from drumbeat.web.pages.compare.verdicts import verdict
from drumbeat.web.pages.frame import FIRST_RUN, empty_state, error_card, heading, page
from drumbeat.web.pages.runs.listing import FEWEST, MOST

if TYPE_CHECKING:
    from drumbeat.composition.plane import Comparison

_LATEST = 200


def add(app: AppState) -> None:
    @page(app, "/compare", "Compare")
    async def compare_page(runs: str = "") -> None:
        heading("Compare benchmark runs")
        run_ids = list(dict.fromkeys(each for each in runs.split(",") if each))[:MOST]
        ended = [run for run in await app.plane.store.runs.list(limit=_LATEST) if run.status in RUN_ENDED]
        if not ended:
            empty_state("No ended runs yet. A comparison needs at least two:", FIRST_RUN)
            return
        for run_id in run_ids:
            await app.plane.store.runs.get(RunId(run_id))
        RunSelector(ended, run_ids)
        if len(run_ids) < FEWEST:
            ui.label(f"Select {FEWEST} to {MOST} runs. The first is the baseline.").classes("faint")
            return
        column = ui.column().classes("w-full")
        with column:
            ui.spinner(size="lg").props('aria-label="Loading runs"')
        ui.timer(0, partial(_fill, app, run_ids, column), once=True)


async def _fill(app: AppState, run_ids: Sequence[str], column: ui.column) -> None:
    """Compare the runs and show the result. Called after the page is built, because reading runs can take a while."""
    try:
        found = await app.plane.bench().compare([RunId(each) for each in run_ids])
    except DrumbeatError as exc:
        column.clear()
        with column:
            error_card(str(exc))
        return
    column.clear()
    with column:
        _show(app, found)


def _show(app: AppState, found: "Sequence[Comparison]") -> None:
    overlays(app, found)
    for comparison in found:
        verdict(comparison)
