"""drumbeat pool cancel, requeue, reschedule, prioritise and errors: change many jobs, and list groups of errors."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Annotated

import typer

from drumbeat.cli.options import JsonOption, StoreOption, parse_age, parse_start, with_control_plane
from drumbeat.cli.pool_jobs import JOB_COLUMNS, StatusOption
from drumbeat.cli.pool_work import PoolArgument
from drumbeat.cli.render import Columns, progress, say, show, show_json
from drumbeat.client import BulkResult, ErrorGroups, Job, JobFilter, JobId, JobStatus, Pool
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidInput

app = typer.Typer()

TypeOption = Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")]
GroupOption = Annotated[str | None, typer.Option("--group", help="Only jobs of this group.")]
PriorityOption = Annotated[int | None, typer.Option("--priority", help="Only jobs with this priority.")]
OlderOption = Annotated[
    str | None, typer.Option("--older-than", help="Only jobs pushed (if ended: ended) longer ago than this, such as 12h.")
]
NewerOption = Annotated[
    str | None, typer.Option("--newer-than", help="Only jobs pushed (if ended: ended) within this time, such as 1h.")
]
ErrorOption = Annotated[str | None, typer.Option("--error", help="Only jobs whose last error contains this text.")]
ErrorGroupOption = Annotated[
    str | None, typer.Option("--error-group", metavar="ID", help="Only jobs of this error group: see drumbeat pool errors.")
]
MostOption = Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of jobs, oldest first.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show how many jobs match, and the first of them.")]

AllPendingOption = Annotated[bool, typer.Option("--all", help="All pending jobs of the pool.")]

Operation = Callable[[Pool, Callable[[int], object]], Awaitable[BulkResult]]

_ERROR_GROUP: Columns = {
    "group": lambda group: group.group_id,
    "jobs": lambda group: group.jobs,
    "first seen": lambda group: group.first_seen,
    "last seen": lambda group: group.last_seen,
    "types": lambda group: ", ".join(kind or "(none)" for kind in group.types[:3]) + ("…" if len(group.types) > 3 else ""),
    "example": lambda group: group.example,
    "error": lambda group: group.error,
}


@app.command()
def cancel(
    pool: PoolArgument,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB…]", help="Job ids. Without ids, use filters.")] = None,
    status: StatusOption = None,
    job_type: TypeOption = None,
    group: GroupOption = None,
    priority: PriorityOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    error: ErrorOption = None,
    error_group: ErrorGroupOption = None,
    limit: MostOption = None,
    dry_run: DryRunOption = False,
    subtree: Annotated[
        bool, typer.Option("--subtree", help="Also the jobs that wait for these, directly or through others, in all pools.")
    ] = False,
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="ID", help="All unfinished jobs of this workflow, in all pools.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs by id, or all unfinished jobs that match the filters.

    Pending jobs are cancelled at once, running jobs when their worker gets the request. Finished jobs stay as they are.
    """
    selected = _filter(status, job_type, group, priority, older_than, newer_than, error, error_group)
    if workflow is not None:
        if jobs or subtree or dry_run or limit is not None or not selected.is_empty:
            raise InvalidInput("expected --workflow without job ids and filters, got more; --workflow cancels all of its jobs")
        _print_cancelled(with_control_plane(store, lambda plane: plane.pool(pool).cancel_workflow(workflow)), as_json=as_json)
        return
    if _by_id(jobs, selected, limit, dry_run=dry_run, subtree=subtree):
        _cancel_ids(pool, jobs or [], store, subtree=subtree, as_json=as_json)
        return
    done = _operate(store, pool, lambda each, note: each.cancel_where(selected, limit=limit, dry_run=dry_run, on_progress=note))
    _report(done, "cancelled", as_json=as_json)


def _cancel_ids(pool: str, jobs: list[str], store: str | None, *, subtree: bool, as_json: bool) -> None:
    async def change(plane: ControlPlane) -> Sequence[Job]:
        if not subtree:
            return await plane.pool(pool).cancel(*jobs)
        return [each for job in jobs for each in await plane.pool(pool).cancel_subtree(job)]

    _print_cancelled(with_control_plane(store, change), as_json=as_json)


def _print_cancelled(found: Sequence[Job], *, as_json: bool) -> None:
    if as_json:
        show_json([{"job_id": job.job_id, "status": job.status, "cancel_requested": job.cancel_requested} for job in found])
        return
    for job in found:
        requested = job.status is JobStatus.CLAIMED and job.cancel_requested
        say(f"{job.job_id}: {'cancellation requested' if requested else job.status}")


@app.command()
def requeue(
    pool: PoolArgument,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB…]", help="Ids of poisoned or cancelled jobs.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All poisoned jobs of the pool.")] = False,
    status: StatusOption = None,
    job_type: TypeOption = None,
    group: GroupOption = None,
    priority: PriorityOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    error: ErrorOption = None,
    error_group: ErrorGroupOption = None,
    limit: MostOption = None,
    dry_run: DryRunOption = False,
    subtree: Annotated[
        bool, typer.Option("--subtree", help="Also the poisoned and cancelled jobs that wait for these, in all pools.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Requeue poisoned or cancelled jobs by id, or all poisoned jobs that match the filters; their failure counts are reset.

    With filters, cancelled jobs are requeued only if --status cancelled is given.
    """
    selected = _filter(status, job_type, group, priority, older_than, newer_than, error, error_group)
    if every and (jobs or not selected.is_empty):
        raise InvalidInput("expected only one of job ids, --all and filters, got --all with another of them")
    if every and subtree:
        raise InvalidInput("expected --all without --subtree, got both; give job ids with --subtree")
    if every and limit is None and not dry_run:
        _requeue_ids(pool, [], store, subtree=False, as_json=as_json)
        return
    if every:
        selected = replace(selected, statuses=(JobStatus.POISONED,))
    if _by_id(jobs, selected, limit, dry_run=dry_run, subtree=subtree, more=", --all"):
        _requeue_ids(pool, jobs or [], store, subtree=subtree, as_json=as_json)
        return
    done = _operate(
        store,
        pool,
        lambda each, note: each.requeue_where(selected, limit=limit, dry_run=dry_run, on_progress=note),
        wakes=True,
    )
    _report(done, "requeued", as_json=as_json)


def _requeue_ids(pool: str, jobs: list[str], store: str | None, *, subtree: bool, as_json: bool) -> None:
    async def change(plane: ControlPlane) -> Sequence[JobId]:
        requeued = plane.pool(pool, plane.waker())
        if not subtree:
            return await requeued.requeue(*jobs)
        return [each for job in jobs for each in await requeued.requeue_subtree(job)]

    ids = with_control_plane(store, change)
    if as_json:
        show_json(list(ids))
    else:
        say(f"requeued {len(ids)} jobs" + (f" of {len(jobs)}" if jobs and not subtree else ""))


@app.command()
def reschedule(
    pool: PoolArgument,
    at: Annotated[
        str | None, typer.Option("--at", help="New earliest start, with a time zone, such as 2026-12-24T18:00:00+01:00.")
    ] = None,
    within: Annotated[str | None, typer.Option("--in", help="New earliest start, from now: such as 30m; 0s means now.")] = None,
    every: AllPendingOption = False,
    job_type: TypeOption = None,
    group: GroupOption = None,
    priority: PriorityOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    error: ErrorOption = None,
    error_group: ErrorGroupOption = None,
    limit: MostOption = None,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give all pending jobs that match the filters another earliest start; with --all, every pending job."""
    if (at is None) == (within is None):
        raise InvalidInput("expected --at or --in, got " + ("neither" if at is None else "both"))
    delay, moment = None if within is None else parse_age(within, "--in"), None if at is None else parse_start(at, "--at")
    selected = _pending(_filter(None, job_type, group, priority, older_than, newer_than, error, error_group), every=every)

    async def change(plane: ControlPlane) -> BulkResult:
        run_at = moment or await plane.store.now() + (delay or timedelta())
        return await plane.pool(pool, plane.waker()).reschedule_where(selected, run_at, limit=limit, dry_run=dry_run)

    _report(with_control_plane(store, change), "rescheduled", as_json=as_json)


@app.command()
def prioritise(
    pool: PoolArgument,
    to: Annotated[int, typer.Option("--to", help="New priority; higher first.")],
    every: AllPendingOption = False,
    job_type: TypeOption = None,
    group: GroupOption = None,
    priority: PriorityOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    error: ErrorOption = None,
    error_group: ErrorGroupOption = None,
    limit: MostOption = None,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give all pending jobs that match the filters another priority; with --all, every pending job."""
    selected = _pending(_filter(None, job_type, group, priority, older_than, newer_than, error, error_group), every=every)
    done = _operate(
        store, pool, lambda each, note: each.prioritise_where(selected, to, limit=limit, dry_run=dry_run, on_progress=note)
    )
    _report(done, "prioritised", as_json=as_json)


@app.command()
def errors(
    pool: PoolArgument,
    job_type: TypeOption = None,
    group: GroupOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    error: ErrorOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the errors of poisoned jobs in groups, most frequent first. Numbers, ids and addresses are ignored.

    Requeue a group with: drumbeat pool requeue POOL --error-group ID
    """
    selected = _filter(None, job_type, group, None, older_than, newer_than, error, None)
    found: ErrorGroups = with_control_plane(store, lambda plane: plane.pool(pool).errors(selected))
    if as_json:
        show_json(asdict(found))
        return
    show(found.groups, _ERROR_GROUP, as_json=False, nothing=f"pool {pool} has no matching poisoned jobs")
    if found.ungrouped:
        say(f"{found.ungrouped} more jobs have other errors; narrow the list with filters")


def _filter(
    status: list[JobStatus] | None,
    job_type: str | None,
    group: str | None,
    priority: int | None,
    older_than: str | None,
    newer_than: str | None,
    error: str | None,
    error_group: str | None,
) -> JobFilter:
    return JobFilter(
        statuses=tuple(status or ()),
        job_type=job_type,
        group=group,
        priority=priority,
        older_than=None if older_than is None else parse_age(older_than, "--older-than"),
        newer_than=None if newer_than is None else parse_age(newer_than, "--newer-than"),
        error=error,
        error_group=error_group,
    )


def _pending(selected: JobFilter, *, every: bool) -> JobFilter:
    """Return the filter, for pending jobs only. Raises InvalidInput unless either a filter or --all is given."""
    if every != selected.is_empty:
        raise InvalidInput(f"expected --all or a filter such as --type, got {'both' if every else 'neither'}")
    return replace(selected, statuses=(JobStatus.PENDING,))


def _by_id(
    jobs: list[str] | None, selected: JobFilter, limit: int | None, *, dry_run: bool, subtree: bool, more: str = ""
) -> bool:
    """Whether jobs are given by id, and not by filters. Raises InvalidInput if both or neither are given."""
    if subtree and not jobs:
        raise InvalidInput("expected job ids with --subtree, got none")
    if jobs and (not selected.is_empty or limit is not None or dry_run):
        raise InvalidInput("expected job ids or filters, got both; --limit and --dry-run need filters")
    if not jobs and selected.is_empty:
        raise InvalidInput(f"expected job ids{more} or a filter such as --status or --type, got neither")
    return bool(jobs)


def _operate(store: str | None, pool: str, operation: Operation, *, wakes: bool = False) -> BulkResult:
    """Change a pool's jobs. ``wakes``: fire the triggers that start workers, as after a push, if jobs were changed."""

    async def work(plane: ControlPlane) -> BulkResult:
        return await operation(plane.pool(pool, plane.waker() if wakes else None), update)

    with progress("read") as update:
        return with_control_plane(store, work)


def _report(done: BulkResult, verb: str, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(done) | {"examples": [job.job_id for job in done.examples]})
        return
    if done.dry_run:
        more = " (the limit; more may match)" if done.limited else ""
        say(f"dry run: {done.matched} jobs would be {verb}{more}")
        show(done.examples, JOB_COLUMNS, as_json=False, nothing="no job matches")
        return
    first, more = ("the first ", " (the limit; more may match)") if done.limited else ("", "")
    say(f"{verb} {done.changed} of {first}{done.matched} matching jobs{more}")
    if done.requested:
        say(f"asked the workers of {done.requested} running jobs to stop them")
    if done.skipped:
        names = ", ".join(done.skipped_ids[:5]) + ("…" if done.skipped > 5 else "")
        say(f"left {done.skipped} jobs as they are, because they changed meanwhile: {names}", style="yellow")
