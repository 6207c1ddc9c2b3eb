"""The list of runs: filter, rerun, delete, compare, and create a run from a template."""

from nicegui import ui

from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import may_change
from drumbeat.web.pages.frame import FIRST_RUN, empty_state, heading, page
from drumbeat.web.pages.runs.creating import new_run
from drumbeat.web.pages.runs.filters import RunFilters, read_filters
from drumbeat.web.pages.runs.listing import Listing


def add(app: AppState) -> None:
    @page(app, "/runs", "Runs")
    async def runs_page() -> None:
        with ui.row().classes("items-center w-full"):
            heading("Benchmark runs")
            ui.space()
            if may_change():
                await new_run(app)
        filters = read_filters(ui.context.client.request.query_params)
        if filters == RunFilters() and not await app.plane.store.runs.list(limit=1):
            empty_state("No benchmark runs yet. Create one from a template, or on the command line:", FIRST_RUN)
            return
        templates = {each.template_id: each.name for each in await app.plane.store.templates.list()}
        listing = Listing(app, filters, templates)
        await listing.load()
