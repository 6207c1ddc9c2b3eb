"""The page with the list of job pools."""

from urllib.parse import quote

from nicegui import ui

from drumbeat.core.job import format_count
from drumbeat.core.pool import PoolKind
from drumbeat.web.app_state import AppState
from drumbeat.web.pages import pools_job, pools_one, pools_operations, workflows
from drumbeat.web.pages.actions import button, notify
from drumbeat.web.pages.auto_refresh import refresh_every
from drumbeat.web.pages.components import PageTable, TableColumn, TableOrPlaceholder
from drumbeat.web.pages.frame import heading, page
from drumbeat.web.pages.overview import REFRESH_SECONDS, PoolSummary, no_pools, pool_summary
from drumbeat.web.pages.plain_words import JOB_STATUSES
from drumbeat.web.pages.pools_push import push_form

_POOLS = (
    TableColumn(name="pool", loose=True, read=lambda row: row.pool.pool_id, href=lambda row: row.href),
    TableColumn(name="ready", read=lambda row: format_count(row.counts.ready), number=True),
    TableColumn(name="oldest", label="longest wait", read=lambda row: row.oldest_age, number=True),
    TableColumn(name="delayed", read=lambda row: format_count(row.counts.delayed), number=True),
    TableColumn(name="waiting", label=JOB_STATUSES["waiting"], read=lambda row: format_count(row.counts.waiting), number=True),
    TableColumn(name="claimed", label="in progress", read=lambda row: format_count(row.counts.claimed), number=True),
    TableColumn(name="done", read=lambda row: row.counts.done, number=True),
    TableColumn(name="poisoned", read=lambda row: row.counts.poisoned, number=True),
    TableColumn(name="workers", read=lambda row: len(row.workers), number=True),
    TableColumn(name="paused", read=lambda row: row.is_paused),
)


def add(app: AppState) -> None:
    pools_one.add(app)
    pools_job.add(app)
    pools_operations.add(app)
    workflows.add(app)

    @page(app, "/pools", "Pools")
    async def pools() -> None:
        with ui.row().classes("w-full items-center"):
            heading("Job pools")
            ui.space()
            _new_button(app)
        rows = await _summaries(app)
        table = TableOrPlaceholder(PageTable("Job pools", _POOLS, key=lambda row: row.pool.pool_id), no_pools())
        table.show(rows)

        async def refresh() -> None:
            table.show(await _summaries(app))

        refresh_every(REFRESH_SECONDS, refresh)


async def _summaries(app: AppState) -> list[PoolSummary]:
    return [await pool_summary(app, each) for each in await app.plane.store.pools.list(PoolKind.JOBS)]


def _new_button(app: AppState) -> None:
    """Add the button that pushes a job; the first job of a pool creates the pool."""

    async def ask() -> None:
        pushed = await push_form(app, None)
        if pushed is not None:
            notify(f"Pushed job {pushed.job_id} to {pushed.pool_id}.")
            ui.navigate.to(f"/pools/{quote(pushed.pool_id, safe='')}")

    button("Push a job", ask, icon="add")
