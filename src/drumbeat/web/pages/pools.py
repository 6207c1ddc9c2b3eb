"""Pools of jobs: all of them, and how to make the first."""

from urllib.parse import quote

from nicegui import ui

from drumbeat.core.job import counted
from drumbeat.core.pool import PoolKind
from drumbeat.web.app_state import AppState
from drumbeat.web.pages import pools_job, pools_one
from drumbeat.web.pages.actions import button, say
from drumbeat.web.pages.auto_refresh import every
from drumbeat.web.pages.components import Filled, PageTable, TableColumn
from drumbeat.web.pages.frame import heading, page
from drumbeat.web.pages.overview import EVERY, PoolSummary, no_pool, standing
from drumbeat.web.pages.pools_push import push_form

_POOLS = (
    TableColumn(name="pool", loose=True, read=lambda row: row.pool.pool_id, href=lambda row: row.href),
    TableColumn(name="ready", read=lambda row: counted(row.counts.ready), number=True),
    TableColumn(name="oldest", label="oldest waits", read=lambda row: row.oldest_waits, number=True),
    TableColumn(name="delayed", read=lambda row: counted(row.counts.delayed), number=True),
    TableColumn(name="claimed", read=lambda row: counted(row.counts.claimed), number=True),
    TableColumn(name="done", read=lambda row: row.counts.done, number=True),
    TableColumn(name="poisoned", read=lambda row: row.counts.poisoned, number=True),
    TableColumn(name="workers", read=lambda row: len(row.workers), number=True),
    TableColumn(name="paused", read=lambda row: row.is_paused),
)


def add(house: AppState) -> None:
    pools_one.add(house)
    pools_job.add(house)

    @page(house, "/pools", "Pools")
    async def pools() -> None:
        with ui.row().classes("w-full items-center"):
            heading("Pools")
            ui.space()
            _new_button(house)
        found = await _standing(house)
        shown = Filled(PageTable("Pools of jobs", _POOLS, key=lambda row: row.pool.pool_id), no_pool())
        shown.show(found)

        async def again() -> None:
            shown.show(await _standing(house))

        every(EVERY, again)


async def _standing(house: AppState) -> list[PoolSummary]:
    return [await standing(house, each) for each in await house.plane.store.pools.list(PoolKind.JOBS)]


def _new_button(house: AppState) -> None:
    """A pool is made with its first job."""

    async def ask() -> None:
        pushed = await push_form(house, None)
        if pushed is not None:
            say(f"Job {pushed.job_id} is in {pushed.pool_id}.")
            ui.navigate.to(f"/pools/{quote(pushed.pool_id, safe='')}")

    button("Push a job", ask, icon="add")
