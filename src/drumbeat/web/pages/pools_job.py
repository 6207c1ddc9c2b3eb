"""One job: what it is, why it is where it is, and what was tried."""

import json
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.job import UNFINISHED, Job, JobStatus
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, say
from drumbeat.web.pages.components import PageTable, TableColumn, badge, listing, words
from drumbeat.web.pages.frame import heading, page, trail

_ATTEMPTS = (
    TableColumn(name="attempt", read=lambda attempt: attempt.n, number=True),
    TableColumn(name="worker", read=lambda attempt: attempt.worker_id),
    TableColumn(name="began", label="began (UTC)", read=lambda attempt: attempt.started_at),
    TableColumn(name="ended", label="ended (UTC)", read=lambda attempt: attempt.ended_at),
    TableColumn(name="outcome", read=lambda attempt: attempt.outcome),
    TableColumn(name="error", loose=True, read=lambda attempt: attempt.error),
)
_FACTS = (
    "type",
    "priority",
    "attempts",
    "failures",
    "crashes",
    "suspicions",
    "max_attempts",
    "timeout",
    "unique_key",
    "group",
    "capability",
)
_TIMES = ("created_at", "not_before", "claimed_at", "begun_at", "finished_at", "lease_owner", "lease_until")


def add(house: AppState) -> None:
    @page(house, "/pools/{pool_id}/jobs/{job_id}", "Pools")
    async def job(pool_id: str, job_id: str) -> None:
        desk = house.plane.pool(pool_id)
        found = await desk.job(job_id)
        trail(("Pools", "/pools"), (pool_id, f"/pools/{quote(pool_id, safe='')}"))
        with ui.row().classes("w-full items-center"):
            heading(f"Job {job_id}")
            badge(found.status)
            ui.space()
            _deeds(house, found)
        await _why(house, found)
        _facts(found)
        heading("Payload", 2)
        listing(_json(found.payload), "Payload")
        if found.result is not None:
            heading("Result", 2)
            listing(_json(found.result), "Result")
        await _attempts(house, found)


def _deeds(house: AppState, job: Job) -> None:
    desk = house.plane.pool(job.pool_id)

    async def requeue() -> None:
        done = await desk.requeue(job.job_id)
        say("It is pending again." if done else "It was not requeued: another job of its key is unfinished.", wrong=not done)
        ui.navigate.reload()

    async def cancel() -> None:
        await desk.cancel(job.job_id)
        ui.navigate.reload()

    if job.status in (JobStatus.POISONED, JobStatus.CANCELLED):
        button("Requeue", requeue, icon="replay")
    if job.status in UNFINISHED:
        button("Cancel", cancel, icon="block", danger=True)


async def _why(house: AppState, job: Job) -> None:
    explained = await house.plane.pool(job.pool_id).explain(job.job_id)
    with ui.card().props('flat bordered role=region aria-label="Why it is where it is"').classes("w-full q-pa-sm gap-1"):
        for reason in explained.reasons:
            ui.label(f"{reason.why}: {reason.says}")


def _facts(job: Job) -> None:
    with ui.element("dl").classes("grid w-full gap-x-4 gap-y-1").style("grid-template-columns: max-content 1fr"):
        for name in (*_FACTS, *_TIMES):
            value = getattr(job, name)
            if value not in (None, ""):
                with ui.element("dt").classes("faint"):
                    ui.label(name.replace("_", " "))
                with ui.element("dd"):
                    ui.label(words(value))


async def _attempts(house: AppState, job: Job) -> None:
    heading("Attempts", 2)
    found = await house.plane.pool(job.pool_id).attempts(job.job_id)
    if not found:
        ui.label("Nobody has tried it yet.").classes("faint")
        return
    PageTable("Attempts", _ATTEMPTS, key=lambda attempt: str(attempt.n)).show(found)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
