"""The template editor: form or YAML, validation and previews. A template that has been used is read-only."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml
from nicegui import ui

from drumbeat.core.connection import StoredConnection
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.core.run import Template
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, may_change, notify
from drumbeat.web.pages.forms import split_problems
from drumbeat.web.pages.frame import breadcrumbs, heading, page
from drumbeat.web.pages.plain_words import counted
from drumbeat.web.pages.templates_fields import Tree, missing
from drumbeat.web.pages.templates_form import TemplateForm, document_of
from drumbeat.web.pages.templates_preview import show_plan, show_sql

if TYPE_CHECKING:
    from drumbeat.composition.plane import BenchService

_FORM, _YAML = "Form", "YAML"
_ONE_ERROR = "1 field has an error. See the message at the field."
NEW: Tree = {"workload": {"preset": "read-heavy"}}


def add(app: AppState) -> None:
    @page(app, "/templates/new", "Templates")
    async def new() -> None:
        await _show_editor(app, None)

    @page(app, "/templates/{template_id}", "Templates")
    async def edit(template_id: str) -> None:
        await _show_editor(app, await app.plane.store.templates.get(template_id))


async def _show_editor(app: AppState, template: Template | None) -> None:
    breadcrumbs(("Templates", "/templates"))
    heading(template.name if template else "New template")
    if template is not None and template.usage_count:
        used = counted(template.usage_count, "time")
        ui.label(f"Read-only: used {used}. This keeps its runs comparable. Copy it to make changes.").props("role=note")
    connections = await app.plane.store.connections.list()
    Editor(app, template, connections)


class Editor:
    """The editor of a template's document: form or YAML, buttons and previews."""

    def __init__(self, app: AppState, template: Template | None, connections: Sequence[StoredConnection]) -> None:
        self._app, self._template, self._connections = app, template, connections
        self._tree: Tree = (
            document_of(template.name, template.description, template.tags, template.config) if template else dict(NEW)
        )
        self._form: TemplateForm | None = None
        self._text: ui.textarea | None = None
        self._view = ui.toggle([_FORM, _YAML], value=_FORM, on_change=self._switch_view).props('no-caps aria-label="View"')
        self._column = ui.column().classes("w-full")
        self._errors = ui.column().classes("w-full gap-1 text-negative").props("role=alert")
        with ui.row().classes("w-full gap-2"):
            self._buttons()
        self._preview = ui.column().classes("w-full").props('role=region aria-label="Preview" aria-live=polite')
        self._draw()

    @property
    def _is_editable(self) -> bool:
        return may_change() and not (self._template and self._template.usage_count)

    def _buttons(self) -> None:
        if self._template is None or not self._template.usage_count:
            button("Save", self._save, icon="save")
        if self._template is not None:
            button("Copy", self._copy, icon="content_copy")
            button("Create run", self._run, icon="add")
        button("Preview SQL", self._sql, icon="code").props("outline")
        button("Preview run plan", self._plan, icon="checklist").props("outline")

    def _draw(self) -> None:
        self._column.clear()
        self._form = self._text = None
        with self._column:
            if self._view.value == _FORM:
                self._form = TemplateForm(self._app, self._tree, self._connections, enabled=self._is_editable)
            else:
                self._text = ui.textarea("Template (YAML)", value=as_yaml(self._tree))
                self._text.props("outlined autogrow").classes("w-full font-mono")
                if not self._is_editable:
                    self._text.props("readonly")

    async def _switch_view(self) -> None:
        """Switch between form and YAML, unless the document is invalid. Changes typed by read-only users are dropped."""
        try:
            if may_change():
                self._tree = self._form.tree() if self._form else await self._read_text()
        except DrumbeatError as exc:
            self._view.set_value(_FORM if self._form else _YAML)
            self._show_problems(split_problems(str(exc)))
            return
        self._show_problems([])
        self._draw()

    async def _read_text(self) -> Tree:
        text = str(self._text.value if self._text else "")
        document = await self._bench.document(text, is_text=True)
        return {name: value for name, value in document.canonical().items() if value not in (None, {}, [])}

    @property
    def _bench(self) -> "BenchService":
        return self._app.plane.bench()

    def _source(self) -> str:
        return (
            str(self._text.value) if self._text else json.dumps((self._form.tree() if self._form else {}), ensure_ascii=False)
        )

    async def _checked(self) -> Any:
        """Validate and return the document in the editor; if it is invalid, show its errors and return None."""
        try:
            document = await self._bench.document(self._source(), is_text=True)
        except InvalidInput as exc:
            self._show_problems(split_problems(str(exc)))
            return None
        found = missing(document.canonical())
        self._show_problems(found)
        return None if found else document

    def _show_problems(self, found: Sequence[tuple[str, str]]) -> None:
        """Show each validation error of the document at its field; errors without a field are shown above the buttons."""
        rest = self._form.mark(found) if self._form else [f"{path}: {detail}" if path else detail for path, detail in found]
        self._errors.clear()
        with self._errors:
            for line in rest:
                ui.label(line)
            if found and not rest:
                ui.label(_ONE_ERROR if len(found) == 1 else f"{len(found)} fields have errors. See the messages at the fields.")

    async def _save(self) -> None:
        if await self._checked() is None:
            return
        bench, template = self._bench, self._template
        if template is None:
            saved = await bench.add_template(self._source())
        else:
            saved = await bench.change_template(template.template_id, self._source(), seen=bench.revision(template))
        notify(f"Template {saved.name} saved.")
        ui.navigate.to(f"/templates/{saved.template_id}")

    async def _copy(self) -> None:
        if self._template is not None:
            saved = await copy_template(self._app, self._template)
            ui.navigate.to(f"/templates/{saved.template_id}")

    async def _run(self) -> None:
        if self._template is not None:
            await create_run_from(self._app, self._template)

    async def _sql(self) -> None:
        document = await self._checked()
        if document is not None:
            await self._show_preview(lambda: show_sql(self._app, document))

    async def _plan(self) -> None:
        document = await self._checked()
        if document is not None:
            await self._show_preview(lambda: show_plan(self._app, document))

    async def _show_preview(self, show: Any) -> None:
        self._preview.clear()
        with self._preview:
            try:
                await show()
            except DrumbeatError as exc:
                self._show_problems(split_problems(str(exc)))


def as_yaml(tree: Tree) -> str:
    """Return the document as YAML text."""
    filled = {name: value for name, value in tree.items() if value not in (None, [], {})}
    return yaml.safe_dump(json.loads(json.dumps(filled)), sort_keys=False, allow_unicode=True)


async def copy_template(app: AppState, template: Template) -> Template:
    """Copy a template under the next free name."""
    names = {each.name for each in await app.plane.store.templates.list()}
    n = next(n for n in range(2, 10_000) if f"{template.name} ({n})" not in names)
    saved = await app.plane.bench().copy_template(template.template_id, f"{template.name} ({n})")
    notify(f"Template {saved.name} saved.")
    return saved


async def create_run_from(app: AppState, template: Template) -> None:
    """Create a run from a template and open the run's page, where the user can start it; it is not started here."""
    bench = app.plane.bench()
    run, preflight = await bench.create(await bench.document(template.template_id), template.template_id)
    app.run_warnings.add(run.run_id, preflight.warnings)
    ui.navigate.to(f"/runs/{run.run_id}")
