"""Single operations a page at a time: from the store, or from the files workers left on this host."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nicegui import ui

from drumbeat.bench.model import FailureExample
from drumbeat.core.run import RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import told
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.run_result.selection import ORDERS, PAGE, ExecutionSelection, only_failed

_ANY_KIND, _ANY_ERROR = "all kinds", "any, or none"
_NONE = "None: nothing is all that, operations were not recorded, or their files are on other hosts."


class Operations:
    """Chosen by kind, failed or not, how they failed, in either order. What is chosen is in the address."""

    def __init__(
        self,
        house: AppState,
        run_id: RunId,
        columns: Sequence[TableColumn],
        kinds: Sequence[str],
        classes: Iterable[str],
        chosen: ExecutionSelection,
    ) -> None:
        self._house, self._run_id, self._chosen = house, run_id, chosen
        self._ways = {(chosen.error_class, chosen.error), *((each, "") for each in classes)} - {("", "")}
        with ui.row().classes("items-center"):
            choices = {"": _ANY_KIND, **{kind: kind for kind in (*kinds, chosen.kind) if kind}}
            self._kind = ui.select(choices, value=chosen.kind, label="kind", on_change=self._changed).classes("w-48")
            self._error = ui.select(self._errors(), value=_word(chosen.error_class, chosen.error), label="error")
            self._error.classes("w-60").on_value_change(self._changed)
            self._order = ui.select(ORDERS, value=chosen.order, label="order", on_change=self._changed).classes("w-48")
            self._failed = ui.checkbox("failed only", value=chosen.failed_only, on_change=self._changed)
        self._table = PageTable("Single operations", columns, lambda each: f"{each.worker_id} {each.n}")
        self._none = ui.label(_NONE).classes("faint")
        with ui.row().classes("items-center"):
            self._back = ui.button("Earlier", on_click=lambda: self._turn(-1)).props("flat no-caps")
            self._where = ui.label().classes("number")
            self._on = ui.button("Further", on_click=lambda: self._turn(1)).props("flat no-caps")

    def know(self, failures: Iterable[FailureExample]) -> None:
        """Offer these ways to fail too."""
        known = self._ways | {(each.error_class, each.sqlstate) for each in failures if each.kind}
        if known != self._ways:
            self._ways = known
            self._error.set_options(self._errors(), value=self._error.value)

    def _errors(self) -> dict[str, str]:
        return {"": _ANY_ERROR} | {_word(*way): _word(*way).strip() for way in sorted(self._ways)}

    async def opened(self) -> None:
        await told(self._load)

    async def _changed(self) -> None:
        error_class, _, error = str(self._error.value or "").partition(" ")
        kind, failed = str(self._kind.value or ""), only_failed(bool(self._failed.value))
        await self._ask(
            ExecutionSelection(kind=kind, error_class=error_class, error=error, failed=failed, order=str(self._order.value))
        )

    async def _turn(self, by: int) -> None:
        await self._ask(replace(self._chosen, page=str(self._chosen.number + by)))

    async def _ask(self, chosen: ExecutionSelection) -> None:
        """Something else is looked at: the address says so."""
        self._chosen = chosen
        ui.navigate.history.replace(chosen.path(self._run_id))
        await told(self._load)

    async def _load(self) -> None:
        found = await self._house.plane.bench().executions(self._run_id, **self._chosen.filters())
        first = self._chosen.offset
        self._table.show(found[:PAGE])
        self._none.set_visibility(not found)
        self._where.text = f"{first + 1} to {first + min(len(found), PAGE)}" if found else ""
        self._back.set_enabled(first > 0)
        self._on.set_enabled(len(found) > PAGE)


def _word(error_class: str, error: str) -> str:
    """A class and a code as one word to choose; either may be left out."""
    return f"{error_class} {error}" if error else error_class
