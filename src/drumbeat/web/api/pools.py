"""API for pools: create, show, pause and resume; their workers, events, beats, samples and logs."""

from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Query, Request, Response

from drumbeat.client import WorkPlan
from drumbeat.core.errors import NotFound
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.worker import Worker, WorkerId, shown_health
from drumbeat.web.api.answers import created, problems, set_location
from drumbeat.web.api.entry import PREFIX, Plane, State
from drumbeat.web.api.paging import by_number
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import After, Id, Limit, Moment, Page
from drumbeat.web.api.shapes_pools import Counts, NewPool, Pause, PoolShape, PoolStanding, Resumption
from drumbeat.web.api.shapes_runs import BeatShape, EventShape, LogShape, SampleShape, WholeBeat, WorkerShape

router = checked("pools")

POOLS = f"{PREFIX}/pools"
UNTIL_RESUMED = Pause()
WHOLE_POOL = Resumption()
_POOL = f"{POOLS}/{{pool_id}}"
_LINKS = {name: f"{name}_pool" for name in ("show", "pause", "resume")} | {"push": "push_job", "list": "list_jobs"}
Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


@router.post(
    POOLS, status_code=201, operation_id="make_pool", responses={**created(_LINKS, "pool_id", "pool_id"), **problems(409)}
)
async def create_pool(body: NewPool, plane: Plane, response: Response) -> PoolShape:
    """Create a job pool with the settings of its workers."""
    policy: dict[str, Any] = {} if body.max_workers is None else {"max_workers": body.max_workers}
    pool = await plane.pool(body.pool_id).create(_plan(body), engine=body.engine, **policy)
    set_location(response, f"{POOLS}/{quote(pool.pool_id, safe='')}")
    return PoolShape.model_validate(pool)


def _plan(body: NewPool) -> WorkPlan:
    given: dict[str, Any] = {
        "mode": body.mode,
        "concurrency": body.concurrency,
        "capabilities": None if body.capabilities is None else tuple(body.capabilities),
        "lease": None if body.lease is None else timedelta(seconds=body.lease),
        "timeout": None if body.timeout is None else timedelta(seconds=body.timeout),
    }
    return replace(WorkPlan(), **{name: value for name, value in given.items() if value is not None})


@router.get(POOLS, operation_id="list_pools")
async def list_pools(plane: Plane, kind: PoolKind | None = None) -> list[PoolShape]:
    """List all pools, oldest first."""
    return [PoolShape.model_validate(each) for each in await plane.store.pools.list(kind)]


@router.get(_POOL, operation_id="show_pool", responses=problems(404))
async def show_pool(pool_id: Id, plane: Plane) -> PoolStanding:
    """Return the state of a job pool: job counts, workers, and whether it is paused."""
    found = await plane.pool(pool_id).status()
    counts = Counts.model_validate(found.counts)
    return PoolStanding(
        pool=PoolShape.model_validate(found.pool),
        paused=found.is_paused,
        paused_types=list(found.paused_types),
        jobs=counts,
        oldest_waits=found.oldest_waits.total_seconds() if found.oldest_waits is not None else None,
        unhandled=dict(found.unhandled),
        no_handler=found.no_handler,
        trouble=found.trouble,
        workers=[worker_shape(each, found.now, found.pool) for each in found.workers],
        now=found.now,
    )


def worker_shape(worker: Worker, now: datetime, pool: PoolRow) -> WorkerShape:
    """Return a worker with its health at ``now`` (the store's time)."""
    values = {each.name: getattr(worker, each.name) for each in fields(worker)}
    shown = {"health": shown_health(worker, now, pool.thresholds), "not_started": worker.not_started}
    return WorkerShape.model_validate({**values, **shown, "terminating": worker.is_terminating})


@router.post(f"{_POOL}/pause", operation_id="pause_pool", responses=problems(404))
async def pause_pool(pool_id: Id, plane: Plane, body: Pause = UNTIL_RESUMED) -> PoolShape:
    """Pause a pool or some of its job types: workers take no further such jobs. Running jobs continue."""
    until = None if body.seconds is None else await plane.store.now() + timedelta(seconds=body.seconds)
    return PoolShape.model_validate(await plane.pool(pool_id).pause(until, types=body.types or ()))


@router.post(f"{_POOL}/resume", operation_id="resume_pool", responses=problems(404))
async def resume_pool(pool_id: Id, state: State, body: Resumption = WHOLE_POOL) -> PoolShape:
    """Resume a paused pool, or some of its paused job types: workers take these jobs again."""
    return PoolShape.model_validate(await state.pool(pool_id).resume(types=body.types or ()))


@router.delete(_POOL, status_code=204, operation_id="delete_pool", responses=problems(404, 409))
async def delete_pool(pool_id: Id, plane: Plane, unfinished: bool = False) -> None:
    """Delete a pool with its jobs, ended workers, beats and logs; refused if jobs wait or run, unless ``unfinished``."""
    await plane.pool(pool_id).delete(unfinished=unfinished)


@router.get(f"{_POOL}/workers", operation_id="list_workers", responses=problems(404))
async def list_workers(pool_id: Id, plane: Plane, live: bool = False) -> list[WorkerShape]:
    """List the workers of a pool (or of a run, by its run id), with their health."""
    pool, now = await plane.store.pools.get(PoolId(pool_id)), await plane.store.now()
    return [worker_shape(each, now, pool) for each in await plane.store.workers.list(pool.pool_id, live=live)]


@router.get(f"{_POOL}/events", operation_id="list_events", responses=problems(404))
async def list_events(
    pool_id: Id, plane: Plane, request: Request, response: Response, after: After = 0, limit: Limit = 100
) -> Page[EventShape]:
    """List a pool's events (commands to workers, changes of their state), oldest first."""
    pool = await plane.store.pools.get(PoolId(pool_id))
    rows = await plane.store.events.read(pool.pool_id, after, limit + 1)
    page = by_number(request, response, rows, limit, lambda row: row.sequence_id)
    return Page[EventShape].model_validate(page, from_attributes=True)


@router.get(f"{_POOL}/beats", operation_id="list_beats", responses=problems(404))
async def list_beats(
    pool_id: Id, plane: Plane, request: Request, response: Response, after: After = 0, limit: Limit = 100
) -> Page[BeatShape]:
    """List the beats (passes of the control loops) of a pool, with their actions and reasons, oldest first."""
    pool = await plane.store.pools.get(PoolId(pool_id))
    rows = await plane.store.beats.list(pool.pool_id, after=after, limit=limit + 1)
    page = by_number(request, response, rows, limit, lambda row: row.n)
    return Page[BeatShape].model_validate(page, from_attributes=True)


@router.get(f"{_POOL}/beats/last", operation_id="last_beat", responses=problems(404))
async def show_last_beat(pool_id: Id, plane: Plane) -> WholeBeat:
    """Return the last beat (pass of a control loop) of a pool, with the state it was based on."""
    found = await plane.store.beats.last((await plane.store.pools.get(PoolId(pool_id))).pool_id)
    if found is None:
        raise NotFound(f"pool {pool_id!r} has no beat yet: no controller has run for it")
    return WholeBeat.model_validate(found)


@router.get(f"{_POOL}/logs", operation_id="list_logs", responses=problems(404))
async def list_logs(
    pool_id: Id,
    plane: Plane,
    request: Request,
    response: Response,
    worker: Annotated[str | None, Query(max_length=200)] = None,
    level: Annotated[Level | None, Query(description="Only lines with this level or a higher one.")] = None,
    after: After = 0,
    limit: Limit = 100,
) -> Page[LogShape]:
    """List the log lines of a pool's workers, oldest first."""
    pool, name = await plane.store.pools.get(PoolId(pool_id)), WorkerId(worker) if worker else None
    rows = await plane.store.logs.list(pool.pool_id, after=after, worker_id=name, level=level, limit=limit + 1)
    page = by_number(request, response, rows, limit, lambda row: row.log_id)
    return Page[LogShape].model_validate(page, from_attributes=True)


@router.get(f"{_POOL}/samples", operation_id="list_samples", responses=problems(404))
async def list_samples(
    pool_id: Id,
    plane: Plane,
    worker: Annotated[str | None, Query(max_length=200)] = None,
    since: Annotated[Moment | None, Query(description="Only samples measured after this time.")] = None,
    failed: Annotated[bool, Query(description="Only samples with errors or failed connects.")] = False,
    limit: Limit = 100,
) -> list[SampleShape]:
    """List the raw samples of a pool's workers, oldest first. For a run's time series see /runs/{run_id}/samples."""
    pool, name = await plane.store.pools.get(PoolId(pool_id)), WorkerId(worker) if worker else None
    rows = await plane.store.samples.list(pool.pool_id, worker_id=name, since=since, failed=failed, limit=limit)
    return [SampleShape.model_validate(each) for each in rows]
