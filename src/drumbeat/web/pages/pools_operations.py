"""Pages that change many jobs of a pool at once: jobs that match a filter (with a preview), or that failed with one error."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from nicegui import ui

from drumbeat.client import BulkResult, JobFilter, Pool
from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import JobStatus
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, confirm, notify
from drumbeat.web.pages.components import PageTable, TableColumn, TableOrPlaceholder, short
from drumbeat.web.pages.forms import text_of
from drumbeat.web.pages.frame import breadcrumbs, heading, page
from drumbeat.web.pages.job_columns import job_columns
from drumbeat.web.pages.plain_words import JOB_STATUSES, counted
from drumbeat.web.pages.pools_push import whole_number

_OPERATIONS = {
    "cancel": "Cancel jobs", "requeue": "Requeue jobs", "reschedule": "Reschedule jobs", "prioritise": "Prioritise jobs",
}  # fmt: skip
_STATUSES: Mapping[str, Sequence[JobStatus]] = {
    "cancel": (JobStatus.WAITING, JobStatus.PENDING, JobStatus.CLAIMED),
    "requeue": (JobStatus.POISONED, JobStatus.CANCELLED),
}
_ANY_STATUS = {  #: which jobs a filter without status selects
    "cancel": "unfinished jobs", "requeue": "poisoned jobs", "reschedule": "ready or delayed jobs",
    "prioritise": "ready or delayed jobs",
}  # fmt: skip
_AMOUNTS = {"reschedule": "Run in (minutes; 0 is now)", "prioritise": "New priority (higher first)"}
_TITLE = "Bulk actions"
_ERRORS = "Poisoned jobs, grouped by error. Errors that differ only in numbers, IDs or addresses form one group."
_AGE_HINT = 'hint="since pushed; for ended jobs, since they ended"'
_VERBS = {"cancel": "cancelled", "requeue": "requeued", "reschedule": "rescheduled", "prioritise": "prioritised"}
_JOBS = (
    TableColumn(name="pushed", label="pushed (UTC)", read=lambda job: job.created_at),
    TableColumn(name="error", loose=True, read=lambda job: short(job.last_error, 60) if job.last_error else None),
)
_GROUPS = (
    TableColumn(name="error", loose=True, read=lambda row: row[1].error),
    TableColumn(name="jobs", read=lambda row: row[1].jobs, number=True),
    TableColumn(name="types", loose=True, read=lambda row: ", ".join(kind or "(none)" for kind in row[1].types[:3])),
    TableColumn(name="first_seen", label="first seen (UTC)", read=lambda row: row[1].first_seen),
    TableColumn(name="last_seen", label="last seen (UTC)", read=lambda row: row[1].last_seen),
    TableColumn(
        name="example",
        label="last job",
        loose=True,
        read=lambda row: row[1].example,
        href=lambda row: f"/pools/{quote(row[0], safe='')}/jobs/{quote(row[1].example, safe='')}",
    ),
)


def add(app: AppState) -> None:
    @page(app, "/pools/{pool_id}/change", "Pools")
    async def change(pool_id: str) -> None:
        await app.plane.pool(pool_id).get()
        breadcrumbs(("Pools", "/pools"), (pool_id, f"/pools/{quote(pool_id, safe='')}"))
        heading(_TITLE)
        _ChangeForm(app.pool(pool_id), app.clock)

    @page(app, "/pools/{pool_id}/errors", "Pools")
    async def errors(pool_id: str) -> None:
        found = await app.plane.pool(pool_id).errors()
        breadcrumbs(("Pools", "/pools"), (pool_id, f"/pools/{quote(pool_id, safe='')}"))
        heading("Error groups")
        ui.label(_ERRORS).classes("faint")

        async def requeue(group_id: str) -> None:
            jobs = next((each.jobs for each in found.groups if each.group_id == group_id), 0)
            if await confirm(f"Requeue {counted(jobs, 'poisoned job')} with this error?", "Requeue"):
                done = await app.pool(pool_id).requeue_where(JobFilter(error_group=group_id))
                notify(_summary(done, "requeued"))
                ui.navigate.reload()

        table = PageTable("Error groups", _GROUPS, key=lambda row: row[1].group_id, actions={"Requeue all": requeue}, page=50)
        TableOrPlaceholder(table, ui.label("No poisoned jobs").classes("faint")).show(
            [(pool_id, each) for each in found.groups]
        )
        if found.ungrouped:
            ui.label(_ungrouped(found.ungrouped)).classes("faint")


def links(pool_id: str) -> None:
    """Add links to these pages."""
    with ui.row().classes("gap-4"):
        ui.link(_TITLE, f"/pools/{quote(pool_id, safe='')}/change")
        ui.link("Error groups", f"/pools/{quote(pool_id, safe='')}/errors")


def _ungrouped(jobs: int) -> str:
    has = "has a rarer error, which is" if jobs == 1 else "have rarer errors, which are"
    return f"{counted(jobs, 'more poisoned job')} {has} not listed."


def _summary(done: BulkResult, verb: str) -> str:
    parts = [f"{done.changed:,} of {counted(done.matched, 'job')} {verb}."]
    if done.requested:
        parts.append(f"{counted(done.requested, 'running job')} {'is' if done.requested == 1 else 'are'} asked to stop.")
    if done.skipped:
        stays = "stays as it is" if done.skipped == 1 else "stay as they are"
        parts.append(f"{counted(done.skipped, 'job')} changed meanwhile and {stays}.")
    return " ".join(parts)


class _ChangeForm:
    """A form with a filter: it shows how many jobs match, and the first of them, before they are changed."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock
        self._previewed: tuple[str, JobFilter, float] | None = None  #: the operation of the preview, its filter and amount
        with ui.card().props("flat bordered").classes("w-full"):
            self._operation = ui.select(_OPERATIONS, value="cancel", label="Action", on_change=self._show_statuses)
            self._fields: dict[str, Any] = {
                "statuses": ui.select(_choices("cancel"), value="", label="Status", on_change=self._forget),
                "job_type": ui.input("Type", on_change=self._forget),
                "group": ui.input("Group", on_change=self._forget),
                "error": ui.input("Error contains", on_change=self._forget),
                "older_than": ui.number("Older than (minutes)", min=0, on_change=self._forget).props(_AGE_HINT),
                "newer_than": ui.number("Newer than (minutes)", min=0, on_change=self._forget).props(_AGE_HINT),
            }
            self._amount = ui.number(value=0, on_change=self._forget)
            self._amount.set_visibility(False)
            for field in (self._operation, *self._fields.values(), self._amount):
                field.classes("w-full max-w-lg").props("outlined dense stack-label")
            with ui.row():
                button("Preview", self._preview, icon="search")
                self._apply = button("Change these jobs", self._change, icon="done", danger=True)
                self._apply.set_visibility(False)
        self._count = ui.label("").props("role=status")
        table = PageTable("Matching jobs", (*job_columns(clock), *_JOBS), key=lambda job: job.job_id)
        self._table = TableOrPlaceholder(table, ui.label(""))
        self._table.show([])

    def _show_statuses(self) -> None:
        """Offer the statuses and the amount for the selected action, and hide the preview of the other."""
        operation = str(self._operation.value)
        self._fields["statuses"].set_options(_choices(operation), value="")
        self._amount.set_visibility(operation in _AMOUNTS)
        self._amount.label = _AMOUNTS.get(operation, "")
        self._forget()

    def _forget(self) -> None:
        """Hide the preview, because the filter has changed since."""
        self._previewed = None
        self._apply.set_visibility(False)

    def _filter(self) -> JobFilter:
        given: Mapping[str, Any] = {
            "statuses": [self._fields["statuses"].value] if self._fields["statuses"].value else (),
            **{name: text_of(self._fields[name]) or None for name in ("job_type", "group", "error")},
            **{name: _minutes(self._fields[name].value) for name in ("older_than", "newer_than")},
        }
        return JobFilter(**given)

    async def _run(self, operation: str, selected: JobFilter, amount: float, *, dry_run: bool) -> BulkResult:
        match operation:
            case "cancel":
                return await self._pool.cancel_where(selected, dry_run=dry_run)
            case "requeue":
                return await self._pool.requeue_where(selected, dry_run=dry_run)
            case "reschedule":
                when = _after(self._clock.now(), amount)
                return await self._pool.reschedule_where(selected, when, dry_run=dry_run)
            case _:
                return await self._pool.prioritise_where(selected, whole_number("priority", self._amount), dry_run=dry_run)

    async def _preview(self) -> None:
        self._forget()
        operation, selected, amount = str(self._operation.value), self._filter(), self._amount.value or 0
        found = await self._run(operation, selected, amount, dry_run=True)
        shown = f" The first {len(found.examples)}:" if found.matched > len(found.examples) else ""
        self._count.text = f"{counted(found.matched, 'job')} would be {_VERBS[operation]}.{shown}"
        self._table.show(found.examples)
        self._previewed = (operation, selected, amount)
        self._apply.text = f"{_OPERATIONS[operation].split()[0]} {counted(found.matched, 'job')}"
        self._apply.set_visibility(bool(found.matched))

    async def _change(self) -> None:
        if self._previewed is None:
            notify("The filter has changed. Preview it first.", error=True)
            return
        operation, selected, amount = self._previewed
        more = "Jobs that began to match after the preview are changed too."
        if await confirm(f"{self._apply.text}? {more}", self._apply.text):
            done = await self._run(operation, selected, amount, dry_run=False)
            self._forget()
            self._table.show([])
            self._count.text = _summary(done, _VERBS[operation])
            notify(self._count.text)


def _choices(operation: str) -> dict[str, str]:
    """Return the statuses whose jobs an action can change; '' stands for those that it changes by default."""
    return {"": _ANY_STATUS[operation], **{each.value: JOB_STATUSES[each] for each in _STATUSES.get(operation, ())}}


def _minutes(value: float | None) -> timedelta | None:
    try:
        return None if value is None else timedelta(minutes=value)
    except OverflowError as exc:
        raise InvalidInput(f"expected at most a hundred years in minutes, got {value:g}") from exc


def _after(now: datetime, minutes: float) -> datetime:
    try:
        return now + timedelta(minutes=minutes)
    except OverflowError as exc:
        raise InvalidInput(f"expected a time before the year 9000, got one in {minutes:g} minutes") from exc
