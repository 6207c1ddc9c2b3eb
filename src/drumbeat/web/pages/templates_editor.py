"""One template: edited as a form or as YAML, checked and looked ahead before it is kept; read-only once used."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml
from nicegui import ui

from drumbeat.core.connection import StoredConnection
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.core.run import Template
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, may_change, say
from drumbeat.web.pages.forms import problems
from drumbeat.web.pages.frame import heading, page, trail
from drumbeat.web.pages.templates_fields import Tree, missing
from drumbeat.web.pages.templates_form import TemplateForm, document_of
from drumbeat.web.pages.templates_preview import show_plan, show_sql

if TYPE_CHECKING:
    from drumbeat.composition.plane import BenchService

_FORM, _YAML = "Form", "YAML"
NEW: Tree = {"workload": {"preset": "read-heavy"}}


def add(house: AppState) -> None:
    @page(house, "/templates/new", "Templates")
    async def new() -> None:
        await _shown(house, None)

    @page(house, "/templates/{template_id}", "Templates")
    async def edit(template_id: str) -> None:
        await _shown(house, await house.plane.store.templates.get(template_id))


async def _shown(house: AppState, kept: Template | None) -> None:
    trail(("Templates", "/templates"))
    heading(kept.name if kept else "New template")
    if kept is not None and kept.usage_count:
        ui.label(
            f"Used {kept.usage_count} times: it is read-only, so that its runs stay comparable. Copy it to change it."
        ).props("role=note")
    connections = await house.plane.store.connections.list()
    Editor(house, kept, connections)


class Editor:
    """The document in one of two views, and what may be done with it."""

    def __init__(self, house: AppState, kept: Template | None, connections: Sequence[StoredConnection]) -> None:
        self._house, self._kept, self._connections = house, kept, connections
        self._tree: Tree = document_of(kept.name, kept.description, kept.tags, kept.config) if kept else dict(NEW)
        self._form: TemplateForm | None = None
        self._text: ui.textarea | None = None
        self._view = ui.toggle([_FORM, _YAML], value=_FORM, on_change=self._turn).props('no-caps aria-label="View"')
        self._place = ui.column().classes("w-full")
        self._wrong = ui.column().classes("w-full gap-1 text-negative").props("role=alert")
        with ui.row().classes("w-full gap-2"):
            self._deeds()
        self._ahead = ui.column().classes("w-full").props('role=region aria-label="Preview" aria-live=polite')
        self._draw()

    @property
    def _is_open(self) -> bool:
        return may_change() and not (self._kept and self._kept.usage_count)

    def _deeds(self) -> None:
        if self._kept is None or not self._kept.usage_count:
            button("Save", self._save, icon="save")
        if self._kept is not None:
            button("Copy", self._copy, icon="content_copy")
            button("Run", self._run, icon="play_arrow")
        button("Preview SQL", self._sql, icon="code").props("outline")
        button("Plan", self._plan, icon="checklist").props("outline")

    def _draw(self) -> None:
        self._place.clear()
        self._form = self._text = None
        with self._place:
            if self._view.value == _FORM:
                self._form = TemplateForm(self._house, self._tree, self._connections, enabled=self._is_open)
            else:
                self._text = (
                    ui.textarea("Document", value=written(self._tree)).props("outlined autogrow").classes("w-full font-mono")
                )
                if not self._is_open:
                    self._text.props("readonly")

    async def _turn(self) -> None:
        """Another view of the same document; what cannot be read stays where it is, and what a reader typed is nothing."""
        try:
            if may_change():
                self._tree = self._form.tree() if self._form else await self._read_text()
        except DrumbeatError as exc:
            self._view.set_value(_FORM if self._form else _YAML)
            self._tell(problems(str(exc)))
            return
        self._tell([])
        self._draw()

    async def _read_text(self) -> Tree:
        text = str(self._text.value if self._text else "")
        document = await self._desk.document(text, is_text=True)
        return {name: value for name, value in document.canonical().items() if value not in (None, {}, [])}

    @property
    def _desk(self) -> "BenchService":
        return self._house.plane.bench()

    def _source(self) -> str:
        return (
            str(self._text.value) if self._text else json.dumps((self._form.tree() if self._form else {}), ensure_ascii=False)
        )

    async def _checked(self) -> Any:
        """The document, checked whole; None: it is wrong, and it is said where."""
        try:
            document = await self._desk.document(self._source(), is_text=True)
        except InvalidInput as exc:
            self._tell(problems(str(exc)))
            return None
        found = missing(document.canonical())
        self._tell(found)
        return None if found else document

    def _tell(self, found: Sequence[tuple[str, str]]) -> None:
        """Each problem beside its field, and those without one above the buttons."""
        left = self._form.blame(found) if self._form else [f"{path}: {detail}" if path else detail for path, detail in found]
        self._wrong.clear()
        with self._wrong:
            for line in left:
                ui.label(line)
            if found and not left:
                ui.label(f"{len(found)} fields are wrong; each says how.")

    async def _save(self) -> None:
        if await self._checked() is None:
            return
        desk, kept = self._desk, self._kept
        if kept is None:
            made = await desk.add_template(self._source())
        else:
            made = await desk.change_template(kept.template_id, self._source(), seen=desk.revision(kept))
        say(f"{made.name} is kept.")
        ui.navigate.to(f"/templates/{made.template_id}")

    async def _copy(self) -> None:
        if self._kept is not None:
            made = await copied(self._house, self._kept)
            ui.navigate.to(f"/templates/{made.template_id}")

    async def _run(self) -> None:
        if self._kept is not None:
            await run_it(self._house, self._kept)

    async def _sql(self) -> None:
        document = await self._checked()
        if document is not None:
            await self._look_ahead(lambda: show_sql(self._house, document))

    async def _plan(self) -> None:
        document = await self._checked()
        if document is not None:
            await self._look_ahead(lambda: show_plan(self._house, document))

    async def _look_ahead(self, show: Any) -> None:
        self._ahead.clear()
        with self._ahead:
            try:
                await show()
            except DrumbeatError as exc:
                self._tell(problems(str(exc)))


def written(tree: Tree) -> str:
    """A document as YAML."""
    told = {name: value for name, value in tree.items() if value not in (None, [], {})}
    return yaml.safe_dump(json.loads(json.dumps(told)), sort_keys=False, allow_unicode=True)


async def copied(house: AppState, template: Template) -> Template:
    """A new template like another, under the next free name."""
    names = {each.name for each in await house.plane.store.templates.list()}
    n = next(n for n in range(2, 10_000) if f"{template.name} ({n})" not in names)
    made = await house.plane.bench().copy_template(template.template_id, f"{template.name} ({n})")
    say(f"{made.name} is kept.")
    return made


async def run_it(house: AppState, template: Template) -> None:
    """Prepare a run and go to it; there it is started."""
    desk = house.plane.bench()
    run, _ = await desk.create(await desk.document(template.template_id), template.template_id)
    ui.navigate.to(f"/runs/{run.run_id}")
