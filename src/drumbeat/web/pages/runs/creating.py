"""A new run from a template."""

from nicegui import ui

from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, say


async def new_run(house: AppState) -> None:
    """A button that asks for a template and leads to the run, ready to be started."""
    templates = {each.template_id: each.name for each in await house.plane.store.templates.list()}
    with ui.dialog().props('aria-label="A new run"') as dialog, ui.card().classes("w-full max-w-md"):
        ui.label("A new run").classes("text-h6").props("role=heading aria-level=2")
        if not templates:
            ui.label("There is no template yet. Make one first.")
            ui.link("Templates", "/templates")
        chosen = ui.select(templates, label="template", value=next(iter(templates), None)).classes("w-full")
        chosen.set_visibility(bool(templates))

        async def make() -> None:
            made = await run_of(house, str(chosen.value))
            ui.navigate.to(f"/runs/{made}")

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            button("Make it", make).set_visibility(bool(templates))
    ui.button("New run", icon="add", on_click=dialog.open).props("no-caps unelevated")


async def run_of(house: AppState, template_id: str) -> str:
    """A run that is ready to be started. Raises InvalidInput, NotFound."""
    desk = house.plane.bench()
    made, preflight = await desk.create(await desk.document(template_id), template_id)
    for warning in preflight.warnings:
        say(warning)
    return made.run_id
