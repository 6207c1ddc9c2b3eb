"""The operation log, one page at a time, from the store or from worker files on this host."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nicegui import ui

from drumbeat.bench.model import FailureExample
from drumbeat.core.run import RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import report_errors
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.run_result.selection import ORDERS, PAGE, ExecutionSelection, only_failed

_ALL_KINDS, _ANY_ERROR = "all kinds", "all operations"
_NONE = "No matching operations. They may not be recorded, or their files may be on other hosts."


class Operations:
    """The operation log: a table of operations with filters for kind, error and failure. The filters are in the URL."""

    def __init__(
        self,
        app: AppState,
        run_id: RunId,
        columns: Sequence[TableColumn],
        kinds: Sequence[str],
        classes: Iterable[str],
        selection: ExecutionSelection,
    ) -> None:
        self._app, self._run_id, self._selection = app, run_id, selection
        self._errors_known = {(selection.error_class, selection.error), *((each, "") for each in classes)} - {("", "")}
        with ui.row().classes("items-center"):
            choices = {"": _ALL_KINDS, **{kind: kind for kind in (*kinds, selection.kind) if kind}}
            self._kind = ui.select(choices, value=selection.kind, label="Operation kind", on_change=self._changed).classes(
                "w-48"
            )
            self._error = ui.select(self._errors(), value=_error_text(selection.error_class, selection.error), label="Error")
            self._error.classes("w-60").on_value_change(self._changed)
            self._order = ui.select(ORDERS, value=selection.order, label="Sort by", on_change=self._changed).classes("w-48")
            self._failed = ui.checkbox("Only failed operations", value=selection.failed_only, on_change=self._changed)
        self._table = PageTable("Operation log", columns, lambda each: f"{each.worker_id} {each.n}")
        self._empty = ui.label(_NONE).classes("faint")
        with ui.row().classes("items-center"):
            self._previous = ui.button("Previous", on_click=lambda: self._turn_page(-1)).props("flat no-caps")
            self._range = ui.label().classes("number")
            self._next = ui.button("Next", on_click=lambda: self._turn_page(1)).props("flat no-caps")

    def add_errors(self, failures: Iterable[FailureExample]) -> None:
        """Add these errors to the choices of the error filter."""
        known = self._errors_known | {(each.error_class, each.sqlstate) for each in failures if each.kind}
        if known != self._errors_known:
            self._errors_known = known
            self._error.set_options(self._errors(), value=self._error.value)

    def _errors(self) -> dict[str, str]:
        return {"": _ANY_ERROR} | {_error_text(*error): _error_text(*error).strip() for error in sorted(self._errors_known)}

    async def load(self) -> None:
        """Read and show the current page; errors become notifications."""
        await report_errors(self._load)

    async def _changed(self) -> None:
        error_class, _, error = str(self._error.value or "").partition(" ")
        kind, failed = str(self._kind.value or ""), only_failed(bool(self._failed.value))
        await self._select(
            ExecutionSelection(kind=kind, error_class=error_class, error=error, failed=failed, order=str(self._order.value))
        )

    async def _turn_page(self, by: int) -> None:
        await self._select(replace(self._selection, page=str(self._selection.number + by)))

    async def _select(self, selection: ExecutionSelection) -> None:
        """Change filters or page, update the URL and load the operations."""
        self._selection = selection
        ui.navigate.history.replace(selection.path(self._run_id))
        await self.load()

    async def _load(self) -> None:
        found = await self._app.plane.bench().executions(self._run_id, **self._selection.filters())
        first = self._selection.offset
        self._table.show(found[:PAGE])
        self._empty.set_visibility(not found)
        self._range.text = f"{first + 1} to {first + min(len(found), PAGE)}" if found else ""
        self._previous.set_enabled(first > 0)
        self._next.set_enabled(len(found) > PAGE)


def _error_text(error_class: str, error: str) -> str:
    """Return an error class and an error code as one choice of the filter; the class, the code or both can be empty."""
    return f"{error_class} {error}" if error else error_class
