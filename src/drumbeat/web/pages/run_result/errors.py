"""What went wrong: how often by kind, an example of each sort, and the single operations behind it."""

from collections.abc import Sequence

from nicegui import ui

from drumbeat.bench.model import Failure, Watched
from drumbeat.web.house import House
from drumbeat.web.pages.parts import Column, Table
from drumbeat.web.pages.run_live.figures import number, percent
from drumbeat.web.pages.run_result.executions import Operations

_COUNTS: list[Column] = [
    Column(name="kind", read=lambda row: row.kind),
    Column(name="errors", read=lambda row: row.errors, number=True),
    Column(name="share", read=lambda row: percent(row.errors / row.operations), number=True),
]
_EXAMPLES: list[Column] = [
    Column(name="kind", read=lambda each: each.kind or "connecting"),
    Column(name="class", read=lambda each: each.error_class),
    Column(name="sqlstate", label="SQLSTATE", read=lambda each: each.sqlstate),
    Column(name="example", read=lambda each: each.message),
    Column(name="sql", label="SQL", read=lambda each: each.sql),
]
COLUMNS: list[Column] = [
    Column(name="at", read=lambda each: f"{each.started_at:%H:%M:%S.%f}"[:-3]),
    Column(name="worker", read=lambda each: each.worker_id),
    Column(name="connection", read=lambda each: each.connection, number=True),
    Column(name="kind", read=lambda each: each.kind),
    Column(name="ms", read=lambda each: number(each.duration_ms), number=True),
    Column(name="rows", read=lambda each: each.rows, number=True),
    Column(name="error", read=lambda each: f"{each.error_class} {each.error or ''}" if not each.ok else None),
    Column(name="phase", read=lambda each: "warmup" if each.warmup else ""),
]


class Errors:
    """Counts, examples, operations."""

    def __init__(self, house: House, seen: Watched) -> None:
        kinds = [row for row in seen.results if row.worker_id is None and row.kind is not None]
        failed = [row for row in kinds if row.errors]
        ui.label("Errors").classes("text-h6").props("role=heading aria-level=2")
        if failed:
            counts = Table("Errors by kind", _COUNTS, lambda row: str(row.kind))
            counts.show(failed)
        else:
            ui.label("No operation failed in the measurement.").classes("faint")
        self._examples = Table("Examples of errors", _EXAMPLES, lambda each: f"{each}")
        self._examples.element.set_visibility(False)
        self._shown: Sequence[Failure] = ()
        with ui.expansion("Single operations", icon="list").classes("w-full").props("header-class=text-primary") as opened:
            operations = Operations(house, seen.run.run_id, COLUMNS, [str(row.kind) for row in kinds], failed=bool(failed))
        opened.on_value_change(operations.opened)

    def show(self, failures: Sequence[Failure]) -> None:
        if failures != self._shown:
            self._shown = failures
            sorts = {(each.kind, each.error_class, each.sqlstate): each for each in failures}
            self._examples.element.set_visibility(bool(sorts))
            self._examples.show(list(sorts.values()))
