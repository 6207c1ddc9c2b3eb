"""Templates: found by name and tag, run, copied and deleted."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from nicegui import ui

from drumbeat.bench.model import LoadMode
from drumbeat.core.run import Template
from drumbeat.web.app_state import AppState
from drumbeat.web.databases import DatabaseType, matching_templates
from drumbeat.web.pages import templates_editor
from drumbeat.web.pages.actions import button, confirmed, say
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.frame import empty, heading, page
from drumbeat.web.pages.templates_editor import copied, run_it
from drumbeat.web.pages.templates_fields import get, way_of

_TEMPLATES = (
    TableColumn(name="template", read=lambda row: row.name, href=lambda row: f"/templates/{quote(row.template_id, safe='')}"),
    TableColumn(name="load", label="load mode", read=lambda row: row.config.get("load_mode")),
    TableColumn(name="scaling", read=lambda row: get(row.config, "scaling.mode")),
    TableColumn(name="workload", read=lambda row: _workload(row)),
    TableColumn(
        name="target", loose=True, read=lambda row: get(row.config, "target.connection") or get(row.config, "target.url")
    ),
    TableColumn(name="tags", read=lambda row: ", ".join(row.tags) or None),
    TableColumn(name="used", read=lambda row: row.usage_count, number=True),
    TableColumn(name="last", label="last used (UTC)", read=lambda row: row.last_used_at),
)


def _workload(template: Template) -> str:
    said = template.config.get("workload") or {}
    return str(said.get("standard") or said.get("preset") or way_of(template.config))


def add(house: AppState) -> None:
    templates_editor.add(house)

    @page(house, "/templates", "Templates")
    async def templates(search: str = "", tag: str = "", database: str = "", load_mode: str = "") -> None:
        with ui.row().classes("w-full items-center"):
            heading("Templates")
            ui.space()

            async def new() -> None:
                ui.navigate.to("/templates/new")

            button("New template", new, icon="add")
        found = await matching_templates(house.plane, search, tag, database, load_mode)
        everything = await house.plane.store.templates.list()
        if not everything:
            empty(
                "No template yet: make one here, or keep a file.",
                "drumbeat bench examples\ndrumbeat bench template add examples/find-max.yaml",
            )
            return
        _filters({"search": search, "tag": tag, "database": database, "load_mode": load_mode}, everything)
        if not found:
            ui.label("No template is like that.").classes("faint")
            return
        _table(house, found)


def _filters(given: Mapping[str, str], everything: Sequence[Template]) -> None:
    """What is looked for is in the address, so that it can be linked to."""
    choices: dict[str, tuple[str, str, Sequence[str]]] = {
        "tag": ("Tag", "every tag", sorted({each for template in everything for each in template.tags})),
        "database": ("Database", "every type", list(DatabaseType)),
        "load_mode": ("Load mode", "every mode", list(LoadMode)),
    }
    with ui.row().classes("w-full gap-2"):
        search = ui.input("Search", value=given["search"]).props("outlined dense clearable").classes("w-60")
        chosen = {name: _choice(label, every, words, given[name]) for name, (label, every, words) in choices.items()}

    def look() -> None:
        asked = {name: field.value for name, field in {"search": search, **chosen}.items() if field.value}
        ui.navigate.to(f"/templates?{urlencode(asked)}" if asked else "/templates")

    search.on("keydown.enter", look)
    search.on("clear", look)
    for choice in chosen.values():
        choice.on_value_change(look)


def _choice(label: str, every: str, words: Sequence[str], value: str) -> ui.select:
    known = {"": every, **{str(each): str(each) for each in words}}
    return ui.select(known, value=value if value in known else "", label=label).props("outlined dense").classes("w-44")


def _table(house: AppState, found: Sequence[Template]) -> None:
    async def run(template_id: str) -> None:
        await run_it(house, await house.plane.store.templates.get(template_id))

    async def copy(template_id: str) -> None:
        await copied(house, await house.plane.store.templates.get(template_id))
        ui.navigate.reload()

    async def delete(template_id: str) -> None:
        template = await house.plane.store.templates.get(template_id)
        if await confirmed(f"Delete {template.name}? Runs made from it stay.", "Delete"):
            await house.plane.bench().remove_template(template_id)
            say(f"{template.name} is gone.")
            ui.navigate.reload()

    deeds = {"Run": run, "Copy": copy, "Delete": delete}
    PageTable("Templates", _TEMPLATES, key=lambda row: row.template_id, deeds=deeds).show(found)
