"""The schedules of a pool, on its page: when they are due next, and buttons that pause, resume and remove them."""

from collections.abc import Sequence

from nicegui import ui

from drumbeat.client import ScheduleStatus
from drumbeat.core.pool import PoolId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import confirm, notify
from drumbeat.web.pages.components import PageTable, TableColumn, TableOrPlaceholder
from drumbeat.web.pages.frame import heading
from drumbeat.web.pages.plain_words import MISSED_TICKS, plain

_SCHEDULES = (
    TableColumn(name="schedule", loose=True, read=lambda row: row.name),
    TableColumn(name="when", loose=True, read=lambda row: row.schedule.timing),
    TableColumn(name="type", loose=True, read=lambda row: row.schedule.options.get("type")),
    TableColumn(name="missed", label="missed runs", read=lambda row: plain(MISSED_TICKS, row.schedule.missed)),
    TableColumn(name="status", read=lambda row: "paused" if row.schedule.paused else "active", is_status=True),
    TableColumn(name="last", label="last due (UTC)", read=lambda row: row.last),
    TableColumn(name="next", label="next due (UTC)", loose=True, read=lambda row: _ticks(row) or None),
)


def _ticks(row: ScheduleStatus) -> str:
    return ", ".join(f"{tick:%Y-%m-%d %H:%M:%S}" for tick in row.upcoming)


class SchedulePanel:
    """The table of a pool's schedules, and a message for each reason why their jobs are not pushed."""

    def __init__(self, app: AppState, pool_id: PoolId) -> None:
        self._app, self._schedules = app, app.plane.pool(pool_id).schedules
        heading("Schedules", 2)
        self._problem = ui.label("").props("role=status").classes("text-warning").style("white-space: pre-line")
        none = ui.label("No schedules. Add one with: drumbeat pool schedule add").classes("faint")
        actions = {"Pause": self._pause, "Resume": self._resume, "Remove": self._remove}
        table = PageTable("Schedules", _SCHEDULES, key=lambda row: row.name, actions=actions)
        self._table = TableOrPlaceholder(table, none)

    async def refresh(self) -> None:
        """Read the schedules and show them."""
        self._show(await self._schedules.list())

    def _show(self, rows: Sequence[ScheduleStatus]) -> None:
        problems = dict.fromkeys(row.problem for row in rows if row.problem and not row.schedule.paused)
        self._problem.set_text("\n".join(problems))
        self._problem.set_visibility(bool(problems))
        self._table.show(rows)

    async def _pause(self, name: str) -> None:
        await self._schedules.pause(name)
        notify(f"Schedule {name} paused. It pushes no jobs until it is resumed.")
        await self.refresh()

    async def _resume(self, name: str) -> None:
        await self._schedules.resume(name)
        notify(f"Schedule {name} resumed.")
        await self.refresh()

    async def _remove(self, name: str) -> None:
        if await confirm(f"Remove the schedule {name}? Jobs that it has pushed stay.", "Remove"):
            await self._schedules.remove(name)
            await self.refresh()
