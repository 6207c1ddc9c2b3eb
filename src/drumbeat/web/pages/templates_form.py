"""A template's editor as a form: the modes show exactly the fields they need."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from drumbeat.bench.model import LoadMode, ScalingMode
from drumbeat.core.connection import StoredConnection
from drumbeat.core.errors import DrumbeatError
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import may_change, say
from drumbeat.web.pages.element_names import given
from drumbeat.web.pages.forms import Field
from drumbeat.web.pages.frame import heading
from drumbeat.web.pages.templates_fields import (
    GUARDRAILS,
    LOAD,
    MORE,
    OBJECTIVES,
    SCALING,
    FieldKind,
    Modes,
    TemplateField,
    Tree,
    Way,
    filled,
    get,
    modes_of,
    put,
    wording,
    workload,
)
from drumbeat.web.pages.templates_operations import PATH as OPERATIONS
from drumbeat.web.pages.templates_operations import OperationRows

_OF_URL, _OF_CONNECTION = "URL", "Connection"
_NARROW = "w-44"
_SWITCH = {True: "on", False: "off"}


class TemplateForm:
    """Fields over a document. ``tree`` gives the document as it is filled in."""

    def __init__(self, house: AppState, tree: Tree, connections: Sequence[StoredConnection], *, enabled: bool) -> None:
        self._house, self._before, self._connections, self._enabled = house, tree, connections, enabled
        self._asked: dict[TemplateField, Field] = {}
        self._shown_first: dict[str, Any] = {}
        self.fields: dict[str, Field] = {}
        self._about()
        self._target()
        self._workload()
        self._load()
        self._scaling()
        self._rest()
        self._turn()
        if not enabled:
            for field in self.fields.values():
                field.props("readonly disable")

    @property
    def modes(self) -> Modes:
        return Modes(
            load=LoadMode(self._load_mode.value), scaling=ScalingMode(self._scaling_mode.value), way=Way(self._way.value)
        )

    def tree(self) -> Tree:
        """The document as it is filled in now."""
        touched = {each.path: _typed(each, field.value) for each, field in self._asked.items() if self._is_touched(each.path)}
        made = filled(self._before, touched, self.modes)
        if self.modes.way is Way.OPERATIONS and self._operations.is_touched:
            put(made, OPERATIONS, self._operations.operations())
        about = self._said_about()
        made = {**about, **{name: value for name, value in made.items() if name not in about}}
        if self._is_touched("target", "target.url", "target.connection"):
            is_url = self._of.value == _OF_URL
            put(made, "target.url", _text(self._url.value) if is_url else None)
            put(made, "target.connection", None if is_url else self._connection.value)
        if self._is_touched("target.table"):
            put(made, "target.table", _text(self._table.value))
        return {name: value for name, value in made.items() if value is not None}

    def _said_about(self) -> Tree:
        tags = [tag.strip() for tag in str(self._tags.value or "").split(",") if tag.strip()]
        typed = {"name": _text(self._name.value), "description": _text(self._description.value), "tags": tags}
        return {name: value if self._is_touched(name) else self._before.get(name) for name, value in typed.items()}

    def _is_touched(self, *paths: str) -> bool:
        """Whether any of these fields holds another value than it was shown with. What nobody touched stays as it is."""
        return any(self.fields[path].value != self._shown_first[path] for path in paths)

    def blame(self, problems: Sequence[tuple[str, str]]) -> list[str]:
        """Put each problem beside its field; answers with those that have none here."""
        placed = [(self._place_of(path, detail), path, detail) for path, detail in problems]
        told = {place: detail for place, _, detail in placed if place}
        for path, field in self.fields.items():
            field.error = told.get(path)
        return [f"{path}: {detail}" if path else detail for place, path, detail in placed if place is None]

    def _place_of(self, path: str, detail: str) -> str | None:
        """The field a problem belongs to: its own, or in a block the one that its words begin with."""
        within = f"{path}.{detail.split(' ', 1)[0].rstrip(':')}"
        return next((each for each in (within, path) if each in self.fields), None)

    def _keep(self, path: str, field: Field) -> Field:
        self.fields[path], self._shown_first[path] = field, field.value
        field.props("outlined dense stack-label")
        return field

    def _about(self) -> None:
        heading("Template", 2)
        tree = self._before
        with ui.row().classes("w-full gap-2"):
            self._name = self._keep("name", ui.input("Name", value=tree.get("name") or "")).classes("w-72")
            self._tags = self._keep(
                "tags", ui.input("Tags, divided by commas", value=", ".join(tree.get("tags") or ()))
            ).classes("w-72")
        self._description = self._keep("description", ui.input("Description", value=tree.get("description") or "")).classes(
            "w-full"
        )

    def _target(self) -> None:
        heading("Database under test", 2)
        named = get(self._before, "target.connection")
        names = list(dict.fromkeys([*(each.name for each in self._connections), *([named] if named else [])]))
        first = next((each.name for each in self._connections if each.is_default), None)
        with ui.row().classes("w-full gap-2 items-start"):
            of = ui.select(
                [_OF_URL, _OF_CONNECTION], value=_OF_CONNECTION if named else _OF_URL, label="By", on_change=self._turn
            )
            self._of = self._keep("target", of).classes("w-36")
            url = ui.input("URL, without a password", value=get(self._before, "target.url") or "")
            self._url = self._keep("target.url", url).classes("w-full max-w-lg")
            connection = ui.select(names, value=named or first, label="Connection", on_change=self._look_for_tables)
            self._connection = self._keep("target.connection", connection).classes("w-60")
            table = get(self._before, "target.table")
            known = [str(table)] if table else []
            picker = ui.select(known, value=table, label="Table", with_input=True, new_value_mode="add-unique", clearable=True)
            self._picker = picker
            self._table = self._keep("target.table", picker).classes("w-60")
            if self._enabled:
                ui.button("Find tables", icon="search", on_click=self._look_for_tables).props("no-caps outline")
        self._tables = ui.label().classes("text-caption faint").props("aria-live=polite")

    async def _look_for_tables(self) -> None:
        """The tables of the database that is named, offered to choose from."""
        by_url, name = self._of.value == _OF_URL, str(self._connection.value or "")
        target = {"url": _text(self._url.value)} if by_url else {"connection": name}
        if not any(target.values()) or not may_change():
            self._tables.text = "Name the database first."
            return
        try:
            found = await self._house.plane.connections().tables_at(target)
        except DrumbeatError as exc:
            say(str(exc), wrong=True)
            return
        names = [f"{each.schema}.{each.name}" if each.schema else each.name for each in found]
        chosen = self._picker.value
        self._picker.set_options([*names, *([chosen] if chosen and chosen not in names else [])], value=chosen)
        self._tables.text = f"It has {len(names)} tables: {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"

    def _workload(self) -> None:
        heading("Workload", 2)
        way = modes_of(self._before).way
        ways = {
            Way.PRESET: "A mix for the table",
            Way.STANDARD: "A standard workload",
            Way.CUSTOM: "SQL of your own, four kinds",
            Way.OPERATIONS: "Operations of your own",
        }
        self._way = self._keep("workload", ui.select(ways, value=way, label="Workload by", on_change=self._turn)).classes(
            "w-72"
        )
        self._group(workload())
        self._operations = OperationRows(get(self._before, OPERATIONS) or (), enabled=self._enabled)
        self._total = ui.label().props("aria-live=polite").classes("text-caption")

    def _load(self) -> None:
        heading("Load", 2)
        mode = modes_of(self._before).load
        select = ui.select([each.value for each in LoadMode], value=mode.value, label="Load mode", on_change=self._turn)
        self._load_mode = self._keep("load_mode", select).classes("w-72")
        self._group(LOAD)

    def _scaling(self) -> None:
        heading("Scaling", 2)
        mode = modes_of(self._before).scaling
        select = ui.select([each.value for each in ScalingMode], value=mode.value, label="Scaling mode", on_change=self._turn)
        self._scaling_mode = self._keep("scaling.mode", select).classes("w-72")
        self._group(SCALING)
        with ui.column().classes("w-full gap-2") as self._guardrails:
            heading("Resource guardrails", 2)
            self._group(GUARDRAILS)

    def _rest(self) -> None:
        with ui.expansion("Service levels", value=bool(self._before.get("slo"))).classes("w-full"):
            self._group(OBJECTIVES)
        with ui.expansion("More").classes("w-full"):
            self._group(MORE)

    def _group(self, asked: Sequence[TemplateField]) -> None:
        with ui.row().classes("w-full gap-2 items-start"):
            for each in asked:
                field = self._keep(each.path, _field(each, get(self._before, each.path)))
                field.classes("w-full" if each.kind is FieldKind.SQL else _NARROW)
                self._asked[each] = field
                if each.path.endswith("_pct") and each.path.startswith("workload."):
                    field.on_value_change(self._count)

    def _turn(self) -> None:
        """Show what the modes need, and nothing else."""
        modes = self.modes
        for each, field in self._asked.items():
            field.set_visibility(each.shown(modes))
        for path, (label, usual) in wording(modes).items():
            given(given(self.fields[path], "label", label), "placeholder", usual)
        self._operations.show(modes.way is Way.OPERATIONS)
        self._guardrails.set_visibility(modes.scaling is not ScalingMode.FIXED)
        self._url.set_visibility(self._of.value == _OF_URL)
        self._connection.set_visibility(self._of.value == _OF_CONNECTION)
        self._count()

    def _count(self) -> None:
        """How far the weights are from a hundred."""
        weights = [
            field.value or 0 for each, field in self._asked.items() if each.path.endswith("_pct") and "custom" in each.path
        ]
        total = sum(weights)
        right = "" if total == 100 else ", and it has to be 100"
        self._total.text = f"Weights total {total:g}{right}."
        self._total.set_visibility(self.modes.way is Way.CUSTOM)


def _field(asked: TemplateField, value: Any) -> Field:
    if asked.kind is FieldKind.CHOICE:
        choices = list(asked.choices)
        return ui.select(choices, value=value if value in choices else None, label=asked.label, clearable=True)
    if asked.kind is FieldKind.SWITCH:
        return ui.select(_SWITCH, value=value, label=asked.label, clearable=True)
    if asked.kind is FieldKind.SQL:
        return ui.textarea(asked.label, value=value or "").props("autogrow")
    if asked.kind is FieldKind.TEXT:
        return ui.input(asked.label, value=value or "", placeholder=asked.usual)
    return ui.number(asked.label, value=value, placeholder=asked.usual)


def _typed(asked: TemplateField, value: Any) -> Any:
    """What a field holds, as a document writes it; None: nothing."""
    if value in (None, ""):
        return None
    if asked.kind is FieldKind.WHOLE and isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() or None if isinstance(value, str) else value


def _text(value: Any) -> str | None:
    return str(value or "").strip() or None


def document_of(name: str, description: str | None, tags: Sequence[str], config: Mapping[str, Any]) -> Tree:
    """A kept template as one document."""
    return {"name": name, "description": description, "tags": list(tags), **config}
