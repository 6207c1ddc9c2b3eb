"""The template form, which shows the fields that the selected modes need."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from drumbeat.bench.model import LoadMode, ScalingMode
from drumbeat.core.connection import StoredConnection
from drumbeat.core.errors import DrumbeatError
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import may_change, notify
from drumbeat.web.pages.element_names import set_attribute
from drumbeat.web.pages.forms import Field
from drumbeat.web.pages.frame import heading
from drumbeat.web.pages.plain_words import LOAD_MODES, SCALING_MODES, counted
from drumbeat.web.pages.templates_fields import (
    CHOICE_TEXTS,
    GUARDRAILS,
    LOAD,
    MORE,
    OBJECTIVES,
    SCALING,
    FieldKind,
    Modes,
    TemplateField,
    Tree,
    WorkloadType,
    field_labels,
    filled,
    get,
    modes_of,
    put,
    workload,
)
from drumbeat.web.pages.templates_operations import PATH as OPERATIONS, OperationRows, error_text

_BY_URL, _BY_CONNECTION = "URL", "Saved connection"
_MOST_LETTERS = 36  #: longer labels get a wider field
_SWITCH = {True: "on", False: "off"}


class TemplateForm:
    """The input fields of a template document. ``tree`` returns the document as filled in."""

    def __init__(self, app: AppState, tree: Tree, connections: Sequence[StoredConnection], *, enabled: bool) -> None:
        self._app, self._before, self._connections, self._enabled = app, tree, connections, enabled
        self._inputs: dict[TemplateField, Field] = {}
        self._initial: dict[str, Any] = {}
        self.fields: dict[str, Field] = {}
        self._add_about()
        self._add_target()
        self._add_workload()
        self._add_load()
        self._add_scaling()
        self._add_rest()
        self._update()
        if not enabled:
            for field in self.fields.values():
                field.props("readonly disable")

    @property
    def modes(self) -> Modes:
        return Modes(
            load=LoadMode(self._load_mode.value),
            scaling=ScalingMode(self._scaling_mode.value),
            way=WorkloadType(self._way.value),
        )

    def tree(self) -> Tree:
        """Return the document as filled in now."""
        touched = {each.path: _typed(each, field.value) for each, field in self._inputs.items() if self._is_touched(each.path)}
        made = filled(self._before, touched, self.modes)
        if self.modes.way is WorkloadType.OPERATIONS and self._operations.is_touched:
            put(made, OPERATIONS, self._operations.operations())
        about = self._read_about()
        made = {**about, **{name: value for name, value in made.items() if name not in about}}
        if self._is_touched("target", "target.url", "target.connection"):
            is_url = self._target_by.value == _BY_URL
            put(made, "target.url", _text(self._url.value) if is_url else None)
            put(made, "target.connection", None if is_url else self._connection.value)
        if self._is_touched("target.table"):
            put(made, "target.table", _text(self._table.value))
        return {name: value for name, value in made.items() if value is not None}

    def _read_about(self) -> Tree:
        tags = [tag.strip() for tag in str(self._tags.value or "").split(",") if tag.strip()]
        typed = {"name": _text(self._name.value), "description": _text(self._description.value), "tags": tags}
        return {name: value if self._is_touched(name) else self._before.get(name) for name, value in typed.items()}

    def _is_touched(self, *paths: str) -> bool:
        """Whether the user changed any of these fields. Unchanged fields keep their value in the document."""
        return any(self.fields[path].value != self._initial[path] for path in paths)

    def mark(self, problems: Sequence[tuple[str, str]]) -> list[str]:
        """Show each validation error at its field. Returns the errors that belong to no field of the form."""
        located = [(self._field_of(path, detail), path, detail) for path, detail in problems]
        errors = {target: detail for target, _, detail in located if target}
        for path, field in self.fields.items():
            field.error = errors.get(path)
        return [error_text(path, detail) for target, path, detail in located if target is None]

    def _field_of(self, path: str, detail: str) -> str | None:
        """Return the path of the form field that an error is about (``path`` or a field inside it); None if there is none."""
        nested = f"{path}.{detail.split(' ', 1)[0].rstrip(':')}"
        return next((each for each in (nested, path) if each in self.fields), None)

    def _register(self, path: str, field: Field) -> Field:
        self.fields[path], self._initial[path] = field, field.value
        field.props("outlined dense stack-label")
        return field

    def _add_about(self) -> None:
        heading("Template", 2)
        tree = self._before
        with ui.row().classes("w-full gap-2"):
            self._name = self._register("name", ui.input("Name", value=tree.get("name") or "")).classes("w-72")
            self._tags = self._register(
                "tags", ui.input("Tags (comma-separated)", value=", ".join(tree.get("tags") or ()))
            ).classes("w-72")
        self._description = self._register("description", ui.input("Description", value=tree.get("description") or "")).classes(
            "w-full"
        )

    def _add_target(self) -> None:
        heading("Database under test", 2)
        named = get(self._before, "target.connection")
        names = list(dict.fromkeys([*(each.name for each in self._connections), *([named] if named else [])]))
        first = next((each.name for each in self._connections if each.is_default), None)
        with ui.row().classes("w-full gap-2 items-start"):
            target_by = ui.select(
                [_BY_URL, _BY_CONNECTION],
                value=_BY_CONNECTION if named else _BY_URL,
                label="Connect with",
                on_change=self._update,
            )
            self._target_by = self._register("target", target_by).classes("w-36")
            url = ui.input("URL (without password)", value=get(self._before, "target.url") or "")
            self._url = self._register("target.url", url).classes("w-full max-w-lg")
            connection = ui.select(names, value=named or first, label=_BY_CONNECTION, on_change=self._find_tables)
            self._connection = self._register("target.connection", connection).classes("w-60")
            table = get(self._before, "target.table")
            known = [str(table)] if table else []
            picker = ui.select(known, value=table, label="Table", with_input=True, new_value_mode="add-unique", clearable=True)
            self._picker = picker
            self._table = self._register("target.table", picker).classes("w-60")
            if self._enabled:
                ui.button("Find tables", icon="search", on_click=self._find_tables).props("no-caps outline")
        self._tables_found = ui.label().classes("text-caption faint").props("aria-live=polite")

    async def _find_tables(self) -> None:
        """Read the tables of the database and offer them in the table field."""
        by_url, name = self._target_by.value == _BY_URL, str(self._connection.value or "")
        target = {"url": _text(self._url.value)} if by_url else {"connection": name}
        if not any(target.values()) or not may_change():
            self._tables_found.text = "Enter a URL or select a saved connection first."
            return
        try:
            found = await self._app.plane.connections().tables_at(target)
        except DrumbeatError as exc:
            notify(str(exc), error=True)
            return
        names = [each.reference for each in found]
        current = self._picker.value
        self._picker.set_options([*names, *([current] if current and current not in names else [])], value=current)
        self._tables_found.text = (
            f"Found {counted(len(names), 'table')}: {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"
        )

    def _add_workload(self) -> None:
        heading("Workload", 2)
        way = modes_of(self._before).way
        ways = {
            WorkloadType.PRESET: "Preset read/write mix",
            WorkloadType.STANDARD: "Standard benchmark (TPC-B, YCSB, TPC-C …)",
            WorkloadType.CUSTOM: "Custom SQL for lookup, scan, insert and update",
            WorkloadType.OPERATIONS: "Custom operations",
        }
        self._way = self._register(
            "workload", ui.select(ways, value=way, label="Workload type", on_change=self._update)
        ).classes("w-full max-w-md")
        self._add_group(workload())
        self._operations = OperationRows(get(self._before, OPERATIONS) or (), enabled=self._enabled)
        self._total_label = ui.label().props("aria-live=polite").classes("text-caption")

    def _add_load(self) -> None:
        heading("Load", 2)
        mode = modes_of(self._before).load
        select = ui.select(dict(LOAD_MODES), value=mode.value, label="Load mode", on_change=self._update)
        self._load_mode = self._register("load_mode", select).classes("w-full max-w-md")
        self._add_group(LOAD)

    def _add_scaling(self) -> None:
        heading("Scaling", 2)
        mode = modes_of(self._before).scaling
        select = ui.select(dict(SCALING_MODES), value=mode.value, label="Scaling mode", on_change=self._update)
        self._scaling_mode = self._register("scaling.mode", select).classes("w-72")
        self._add_group(SCALING)
        with ui.column().classes("w-full gap-2") as self._guardrails:
            heading("Resource guardrails (worker hosts)", 2)
            self._add_group(GUARDRAILS)

    def _add_rest(self) -> None:
        with ui.expansion("Objectives (SLO)", value=bool(self._before.get("slo"))).classes("w-full"):
            self._add_group(OBJECTIVES)
        with ui.expansion("Advanced settings").classes("w-full"):
            self._add_group(MORE)

    def _add_group(self, specs: Sequence[TemplateField]) -> None:
        with ui.row().classes("w-full gap-2 items-start"):
            for each in specs:
                field = self._register(each.path, _field(each, get(self._before, each.path)))
                is_wide = each.kind is FieldKind.TEXT or len(each.label) > _MOST_LETTERS
                field.classes("w-full" if each.kind is FieldKind.SQL else "w-full max-w-md" if is_wide else "w-60")
                self._inputs[each] = field
                if each.path.endswith("_pct") and each.path.startswith("workload."):
                    field.on_value_change(self._show_total)

    def _update(self) -> None:
        """Show only the fields that the selected load mode, scaling mode and workload type need."""
        modes = self.modes
        for each, field in self._inputs.items():
            field.set_visibility(each.shown(modes))
        for path, (label, hint) in field_labels(modes, self._before).items():
            set_attribute(set_attribute(self.fields[path], "label", label), "placeholder", hint)
        self._operations.show(modes.way is WorkloadType.OPERATIONS)
        self._guardrails.set_visibility(modes.scaling is not ScalingMode.FIXED)
        self._url.set_visibility(self._target_by.value == _BY_URL)
        self._connection.set_visibility(self._target_by.value == _BY_CONNECTION)
        self._show_total()

    def _show_total(self) -> None:
        """Show the sum of the weights (%) of the custom kinds of operations, which must be 100."""
        weights = [
            field.value or 0 for each, field in self._inputs.items() if each.path.endswith("_pct") and "custom" in each.path
        ]
        total = sum(weights)
        hint = "" if total == 100 else " (must be 100 %)"
        self._total_label.text = f"Total weight: {total:g} %{hint}"
        self._total_label.set_visibility(self.modes.way is WorkloadType.CUSTOM)


def _field(spec: TemplateField, value: Any) -> Field:
    if spec.kind is FieldKind.CHOICE:
        choices = {each: CHOICE_TEXTS.get(each, each) for each in spec.choices}
        chosen = value if value in choices else None
        return _with_default(ui.select(choices, value=chosen, label=spec.label, clearable=True), spec)
    if spec.kind is FieldKind.SWITCH:
        return _with_default(ui.select(_SWITCH, value=value, label=spec.label, clearable=True), spec)
    if spec.kind is FieldKind.SQL:
        return ui.textarea(spec.label, value=value or "").props("autogrow")
    if spec.kind is FieldKind.TEXT:
        return ui.input(spec.label, value=value or "", placeholder=spec.hint)
    return ui.number(spec.label, value=value, placeholder=spec.hint)


def _with_default(select: ui.select, spec: TemplateField) -> ui.select:
    """Show the default below a select field, which has no placeholder."""
    return set_attribute(select, "hint", f"Default: {CHOICE_TEXTS.get(spec.hint, spec.hint)}") if spec.hint else select


def _typed(spec: TemplateField, value: Any) -> Any:
    """Convert what the user entered in a field to the value stored in a document; None if the field is empty."""
    if value in (None, ""):
        return None
    if spec.kind is FieldKind.WHOLE and isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() or None if isinstance(value, str) else value


def _text(value: Any) -> str | None:
    return str(value or "").strip() or None


def document_of(name: str, description: str | None, tags: Sequence[str], config: Mapping[str, Any]) -> Tree:
    """Return a stored template as one document."""
    return {"name": name, "description": description, "tags": list(tags), **config}
