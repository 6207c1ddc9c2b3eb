"""drumbeat pool create, status, pause and resume: pools of jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from drumbeat.cli import pool_beats, pool_jobs, pool_large, pool_operations, pool_push, pool_schedule, pool_workflow
from drumbeat.cli.engine_options import EngineOption, refuse_local_store, warn_of_store
from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.pool_work import (
    CapabilityOption,
    ConcurrencyOption,
    ExecutorOption,
    HandlerOption,
    LeaseOption,
    MaxJobsOption,
    MaxMemoryOption,
    MiddlewareOption,
    PoolArgument,
    TimeoutOption,
    work,
)
from drumbeat.cli.render import errors, progress, say, show_json, text
from drumbeat.cli.run_worker import plan_changes
from drumbeat.client import RESULT_TTL, Mode, Pool, PoolStatus, WorkPlan, is_schedule_key
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.engine import ENGINE_IN_POLICY
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import format_count
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, PoolRow, with_heartbeat
from drumbeat.core.retention import IN_POLICY, read_retention
from drumbeat.core.worker import Health, Worker, shown_health
from drumbeat.pool.model import paused_types

_MOST_READY = 100_000  #: ready jobs whose types are read at once

app = typer.Typer(
    no_args_is_help=True, help="Job queues: create pools, push jobs, run workers, inspect, cancel and requeue jobs."
)
app.add_typer(pool_jobs.app)
app.add_typer(pool_operations.app)
app.add_typer(pool_push.app)
app.add_typer(pool_beats.app)
app.add_typer(pool_large.app)
app.add_typer(pool_workflow.app)
app.add_typer(pool_schedule.app, name="schedule")
app.command()(work)


@app.command()
def create(
    pool: PoolArgument,
    handler: HandlerOption = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            "--mode", help="When workers exit: once (after a job), drain (queue empty), loop (when stopped). Default: drain"
        ),
    ] = None,
    concurrency: ConcurrencyOption = None,
    executor: ExecutorOption = None,
    capability: CapabilityOption = None,
    lease: LeaseOption = None,
    timeout: TimeoutOption = None,
    max_jobs: MaxJobsOption = None,
    max_memory: MaxMemoryOption = None,
    middleware: MiddlewareOption = None,
    max_workers: Annotated[
        int | None, typer.Option("--max-workers", min=0, help="Maximum number of workers. Default: 10")
    ] = None,
    heartbeat: Annotated[
        str | None,
        typer.Option("--heartbeat", help="Heartbeat interval; after 4 missed ones a worker is lost. Default: 30s"),
    ] = None,
    remove_handler: Annotated[
        list[str] | None,
        typer.Option(
            "--remove-handler",
            metavar="TYPE",
            help="With --update: remove the handler of this job type ('' is the handler for all other types). Repeatable.",
        ),
    ] = None,
    engine: EngineOption = None,
    retention: Annotated[
        str | None,
        typer.Option(
            "--retention", help="How long finished jobs, logs etc. are kept: jobs=30d,logs=1d,poisoned=never, or off."
        ),
    ] = None,
    result_ttl: Annotated[
        str | None,
        typer.Option("--result-ttl", help="How long results can be read, such as 1h. Default: as long as the job is kept"),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Change an existing pool: only the given options change, and handlers are added to the existing ones.",
        ),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a pool of jobs, with the settings that its workers use."""
    how = {"handlers": handler, "mode": mode, "executor": executor, "concurrency": concurrency, "capabilities": capability}
    limits = {"lease": lease, "timeout": timeout, "max_jobs": max_jobs, "max_memory_mb": max_memory, "middleware": middleware}
    changes = plan_changes({**how, **limits}) | ({} if max_workers is None else {"max_workers": max_workers})
    if retention is not None:
        read_retention(retention)
        changes[IN_POLICY] = retention
    if result_ttl is not None:
        changes[RESULT_TTL] = parse_age(result_ttl, "--result-ttl")
    every = None if heartbeat is None else parse_age(heartbeat, "--heartbeat")
    if remove_handler and not update:
        raise InvalidInput("expected --remove-handler together with --update: a new pool has no handlers to remove")

    refuse_local_store(store, engine)

    async def make(plane: ControlPlane) -> PoolRow:
        row = await change(plane)
        warn_of_store(plane, engine)
        return row

    async def change(plane: ControlPlane) -> PoolRow:
        if update and await plane.store.pools.find(PoolId(pool)) is not None:
            handle = plane.pool(pool, plane.waker())
            return await handle.update(remove_handlers=remove_handler or (), heartbeat=every, engine=engine, **changes)
        return await _create(plane.pool(pool), changes, every, engine, exist_ok=update)

    _print_created(with_control_plane(store, make, create=True), as_json=as_json)


async def _create(
    handle: Pool, changes: Mapping[str, Any], every: timedelta | None, engine: str | None, *, exist_ok: bool
) -> PoolRow:
    policy = {name: value for name, value in changes.items() if name in ("max_workers", IN_POLICY, RESULT_TTL)}
    plan = WorkPlan(**{name: value for name, value in changes.items() if name not in policy})
    thresholds = None if every is None else with_heartbeat(PRESETS[PoolKind.JOBS], every)
    return await handle.create(plan, thresholds, exist_ok=exist_ok, engine=engine, **policy)


def _print_created(row: PoolRow, *, as_json: bool) -> None:
    if as_json:
        show_json(row)
    else:
        shown = {name: value for name, value in row.policy.items() if not is_schedule_key(name)}
        policy = {"engine" if name == ENGINE_IN_POLICY else name: value for name, value in shown.items()}
        say(f"pool {row.pool_id}: " + (", ".join(f"{name} {value}" for name, value in policy.items()) or "defaults"))


@app.command()
def status(pool: PoolArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the status of a pool: its jobs, its workers, and whether it is paused."""
    found = with_control_plane(store, lambda plane: plane.pool(pool).status())
    if as_json:
        show_json(_status_json(found))
    else:
        _print(found)


def _status_json(found: PoolStatus) -> dict[str, object]:
    health = [
        asdict(worker) | {"health": _health(found, worker), "not_started": worker.not_started} for worker in found.workers
    ]
    counts = asdict(found.counts) | {"pending": found.counts.pending}
    fields = {
        "pool_id": found.pool.pool_id,
        "paused": found.is_paused,
        "paused_types": found.paused_types,
        "trouble": found.trouble,
        "last_failure": found.last_failure,
        "now": found.now,
    }
    return {**fields, "jobs": counts, "no_handler": found.no_handler, "unhandled": dict(found.unhandled), "workers": health}


def _health(found: PoolStatus, worker: Worker) -> Health | None:
    return shown_health(worker, found.now, found.pool.thresholds)


def _print(found: PoolStatus) -> None:
    counts, waits = found.counts, found.oldest_waits
    oldest = f" (the oldest for {text(waits)})" if waits is not None else ""
    until = found.pool.paused_until
    say(f"pool {found.pool.pool_id}" + (f": paused until {text(until)} UTC" if found.is_paused else ""))
    ready, delayed, claimed = (format_count(each) for each in (counts.ready, counts.delayed, counts.claimed))
    waiting = f"{ready} ready{oldest}, {delayed} delayed, {claimed} claimed"
    if counts.waiting:
        waiting += f", {format_count(counts.waiting)} waiting for other jobs"
    say(f"jobs: {waiting}, {counts.done} done, {counts.poisoned} poisoned, {counts.cancelled} cancelled")
    live = sum(not each.was_refused for each in found.workers)
    say(f"workers: {live} live, " + (_workers(found, found.workers) or "none"))
    if found.paused_types:
        say(f"paused job types: {', '.join(map(repr, found.paused_types))}", style="yellow")
    if found.no_handler is not None:
        say(found.no_handler, style="yellow")
    if found.last_failure is not None:
        say(f"the last worker failed: {found.last_failure.splitlines()[0]}", style="red")
    if found.trouble is not None:
        say(f"no workers are started: {found.trouble}", style="red")


def _workers(found: PoolStatus, workers: Sequence[Worker]) -> str:
    return ", ".join(
        f"{each.worker_id} {each.shown_status} ({each.not_started or f'{_health(found, each)}, {each.active} jobs'})"
        for each in workers
    )


@app.command()
def pause(
    pool: PoolArgument,
    within: Annotated[str | None, typer.Option("--for", help="Duration, such as 30m. Default: until resumed")] = None,
    job_type: Annotated[list[str] | None, typer.Option("--type", help="Pause only jobs of this type. Repeatable.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pause a pool, or some of its job types: no such jobs are claimed. Running jobs continue."""
    if within and job_type:
        raise InvalidInput("expected --for or --type, got both; resume a type with: drumbeat pool resume POOL --type TYPE")

    async def stop(plane: ControlPlane) -> tuple[PoolRow, set[str]]:
        until = await plane.store.now() + parse_age(within, "--for") if within else None
        paused = await plane.pool(pool).pause(until, types=job_type or ())
        return paused, await _types_of(plane, paused) if job_type else set()

    paused, known = with_control_plane(store, stop)
    _print_pause(paused, as_json=as_json)
    for unknown in sorted({*(job_type or ())} - known):
        here = f"; its types are: {', '.join(map(repr, sorted(known)))}" if known else ""
        errors.print(
            f"note: pool {pool} has no handler and no ready job of type {unknown!r}{here}", style="yellow", soft_wrap=True
        )


async def _types_of(plane: ControlPlane, pool: PoolRow) -> set[str]:
    """Return the job types that a pool has handlers or ready jobs for."""
    known = {*(await plane.pool(pool.pool_id).plan()).handlers}
    while found := await plane.store.jobs.by_type(pool.pool_id, _MOST_READY, tuple(known)):
        known |= {*found}
    return known


@app.command()
def resume(
    pool: PoolArgument,
    job_type: Annotated[list[str] | None, typer.Option("--type", help="Resume only jobs of this type. Repeatable.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resume a paused pool, or some of its paused job types."""

    async def start(plane: ControlPlane) -> PoolRow:
        return await plane.pool(pool, plane.waker()).resume(types=job_type or ())

    _print_pause(with_control_plane(store, start), as_json=as_json)


@app.command()
def delete(
    pool: PoolArgument,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Also delete jobs that wait or run")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a pool or a fleet with its jobs, ended workers, beats and logs. Refused while workers are live."""
    with progress("deleted") as update:
        had = with_control_plane(store, lambda plane: plane.pool(pool).delete(unfinished=unfinished, on_progress=update))
    if as_json:
        show_json({"pool_id": pool, "deleted": asdict(had) | {"pending": had.pending}})
    else:
        ended = f"{had.done} done, {had.poisoned} poisoned, {had.cancelled} cancelled"
        say(f"deleted pool {pool} with its jobs: {ended}, {had.pending + had.waiting} unfinished")


def _print_pause(found: PoolRow, *, as_json: bool) -> None:
    until, types = found.paused_until, sorted(paused_types(found.policy))
    if as_json:
        show_json({"pool_id": found.pool_id, "paused_until": until, "paused_types": types})
        return
    names = f"{'type' if len(types) == 1 else 'types'} {', '.join(map(repr, types))}"
    if until is not None:
        forever = until - datetime(9000, 1, 1, tzinfo=UTC) > timedelta()
        more = f"; jobs of {names} stay paused after that" if types else ""
        say(f"pool {found.pool_id} is paused until {'it is resumed' if forever else f'{text(until)} UTC'}{more}")
    elif types:
        say(f"in pool {found.pool_id}, jobs of {names} are paused; all other jobs are claimed")
    else:
        say(f"pool {found.pool_id} is not paused")
