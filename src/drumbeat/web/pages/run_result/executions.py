"""Single operations a page at a time: from the store, or from the files workers left on this host."""

from collections.abc import Sequence

from nicegui import ui

from drumbeat.core.run import RunId
from drumbeat.web.house import House
from drumbeat.web.pages.asking import told
from drumbeat.web.pages.parts import Column, Table

PAGE = 25
_ALL = "all kinds"
_ORDERS = {"duration_ms": "the longest first", "started_at": "the earliest first"}


class Operations:
    """Chosen by kind, failed or not, in either order."""

    def __init__(self, house: House, run_id: RunId, columns: Sequence[Column], kinds: Sequence[str], *, failed: bool) -> None:
        self._house, self._run_id = house, run_id
        self._offset = 0
        with ui.row().classes("items-center"):
            self._kind = ui.select([_ALL, *kinds], value=_ALL, label="kind", on_change=self._anew).classes("w-48")
            self._order = ui.select(_ORDERS, value="duration_ms", label="order", on_change=self._anew).classes("w-48")
            self._failed = ui.checkbox("failed only", value=failed, on_change=self._anew)
        self._table = Table("Single operations", columns, lambda each: f"{each.worker_id} {each.n}")
        self._none = ui.label("None: they were not recorded, or their files are on other hosts.").classes("faint")
        with ui.row().classes("items-center"):
            self._back = ui.button("Earlier", on_click=self._earlier).props("flat no-caps")
            self._where = ui.label().classes("number")
            self._on = ui.button("Further", on_click=self._further).props("flat no-caps")

    async def opened(self) -> None:
        await told(self._load)

    async def _anew(self) -> None:
        self._offset = 0
        await told(self._load)

    async def _earlier(self) -> None:
        self._offset = max(self._offset - PAGE, 0)
        await told(self._load)

    async def _further(self) -> None:
        self._offset += PAGE
        await told(self._load)

    async def _load(self) -> None:
        """One more than is shown is read, to know whether there are more."""
        found = await self._house.plane.bench().executions(
            self._run_id,
            kind=None if self._kind.value == _ALL else self._kind.value,
            ok=False if self._failed.value else None,
            order=self._order.value,
            offset=self._offset,
            limit=PAGE + 1,
        )
        self._table.show(found[:PAGE])
        self._none.set_visibility(not found)
        self._where.text = f"{self._offset + 1} to {self._offset + min(len(found), PAGE)}" if found else ""
        self._back.set_enabled(self._offset > 0)
        self._on.set_enabled(len(found) > PAGE)
