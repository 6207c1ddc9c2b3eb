"""The errors of a run: counts by kind and class, examples, and the operation log."""

from collections.abc import Mapping, Sequence

from nicegui import ui

from drumbeat.bench.model import FailureExample, LiveRun
from drumbeat.core.run import RunId, error_rate
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.element_names import set_attribute
from drumbeat.web.pages.plain_words import counted
from drumbeat.web.pages.run_live.figures import number, percent
from drumbeat.web.pages.run_result.executions import Operations
from drumbeat.web.pages.run_result.selection import ExecutionSelection, only_failed, read_selection
from drumbeat.web.snapshot import whole_result

_ID = "operations"  #: anchor of the operation log
_SCROLL = f"document.getElementById('{_ID}')?.scrollIntoView()"
_COUNTS: list[TableColumn] = [
    TableColumn(name="kind", label="operation kind", read=lambda row: row.kind),
    TableColumn(name="errors", read=lambda row: row.errors, number=True),
    TableColumn(
        name="share", label="error rate", read=lambda row: percent(error_rate(row.operations, row.errors)), number=True
    ),
]
COLUMNS: list[TableColumn] = [
    TableColumn(name="time", label="time (UTC)", read=lambda each: f"{each.started_at:%H:%M:%S.%f}"[:-3]),
    TableColumn(name="worker", read=lambda each: each.worker_id),
    TableColumn(name="connection", read=lambda each: each.connection, number=True),
    TableColumn(name="kind", label="operation kind", read=lambda each: each.kind),
    TableColumn(name="ms", label="duration (ms)", read=lambda each: number(each.duration_ms), number=True),
    TableColumn(name="rows", read=lambda each: each.rows, number=True),
    TableColumn(name="error", read=lambda each: f"{each.error_class} {each.error or ''}" if not each.ok else None),
    TableColumn(name="phase", read=lambda each: "warmup" if each.warmup else "measurement"),
]


def _link_columns(run_id: RunId) -> tuple[list[TableColumn], list[TableColumn]]:
    """Return the columns of the tables of error classes and of error examples; their cells link to the operation log."""

    def of_class(each: tuple[str, int]) -> str:
        return ExecutionSelection(error_class=each[0]).path(run_id)

    def of_example(each: FailureExample) -> str | None:
        """Return the link to operations with this error in the operation log; None if connecting failed (no operation)."""
        return (
            ExecutionSelection(kind=each.kind, error_class=each.error_class, error=each.sqlstate).path(run_id)
            if each.kind
            else None
        )

    classes = [
        TableColumn(name="class", label="error class", read=lambda each: each[0], href=of_class),
        TableColumn(name="errors", read=lambda each: each[1], number=True),
    ]
    examples = [
        TableColumn(name="kind", label="operation kind", read=lambda each: each.kind or "connecting"),
        TableColumn(name="class", label="error class", read=lambda each: each.error_class, href=of_example),
        TableColumn(name="sqlstate", label="SQLSTATE", read=lambda each: each.sqlstate),
        TableColumn(name="example", label="error message", read=lambda each: each.message),
        TableColumn(name="sql", label="SQL", read=lambda each: each.sql),
    ]
    return classes, examples


class Errors:
    """Shows the errors of a run: counts, examples and the operation log."""

    def __init__(self, app: AppState, watched: LiveRun) -> None:
        kinds = [row for row in watched.results if row.worker_id is None and row.kind is not None]
        failed = [row for row in kinds if row.errors]
        classes: Mapping[str, int] = _classes(watched)
        class_columns, example_columns = _link_columns(watched.run.run_id)
        ui.label("Errors").classes("text-h6").props("role=heading aria-level=2")
        if connects := watched.failed_connects:
            ui.label(f"{counted(connects, 'attempt')} to connect failed during the measurement")
        if failed:
            PageTable("Errors by operation kind", _COUNTS, lambda row: str(row.kind)).show(failed)
        elif not connects:
            ui.label("No errors during the measurement").classes("faint")
        if classes:
            PageTable("Errors by error class", class_columns, lambda each: str(each[0])).show(list(classes.items()))
        self._examples = PageTable("Error examples", example_columns, lambda each: f"{each}")
        self._examples.element.set_visibility(False)
        self._shown: Sequence[FailureExample] = ()
        self._operations = _operations(app, watched, [str(row.kind) for row in kinds], classes, failed=bool(failed))

    def show(self, failures: Sequence[FailureExample]) -> None:
        if failures != self._shown:
            self._shown = failures
            examples = {(each.kind, each.error_class, each.sqlstate): each for each in failures}
            self._examples.element.set_visibility(bool(examples))
            self._examples.show(list(examples.values()))
            self._operations.add_errors(failures)


def _operations(
    app: AppState, watched: LiveRun, kinds: Sequence[str], classes: Mapping[str, int], *, failed: bool
) -> Operations:
    """Add the operation log, collapsed unless the URL selects operations."""
    selected = read_selection(ui.context.client.request.query_params)
    selection = selected or ExecutionSelection(failed=only_failed(failed))
    panel = ui.expansion("Operation log", icon="list", value=selected is not None).classes("w-full")
    with set_attribute(panel.props("header-class=text-primary"), "id", _ID):
        operations = Operations(app, watched.run.run_id, COLUMNS, kinds, classes, selection)
    panel.on_value_change(operations.load)

    async def show() -> None:
        await operations.load()
        ui.run_javascript(_SCROLL)

    if selected is not None:
        ui.timer(0.0, show, once=True)
    return operations


def _classes(watched: LiveRun) -> dict[str, int]:
    """Return how many operations failed during the measurement, by error class; empty if the result has no such counts."""
    total = whole_result(watched)
    classes = total.custom_metrics.get("error_classes") if total else None
    return {str(name): int(count) for name, count in classes.items()} if isinstance(classes, Mapping) else {}
