"""The history of runs: found by what they were, run again, deleted, chosen to compare; and a new one from a template."""

from nicegui import ui

from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import may_change
from drumbeat.web.pages.frame import FIRST_RUN, empty, heading, page
from drumbeat.web.pages.runs.creating import new_run
from drumbeat.web.pages.runs.filters import RunFilters, read_wanted
from drumbeat.web.pages.runs.listing import Listing


def add(house: AppState) -> None:
    @page(house, "/runs", "Runs")
    async def runs_page() -> None:
        with ui.row().classes("items-center w-full"):
            heading("Runs")
            ui.space()
            if may_change():
                await new_run(house)
        wanted = read_wanted(ui.context.client.request.query_params)
        if wanted == RunFilters() and not await house.plane.store.runs.list(limit=1):
            empty("No run yet. Make one from a template, or on the command line.", FIRST_RUN)
            return
        templates = {each.template_id: each.name for each in await house.plane.store.templates.list()}
        listing = Listing(house, wanted, templates)
        await listing.load()
