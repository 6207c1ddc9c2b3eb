"""The page of one job: its status and the reasons for it, its payload, result, durable steps and attempts."""

import json
from collections.abc import Sequence
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.job import UNFINISHED, Job, JobStatus
from drumbeat.core.job_step import JobStep, StepKind
from drumbeat.core.plain import short_json
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, confirm, notify
from drumbeat.web.pages.components import PageTable, TableColumn, as_text, badge, text_block
from drumbeat.web.pages.forms import Form, text_of
from drumbeat.web.pages.frame import breadcrumbs, heading, page
from drumbeat.web.pages.plain_words import ATTEMPT_OUTCOMES, STEP_KINDS, capitalised, counted, job_status, plain
from drumbeat.web.pages.pools_push import parse_payload
from drumbeat.web.pages.workflows import workflow_url

_ATTEMPTS = (
    TableColumn(name="attempt", read=lambda attempt: attempt.n, number=True),
    TableColumn(name="worker", read=lambda attempt: attempt.worker_id),
    TableColumn(name="began", label="started (UTC)", read=lambda attempt: attempt.started_at),
    TableColumn(name="ended", label="ended (UTC)", read=lambda attempt: attempt.ended_at),
    TableColumn(name="outcome", read=lambda attempt: plain(ATTEMPT_OUTCOMES, attempt.outcome)),
    TableColumn(name="error", loose=True, read=lambda attempt: attempt.error),
)
_STEPS = (
    TableColumn(name="step", read=lambda step: step.position if step.position > 0 else None, number=True),
    TableColumn(name="kind", read=lambda step: plain(STEP_KINDS, step.kind)),
    TableColumn(name="name", read=lambda step: step.name),
    TableColumn(name="began", label="started (UTC)", read=lambda step: step.started_at),
    TableColumn(name="finished", label="ended (UTC)", read=lambda step: step.finished_at),
    TableColumn(name="until", label="sleeps or waits until (UTC)", read=lambda step: step.until),
    TableColumn(name="result", loose=True, read=lambda step: None if step.result is None else short_json(step.result, 2000)),
    TableColumn(name="error", loose=True, read=lambda step: step.error),
)
_FACTS = {
    "type": "type", "priority": "priority (higher first)", "attempts": "attempts", "failures": "failures", "crashes": "crashes",
    "suspicions": "crashes while other jobs ran too", "max_attempts": "max attempts", "timeout": "timeout",
    "unique_key": "unique key", "group": "group", "capability": "required capability", "created_at": "pushed (UTC)",
    "not_before": "delayed until (UTC)", "claimed_at": "taken by a worker (UTC)", "begun_at": "started (UTC)",
    "finished_at": "ended (UTC)", "lease_owner": "worker", "lease_until": "lease of the worker expires (UTC)",
}  # fmt: skip

_LONGEST_SHOWN = 1_000_000  #: characters of a payload or result that the page shows


def add(app: AppState) -> None:
    @page(app, "/pools/{pool_id}/jobs/{job_id}", "Pools")
    async def job_page(pool_id: str, job_id: str) -> None:
        job = await app.plane.pool(pool_id).job(job_id)
        breadcrumbs(("Pools", "/pools"), (pool_id, f"/pools/{quote(pool_id, safe='')}"))
        with ui.row().classes("w-full items-center"):
            heading(f"Job {job_id}")
            badge(job_status(job, app.clock.now()))
            ui.space()
            _buttons(app, job)
        await _explanation(app, job)
        if job.workflow_id is not None:
            ui.link(f"Workflow {job.workflow_id}", workflow_url(job.workflow_id))
        _facts(job)
        heading("Payload", 2)
        text_block(_json(job.payload), "Payload")
        if job.result is not None:
            heading("Result", 2)
            text_block(_json(job.result), "Result")
        if job.has_steps:
            heading("Steps", 2)
            steps = await app.plane.pool(pool_id).steps(job_id)
            for event in _awaited(job, steps):
                _answer_button(app, job, event)
            PageTable("Steps", _STEPS, key=lambda step: str(step.position)).show(steps)
        await _attempts(app, job)


def _buttons(app: AppState, job: Job) -> None:
    pool = app.pool(job.pool_id)

    async def requeue() -> None:
        done = await pool.requeue(job.job_id)
        notify("Job requeued." if done else "Not requeued: an unfinished job has the same unique key.", error=not done)
        ui.navigate.reload()

    async def cancel() -> None:
        await pool.cancel(job.job_id)
        ui.navigate.reload()

    async def requeue_subtree() -> None:
        notify(f"Requeued {counted(len(await pool.requeue_subtree(job.job_id)), 'job')}.")
        ui.navigate.reload()

    async def cancel_subtree() -> None:
        if await confirm("Cancel this job and all jobs that wait for it, directly or through other jobs?", "Cancel all"):
            await pool.cancel_subtree(job.job_id)
            ui.navigate.reload()

    if job.status in (JobStatus.POISONED, JobStatus.CANCELLED):
        button("Requeue", requeue, icon="replay")
        if job.has_children:
            button("Requeue with dependent jobs", requeue_subtree, icon="replay")
    if job.status in UNFINISHED:
        button("Cancel job", cancel, icon="block", danger=True)
    if job.has_children:
        button("Cancel with dependent jobs", cancel_subtree, icon="block", danger=True)


def _awaited(job: Job, steps: Sequence[JobStep]) -> list[str]:
    """Return the names of the events that a job waits for and that were not sent yet."""
    sent = {step.name for step in steps if step.kind is StepKind.SENT}
    waits = [step.name for step in steps if step.kind is StepKind.EVENT and step.finished_at is None]
    return [name for name in waits if name not in sent and job.status in UNFINISHED]


def _answer_button(app: AppState, job: Job, event: str) -> None:
    """Show a button with a form that sends the event which a job waits for."""

    async def answer() -> None:
        form = Form(f"Send event {event}", "Send")
        with form.card:
            value = form.field("value", ui.textarea("Value (JSON)", value="true"))

        async def send() -> bool:
            await app.pool(job.pool_id).send_event(job.job_id, event, parse_payload(text_of(value), "value"))
            return True

        if await form.ask(send):
            ui.navigate.reload()

    button(f"Send event {event}", answer, icon="send")


async def _explanation(app: AppState, job: Job) -> None:
    explanation = await app.plane.pool(job.pool_id).explain(job.job_id)
    with ui.card().props('flat bordered role=region aria-label="Status explanation"').classes("w-full q-pa-sm gap-1"):
        heading("Why this status?", 2)
        for reason in explanation.reasons:
            ui.label(capitalised(reason.says))


def _facts(job: Job) -> None:
    with ui.element("dl").classes("grid w-full gap-x-4 gap-y-1").style("grid-template-columns: max-content 1fr"):
        for name, label in _FACTS.items():
            value = getattr(job, name)
            if value not in (None, ""):
                with ui.element("dt").classes("faint"):
                    ui.label(label)
                with ui.element("dd"):
                    ui.label(as_text(value))


async def _attempts(app: AppState, job: Job) -> None:
    heading("Attempts", 2)
    attempts = await app.plane.pool(job.pool_id).attempts(job.job_id)
    if not attempts:
        ui.label("No attempts yet.").classes("faint")
        return
    PageTable("Attempts", _ATTEMPTS, key=lambda attempt: str(attempt.n)).show(attempts)


def _json(value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}\n… (shortened; the HTTP API returns all of it)"
