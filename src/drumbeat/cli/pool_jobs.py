"""drumbeat pool list, show, explain, send and prune: jobs of a pool."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from drumbeat.cli.options import JsonOption, LimitOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.pool_work import PoolArgument
from drumbeat.cli.render import Columns, progress, say, show, show_json, text
from drumbeat.client import Job, JobId, JobStatus
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import UNFINISHED, Attempt, JobCounts, format_count
from drumbeat.core.job_step import JobStep
from drumbeat.core.plain import short_json
from drumbeat.core.pool import PoolKind, PoolRow
from drumbeat.core.worker import WorkerId

app = typer.Typer()

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Job id.")]
StatusOption = Annotated[
    list[JobStatus] | None, typer.Option("--status", case_sensitive=False, help="Only jobs with this status. Repeatable.")
]

_WIDEST = 60
JOB_COLUMNS: Columns = {
    "job": lambda job: job.job_id,
    "type": lambda job: job.type or None,
    "status": lambda job: job.status,
    "priority": lambda job: job.priority,
    "attempts": lambda job: job.attempts,
    "failures": lambda job: job.failures,
    "crashes": lambda job: job.crashes,
    "worker": lambda job: job.lease_owner if job.status is JobStatus.CLAIMED else None,
    "pushed": lambda job: job.created_at,
    "finished": lambda job: job.finished_at,
    "payload": lambda job: _short(job.payload),
    "error": lambda job: _short(job.current_error.splitlines()[0]) if job.current_error else None,
}
_ATTEMPT: Columns = {
    "attempt": lambda attempt: attempt.n,
    "worker": lambda attempt: attempt.worker_id,
    "started": lambda attempt: attempt.started_at,
    "ended": lambda attempt: attempt.ended_at,
    "outcome": lambda attempt: attempt.outcome,
    "error": lambda attempt: _short(attempt.error.splitlines()[0]) if attempt.error else None,
}
_STEP: Columns = {
    "step": lambda step: step.position if step.position > 0 else None,
    "kind": lambda step: step.kind,
    "name": lambda step: step.name,
    "started": lambda step: step.started_at,
    "finished": lambda step: step.finished_at,
    "result": lambda step: None if step.result is None else _short(step.result),
    "error": lambda step: _short(step.error) if step.error else None,
}
_POOL: Columns = {
    "pool": lambda row: row[0].pool_id,
    "ready": lambda row: format_count(row[1].ready),
    "delayed": lambda row: format_count(row[1].delayed),
    "waiting": lambda row: format_count(row[1].waiting),
    "claimed": lambda row: format_count(row[1].claimed),
    "done": lambda row: row[1].done,
    "poisoned": lambda row: row[1].poisoned,
    "cancelled": lambda row: row[1].cancelled,
    "paused until": lambda row: row[0].paused_until,
}


def _short(value: Any) -> str:
    if not isinstance(value, str):
        return short_json(value, _WIDEST)
    return value if len(value) <= _WIDEST else value[: _WIDEST - 1] + "…"


@app.command("list")
def list_jobs(
    pool: Annotated[str | None, typer.Argument(metavar="[POOL]", help="Pool name. Without it, the pools are listed.")] = None,
    status: StatusOption = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Only jobs of this group.")] = None,
    worker: Annotated[str | None, typer.Option("--worker", help="Only jobs that this worker holds, or held last.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Only jobs pushed after this job id.")] = None,
    limit: LimitOption = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs of a pool in push order. With --json: one job per line, as drumbeat pool import --jobs reads them."""
    if pool is None:
        _list_pools(store, as_json=as_json)
        return
    rows = with_control_plane(
        store,
        lambda plane: plane.pool(pool).list(
            statuses=status or (),
            job_type=job_type,
            group=group,
            worker_id=WorkerId(worker) if worker else None,
            after=JobId(after) if after else None,
            limit=limit,
        ),
    )
    if as_json:
        for row in rows:
            show_json(row)
    else:
        show(rows, JOB_COLUMNS, as_json=False, nothing=f"pool {pool} has no matching jobs")


def _list_pools(store: str | None, *, as_json: bool) -> None:
    async def read(plane: ControlPlane) -> Sequence[tuple[PoolRow, JobCounts]]:
        pools = await plane.store.pools.list(PoolKind.JOBS)
        return [(each, await plane.store.jobs.counts(each.pool_id)) for each in pools]

    rows = with_control_plane(store, read)
    if as_json:
        show_json([{"pool_id": each.pool_id, "paused_until": each.paused_until, **asdict(counts)} for each, counts in rows])
    else:
        show(rows, _POOL, as_json=False, nothing="no pools of jobs yet; try: drumbeat pool push POOL JSON")


@app.command("show")
def show_job(pool: PoolArgument, job: JobArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show a job with its attempts and durable steps."""

    async def read(plane: ControlPlane) -> tuple[Job, Sequence[Attempt], Sequence[JobStep]]:
        handle = plane.pool(pool)
        return await handle.job(job), await handle.attempts(job), await handle.steps(job)

    found, attempts, steps = with_control_plane(store, read)
    if as_json:
        show_json(asdict(found) | {"attempt_log": list(attempts), "steps": list(steps)})
        return
    for name, value in asdict(found).items():
        if value not in (None, "", False):
            say(f"{name}: {text(value)}")
    show(attempts, _ATTEMPT, as_json=False, nothing="no attempts yet")
    if steps:
        show(steps, _STEP, as_json=False, nothing="no steps")


@app.command()
def explain(pool: PoolArgument, job: JobArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Explain why a job is not running, or how it ended."""
    found = with_control_plane(store, lambda plane: plane.pool(pool).explain(job))
    if as_json:
        told = {"job_id": found.job_id, "status": found.status, "why": found.why, "reasons": list(found.reasons)}
        show_json(told | {"history": list(found.history), "steps": list(found.steps)})
        return
    say(str(found))
    for line in (*found.history, *found.steps):
        say(f"  {line}")


@app.command()
def send(
    pool: PoolArgument,
    job: JobArgument,
    event: Annotated[str, typer.Argument(metavar="NAME", help="Name of the event, as in wait_for(NAME).")],
    value: Annotated[str, typer.Argument(metavar="[JSON]", help="Value of the event as JSON.")] = "null",
    store: StoreOption = None,
) -> None:
    """Send an event to a job, which its handler gets from wait_for. It is kept until the job waits for it."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"expected the value as JSON, got {value!r}: {exc}; put quotes around text: '\"yes\"'") from exc

    async def send_and_wake(plane: ControlPlane) -> None:
        await plane.pool(pool, plane.waker()).send_event(job, event, parsed)

    with_control_plane(store, send_and_wake)
    say(f"sent event {event!r} to job {job}")


@app.command()
def prune(
    older_than: Annotated[str, typer.Option("--older-than", help="Minimum age, such as 12h, 30d or 4w.")] = "7d",
    status: StatusOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete old finished jobs and their attempts from all pools: by default done and cancelled jobs."""
    age = parse_age(older_than, "--older-than")
    statuses = status or [JobStatus.DONE, JobStatus.CANCELLED]
    if unfinished := UNFINISHED & set(statuses):
        raise InvalidInput(
            f"expected --status done, poisoned or cancelled, got {', '.join(unfinished)}; cancel such jobs first"
        )
    with progress("removed") as update:
        count = with_control_plane(store, lambda plane: plane.store.jobs.prune(age, statuses, update))
    if as_json:
        show_json({"pruned": count})
    else:
        say(f"removed {count} jobs")
