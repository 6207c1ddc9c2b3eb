"""The dialog that creates a run from a template."""

from nicegui import ui

from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button


async def new_run(app: AppState) -> None:
    """Add the button and its dialog, which creates a run without starting it and opens the run's page."""
    templates = {each.template_id: each.name for each in await app.plane.store.templates.list()}
    with ui.dialog().props('aria-label="New run"') as dialog, ui.card().classes("w-full max-w-md"):
        ui.label("New run").classes("text-h6").props("role=heading aria-level=2")
        if not templates:
            ui.label("No templates yet. Create one first.")
            ui.link("Templates", "/templates")
        template = ui.select(templates, label="Template", value=next(iter(templates), None)).classes("w-full")
        template.set_visibility(bool(templates))

        async def create() -> None:
            ui.navigate.to(f"/runs/{await create_run(app, str(template.value))}")

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            button("Create run", create).set_visibility(bool(templates))
    ui.button("New run", icon="add", on_click=dialog.open).props("no-caps unelevated")


async def create_run(app: AppState, template_id: str) -> str:
    """Create a run without starting it. Returns its id. Raises InvalidInput, NotFound."""
    bench = app.plane.bench()
    run, preflight = await bench.create(await bench.document(template_id), template_id)
    app.run_warnings.add(run.run_id, preflight.warnings)
    return run.run_id
