"""What went wrong: how often by kind and class, an example of each sort, and the single operations behind it."""

from collections.abc import Mapping, Sequence

from nicegui import ui

from drumbeat.bench.model import FailureExample, Watched
from drumbeat.core.run import RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.element_names import given
from drumbeat.web.pages.run_live.figures import number, percent
from drumbeat.web.pages.run_result.executions import Operations
from drumbeat.web.pages.run_result.selection import ExecutionSelection, only_failed, read_chosen
from drumbeat.web.snapshot import whole_result

_ID = "operations"  #: where a link to operations leads
_SEEN = f"document.getElementById('{_ID}')?.scrollIntoView()"
_COUNTS: list[TableColumn] = [
    TableColumn(name="kind", read=lambda row: row.kind),
    TableColumn(name="errors", read=lambda row: row.errors, number=True),
    TableColumn(name="share", read=lambda row: percent(row.errors / row.operations), number=True),
]
COLUMNS: list[TableColumn] = [
    TableColumn(name="at", read=lambda each: f"{each.started_at:%H:%M:%S.%f}"[:-3]),
    TableColumn(name="worker", read=lambda each: each.worker_id),
    TableColumn(name="connection", read=lambda each: each.connection, number=True),
    TableColumn(name="kind", read=lambda each: each.kind),
    TableColumn(name="ms", read=lambda each: number(each.duration_ms), number=True),
    TableColumn(name="rows", read=lambda each: each.rows, number=True),
    TableColumn(name="error", read=lambda each: f"{each.error_class} {each.error or ''}" if not each.ok else None),
    TableColumn(name="phase", read=lambda each: "warmup" if each.warmup else ""),
]


def _ways_in(run_id: RunId) -> tuple[list[TableColumn], list[TableColumn]]:
    """Classes and examples, each of which leads to the operations that failed so."""

    def of_class(each: tuple[str, int]) -> str:
        return ExecutionSelection(error_class=each[0]).path(run_id)

    def of_sort(each: FailureExample) -> str | None:
        """None where no operation was begun."""
        return (
            ExecutionSelection(kind=each.kind, error_class=each.error_class, error=each.sqlstate).path(run_id)
            if each.kind
            else None
        )

    classes = [
        TableColumn(name="class", read=lambda each: each[0], href=of_class),
        TableColumn(name="errors", read=lambda each: each[1], number=True),
    ]
    examples = [
        TableColumn(name="kind", read=lambda each: each.kind or "connecting"),
        TableColumn(name="class", read=lambda each: each.error_class, href=of_sort),
        TableColumn(name="sqlstate", label="SQLSTATE", read=lambda each: each.sqlstate),
        TableColumn(name="example", read=lambda each: each.message),
        TableColumn(name="sql", label="SQL", read=lambda each: each.sql),
    ]
    return classes, examples


class Errors:
    """Counts, examples, operations."""

    def __init__(self, house: AppState, seen: Watched) -> None:
        kinds = [row for row in seen.results if row.worker_id is None and row.kind is not None]
        failed = [row for row in kinds if row.errors]
        classes: Mapping[str, int] = _classes(seen)
        by_class, by_sort = _ways_in(seen.run.run_id)
        ui.label("Errors").classes("text-h6").props("role=heading aria-level=2")
        if failed:
            PageTable("Errors by kind", _COUNTS, lambda row: str(row.kind)).show(failed)
        else:
            ui.label("No operation failed in the measurement.").classes("faint")
        if classes:
            PageTable("Errors by class", by_class, lambda each: str(each[0])).show(list(classes.items()))
        self._examples = PageTable("Examples of errors", by_sort, lambda each: f"{each}")
        self._examples.element.set_visibility(False)
        self._shown: Sequence[FailureExample] = ()
        self._operations = _operations(house, seen, [str(row.kind) for row in kinds], classes, failed=bool(failed))

    def show(self, failures: Sequence[FailureExample]) -> None:
        if failures != self._shown:
            self._shown = failures
            sorts = {(each.kind, each.error_class, each.sqlstate): each for each in failures}
            self._examples.element.set_visibility(bool(sorts))
            self._examples.show(list(sorts.values()))
            self._operations.know(failures)


def _operations(
    house: AppState, seen: Watched, kinds: Sequence[str], classes: Mapping[str, int], *, failed: bool
) -> Operations:
    """Folded away, unless the address asks for some of them."""
    asked = read_chosen(ui.context.client.request.query_params)
    chosen = asked or ExecutionSelection(failed=only_failed(failed))
    folded = ui.expansion("Single operations", icon="list", value=asked is not None).classes("w-full")
    with given(folded.props("header-class=text-primary"), "id", _ID):
        operations = Operations(house, seen.run.run_id, COLUMNS, kinds, classes, chosen)
    folded.on_value_change(operations.opened)

    async def show() -> None:
        await operations.opened()
        ui.run_javascript(_SEEN)

    if asked is not None:
        ui.timer(0.0, show, once=True)
    return operations


def _classes(seen: Watched) -> dict[str, int]:
    """How many operations failed of each class in the measurement, as far as the result kept it."""
    whole = whole_result(seen)
    kept = whole.custom_metrics.get("error_classes") if whole else None
    return {str(name): int(count) for name, count in kept.items()} if isinstance(kept, Mapping) else {}
