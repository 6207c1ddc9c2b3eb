"""The part of the template form for custom operations: kind, weight, SQL and values of each."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from drumbeat.core.errors import InvalidInput
from drumbeat.web.pages.element_names import set_attribute, set_label

PATH = "workload.operations"
HELP = """Values: a JSON list with one of these for each placeholder $1, $2 …
{"key": {"low": 1, "high": 1000}}: an existing key
{"new_key": {"first": 1001}}: a new key, for inserts
{"pool": {"values": ["a", "b"]}}: a value from the list
{"number": {"low": 0, "high": 99}}: a random number
{"text": {"length": 16}}: random letters and digits
{"uuid": {}}: a random UUID
{"now": {}}: the current time
{"same_as": {"index": 0}}: the same as an earlier value of the operation; 0 is the first
For a transaction of several statements, enter a JSON list of {"sql": …, "values": […]} instead of the SQL."""
_READS = {"": "default for its name", "yes": "read", "no": "write"}
_TRUTHS = {"yes": True, "no": False}
_LABELS = {
    "kind": "Name of operation {}", "weight": "Weight of operation {} (%)", "sql": "SQL of operation {}",
    "values": "Values of operation {} (JSON)", "reads": "Operation {} counts as",
}  # fmt: skip
#: the path of an operation in errors, which counts from 0
_FIELD = re.compile(r"workload\.operations[.\[](\d+)\]?(?:\.(\w+))?(.*)")
Operation = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """The input fields of one operation."""

    element: ui.row
    kind: ui.input
    weight: ui.number
    sql: ui.textarea
    values: ui.textarea
    reads: ui.select
    remove: ui.button


class OperationRows:
    """A list with one row for each operation; rows can be added and removed."""

    def __init__(self, operations: Sequence[Mapping[str, Any]], *, enabled: bool) -> None:
        self._enabled = enabled
        self._rows: list[OperationRow] = []
        self._group = set_label(ui.column().classes("w-full gap-2").props("role=group"), "Operations")
        with self._group:
            ui.label(HELP).classes("text-caption faint").style("white-space: pre-line")
            self._list = ui.column().classes("w-full gap-2")
            if enabled:
                ui.button("Add operation", icon="add", on_click=lambda: self._add({})).props("flat no-caps")
        for each in operations:
            self._add(each)
        self._first = self._typed()

    @property
    def is_touched(self) -> bool:
        return self._typed() != self._first

    def show(self, visible: bool) -> None:
        self._group.set_visibility(visible)

    def operations(self) -> list[Operation]:
        """Return the operations as in a template document. Raises InvalidInput for invalid JSON."""
        return [operation_of(n, *typed) for n, typed in enumerate(self._typed())]

    def _typed(self) -> list[tuple[str, Any, str, str, str]]:
        return [
            (
                str(row.kind.value or ""),
                row.weight.value,
                str(row.sql.value or ""),
                str(row.values.value or ""),
                row.reads.value,
            )
            for row in self._rows
        ]

    def _add(self, operation: Mapping[str, Any]) -> None:
        with self._list, ui.row().classes("w-full gap-2 items-start") as element:
            row: OperationRow = OperationRow(
                element=element,
                kind=ui.input(value=operation.get("kind") or "").classes("w-44"),
                weight=ui.number(value=operation.get("weight")).classes("w-44"),
                sql=ui.textarea(value=_sql(operation)).classes("w-full"),
                values=ui.textarea(value=_json_text(operation.get("values"))).classes("w-full"),
                reads=ui.select(_READS, value=_reads(operation)).classes("w-44"),
                remove=ui.button(icon="delete", on_click=lambda: self._remove(row)).props("flat round"),
            )
        row.remove.set_visibility(self._enabled)
        for name in _LABELS:
            getattr(row, name).props("outlined dense stack-label" + ("" if self._enabled else " readonly disable"))
        self._rows.append(row)
        self._number()

    def _remove(self, row: OperationRow) -> None:
        self._rows.remove(row)
        row.element.delete()
        self._number()

    def _number(self) -> None:
        """Set the labels of all rows; they name the position of the row, from 1."""
        for n, row in enumerate(self._rows, 1):
            for name, label in _LABELS.items():
                set_attribute(getattr(row, name), "label", label.format(n))
            set_label(row.remove, f"Remove operation {n}")


def error_text(path: str, detail: str) -> str:
    """Return an error with its place: the label of a field if ``path`` is of an operation, else the path in the document."""
    found = _FIELD.fullmatch(path)
    if found is None:
        return f"{path}: {detail}" if path else detail
    name, inner = "sql" if found[2] == "statements" else found[2] or "", found[3].strip(".")
    label = _LABELS.get(name, "Operation {}" + (f": {name}" if name else "")).format(int(found[1]) + 1)
    return ": ".join(part for part in (label, inner, detail) if part)


def operation_of(n: int, kind: str, weight: Any, sql: str, values: str, reads: str) -> Operation:
    """Create an operation from the typed values. Raises InvalidInput, whose message names the field."""
    path = f"{PATH}[{n}]"
    number = int(weight) if isinstance(weight, float) and weight.is_integer() else weight
    statements = _statements(path, sql)
    other = {"values": _json(f"{path}.values", values), "reads": _TRUTHS.get(reads)}
    operation = {"kind": kind.strip(), "weight": 0 if number is None else number, **statements, **other}
    return {name: value for name, value in operation.items() if value is not None}


def _statements(path: str, sql: str) -> dict[str, Any]:
    """Return the typed SQL as fields of an operation: one statement, or a JSON list of several."""
    if sql.lstrip().startswith("["):
        return {"statements": _json(f"{path}.statements", sql)}
    return {"sql": sql.strip()} if sql.strip() else {}


def _json(path: str, text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError as exc:
        raise InvalidInput(f"{path}: expected a JSON list, got: {exc}") from exc


def _sql(operation: Mapping[str, Any]) -> str:
    return str(operation.get("sql") or "") or _json_text(operation.get("statements"))


def _json_text(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _reads(operation: Mapping[str, Any]) -> str:
    reads = operation.get("reads")
    return "" if reads is None else "yes" if reads else "no"
