"""drumbeat pool list, show, explain, cancel, requeue, prune: a pool's jobs, to look at and to decide about."""

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
from drumbeat.core.job import Attempt, JobCounts, counted
from drumbeat.core.pool import PoolKind, PoolRow
from drumbeat.core.worker import WorkerId

app = typer.Typer()

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]
StatusOption = Annotated[
    list[JobStatus] | None, typer.Option("--status", case_sensitive=False, help="Only these. May be given more than once.")
]

_WIDEST = 60
_JOB: Columns = {
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
    "error": lambda job: _short(job.last_error.splitlines()[0]) if job.last_error else None,
}
_ATTEMPT: Columns = {
    "attempt": lambda attempt: attempt.n,
    "worker": lambda attempt: attempt.worker_id,
    "began": lambda attempt: attempt.started_at,
    "ended": lambda attempt: attempt.ended_at,
    "outcome": lambda attempt: attempt.outcome,
    "error": lambda attempt: _short(attempt.error.splitlines()[0]) if attempt.error else None,
}
_POOL: Columns = {
    "pool": lambda row: row[0].pool_id,
    "ready": lambda row: counted(row[1].ready),
    "delayed": lambda row: counted(row[1].delayed),
    "claimed": lambda row: counted(row[1].claimed),
    "done": lambda row: row[1].done,
    "poisoned": lambda row: row[1].poisoned,
    "cancelled": lambda row: row[1].cancelled,
    "paused until": lambda row: row[0].paused_until,
}


def _short(value: Any) -> str:
    written = value if isinstance(value, str) else str(value)
    return written if len(written) <= _WIDEST else written[: _WIDEST - 1] + "…"


@app.command("list")
def list_jobs(
    pool: Annotated[str | None, typer.Argument(metavar="[POOL]", help="A pool of jobs; left out, all pools of jobs.")] = None,
    status: StatusOption = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Only jobs of this group.")] = None,
    worker: Annotated[str | None, typer.Option("--worker", help="Only what this worker holds or held last.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Only jobs pushed after this one.")] = None,
    limit: LimitOption = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """A pool's jobs in the order of their pushing; with --json one job a line, fit for drumbeat pool import --jobs."""
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
        show(rows, _JOB, as_json=False, nothing=f"pool {pool} has no such jobs")


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
    """One job whole, with its attempts."""

    async def read(plane: ControlPlane) -> tuple[Job, Sequence[Attempt]]:
        desk = plane.pool(pool)
        return await desk.job(job), await desk.attempts(job)

    found, attempts = with_control_plane(store, read)
    if as_json:
        show_json(asdict(found) | {"attempt_log": list(attempts)})
        return
    for name, value in asdict(found).items():
        if value not in (None, "", False):
            say(f"{name}: {text(value)}")
    show(attempts, _ATTEMPT, as_json=False, nothing="nobody has tried it yet")


@app.command()
def explain(pool: PoolArgument, job: JobArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Why a job is not running, or what became of it."""
    found = with_control_plane(store, lambda plane: plane.pool(pool).explain(job))
    if as_json:
        show_json({"job_id": found.job_id, "status": found.status, "why": found.why, "reasons": list(found.reasons)})
        return
    say(str(found))
    for line in found.history:
        say(f"  {line}")


@app.command()
def cancel(
    pool: PoolArgument,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB…", help="Jobs' ids.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs: pending ones at once, running ones as soon as their worker hears it. Those that have ended stay."""
    found = with_control_plane(store, lambda plane: plane.pool(pool).cancel(*jobs))
    if as_json:
        show_json([{"job_id": job.job_id, "status": job.status, "cancel_requested": job.cancel_requested} for job in found])
        return
    for job in found:
        asked = job.status is JobStatus.CLAIMED and job.cancel_requested
        say(f"{job.job_id}: {'its worker is asked to stop it' if asked else job.status}")


@app.command()
def requeue(
    pool: PoolArgument,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB…]", help="Poisoned or cancelled jobs.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every poisoned job of the pool.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have poisoned and cancelled jobs tried again, with their failures forgotten."""
    if bool(jobs) == every:
        raise InvalidInput("expected the ids of jobs, or --all, got " + ("both" if every else "neither"))
    ids = with_control_plane(store, lambda plane: plane.pool(pool).requeue(*(jobs or ())))
    if as_json:
        show_json(list(ids))
    else:
        say(f"requeued {len(ids)} jobs" + (f" of {len(jobs)}" if jobs else ""))


@app.command()
def prune(
    older_than: Annotated[str, typer.Option("--older-than", help="An age such as 12h, 30d or 4w.")] = "7d",
    status: StatusOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove jobs that ended longer ago, with their attempts, from all pools: done and cancelled ones, or those named."""
    age = parse_age(older_than)
    statuses = status or [JobStatus.DONE, JobStatus.CANCELLED]
    if unfinished := {JobStatus.PENDING, JobStatus.CLAIMED} & set(statuses):
        raise InvalidInput(f"expected --status done, poisoned or cancelled, got {', '.join(unfinished)}: cancel those first")
    with progress("removed") as told:
        count = with_control_plane(store, lambda plane: plane.store.jobs.prune(age, statuses, told))
    if as_json:
        show_json({"pruned": count})
    else:
        say(f"removed {count} jobs")
