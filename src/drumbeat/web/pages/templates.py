"""The list of templates: search, create a run, copy and delete."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote, urlencode

from nicegui import ui

from drumbeat.core.run import Template
from drumbeat.web.app_state import AppState
from drumbeat.web.databases import DatabaseType, matching_templates
from drumbeat.web.pages import templates_editor
from drumbeat.web.pages.actions import button, confirm, notify, report_errors
from drumbeat.web.pages.components import PageTable, TableColumn, TableOrPlaceholder
from drumbeat.web.pages.frame import empty_state, heading, page
from drumbeat.web.pages.plain_words import LOAD_MODES, SCALING_MODES, plain
from drumbeat.web.pages.templates_editor import copy_template, create_run_from
from drumbeat.web.pages.templates_fields import WorkloadType, get, way_of

_TEMPLATES = (
    TableColumn(name="template", read=lambda row: row.name, href=lambda row: f"/templates/{quote(row.template_id, safe='')}"),
    TableColumn(name="load", label="load mode", read=lambda row: plain(LOAD_MODES, row.config.get("load_mode"))),
    TableColumn(name="scaling", label="scaling mode", read=lambda row: plain(SCALING_MODES, get(row.config, "scaling.mode"))),
    TableColumn(name="workload", read=lambda row: _workload(row)),
    TableColumn(
        name="database", loose=True, read=lambda row: get(row.config, "target.connection") or get(row.config, "target.url")
    ),
    TableColumn(name="tags", read=lambda row: ", ".join(row.tags) or None),
    TableColumn(name="used", label="times used", read=lambda row: row.usage_count, number=True),
    TableColumn(name="last", label="last used (UTC)", read=lambda row: row.last_used_at),
)


_WAYS = {WorkloadType.CUSTOM: "custom SQL", WorkloadType.OPERATIONS: "custom operations"}


def _workload(template: Template) -> str:
    workload = template.config.get("workload") or {}
    way = way_of(template.config)
    return str(workload.get("standard") or workload.get("preset") or _WAYS.get(way, way))


def add(app: AppState) -> None:
    templates_editor.add(app)

    @page(app, "/templates", "Templates")
    async def templates(search: str = "", tag: str = "", database: str = "", load_mode: str = "") -> None:
        with ui.row().classes("w-full items-center"):
            heading("Benchmark templates")
            ui.space()

            async def new() -> None:
                ui.navigate.to("/templates/new")

            button("New template", new, icon="add")
        all_templates = await app.plane.store.templates.list()
        if not all_templates:
            empty_state(
                "No templates yet. Create one here, or add a file:",
                "drumbeat bench examples\ndrumbeat bench template add examples/find-max.yaml",
            )
            return
        filters = {"search": search, "tag": tag, "database": database, "load_mode": load_mode}
        place = ui.row().classes("w-full gap-2").props('role=search aria-label="Filter templates"')
        table = TableOrPlaceholder(_table(app), ui.label("No matching templates").classes("faint"))

        async def show(selected: Mapping[str, str]) -> None:
            table.show(await matching_templates(app.plane, **selected))

        with place:
            _filters(filters, all_templates, show)
        await show(filters)


Show = Callable[[Mapping[str, str]], Awaitable[None]]


def _filters(filters: Mapping[str, str], all_templates: Sequence[Template], show: Show) -> None:
    """Add the filter fields; each change is shown at once. The filters are in the URL: a link shows the same templates."""
    tags = sorted({each for template in all_templates for each in template.tags})
    fields: dict[str, tuple[str, str, Mapping[str, str]]] = {
        "tag": ("Tag", "all tags", {each: each for each in tags}),
        "database": ("Database type", "all database types", {each: each for each in DatabaseType}),
        "load_mode": ("Load mode", "all load modes", LOAD_MODES),
    }
    search = ui.input("Name or description contains", value=filters["search"])
    search.props("outlined dense clearable debounce=400").classes("w-60")
    selects = {name: _select(label, none, values, filters[name]) for name, (label, none, values) in fields.items()}

    async def apply() -> None:
        selected = {name: str(field.value or "") for name, field in {"search": search, **selects}.items()}
        query = urlencode({name: value for name, value in selected.items() if value})
        ui.navigate.history.replace("/templates" + (f"?{query}" if query else ""))
        await report_errors(lambda: show(selected))

    for field in (search, *selects.values()):
        field.on_value_change(apply)


def _select(label: str, none: str, values: Mapping[str, str], value: str) -> ui.select:
    choices = {"": none, **{str(each): str(text) for each, text in values.items()}}
    return ui.select(choices, value=value if value in choices else "", label=label).props("outlined dense").classes("w-44")


def _table(app: AppState) -> PageTable:
    async def run(template_id: str) -> None:
        await create_run_from(app, await app.plane.store.templates.get(template_id))

    async def copy(template_id: str) -> None:
        await copy_template(app, await app.plane.store.templates.get(template_id))
        ui.navigate.reload()

    async def delete(template_id: str) -> None:
        template = await app.plane.store.templates.get(template_id)
        if await confirm(f"Delete the template {template.name}? Its runs are kept.", "Delete"):
            await app.plane.bench().remove_template(template_id)
            notify(f"Template {template.name} deleted.")
            ui.navigate.reload()

    actions = {"Create run": run, "Copy": copy, "Delete": delete}
    return PageTable("Templates", _TEMPLATES, key=lambda row: row.template_id, actions=actions)
