"""Two to five runs side by side: lines over each other, what differs, and whether the difference is shown or only noise."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from nicegui import ui

from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import RUN_ENDED, RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import told
from drumbeat.web.pages.compare.choosing import Choosing
from drumbeat.web.pages.compare.overlays import overlays
from drumbeat.web.pages.compare.verdicts import verdict
from drumbeat.web.pages.frame import FIRST_RUN, empty, heading, page

if TYPE_CHECKING:
    from drumbeat.composition.plane import Comparison

FEWEST, MOST = 2, 5
_LATEST = 200


def add(house: AppState) -> None:
    @page(house, "/compare", "Compare")
    async def compare_page(runs: str = "") -> None:
        heading("Compare")
        chosen = list(dict.fromkeys(each for each in runs.split(",") if each))[:MOST]
        known = [run for run in await house.plane.store.runs.list(limit=_LATEST) if run.status in RUN_ENDED]
        if not known:
            empty("No run has ended yet; two are needed to compare.", FIRST_RUN)
            return
        for run_id in chosen:
            await house.plane.store.runs.get(RunId(run_id))
        Choosing(known, chosen)
        if len(chosen) < FEWEST:
            ui.label(f"Choose {FEWEST} to {MOST} runs; the first is the reference.").classes("faint")
            return
        place = ui.column().classes("w-full")
        with place:
            ui.spinner(size="lg").props('aria-label="The runs are being read"')
        ui.timer(0, lambda: told(partial(_fill, house, chosen, place)), once=True)


async def _fill(house: AppState, chosen: Sequence[str], place: ui.column) -> None:
    """Reading whole runs may take a while; the page is there before."""
    try:
        found = await house.plane.bench().compare([RunId(each) for each in chosen])
    except InvalidInput:
        place.clear()
        raise
    place.clear()
    with place:
        _show(house, found)


def _show(house: AppState, found: "Sequence[Comparison]") -> None:
    overlays(house, found)
    for comparison in found:
        verdict(comparison)
