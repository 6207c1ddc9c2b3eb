"""Pools: made, looked at, paused; what their workers, events, beats, samples and logs say."""

from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Query, Request, Response

from drumbeat.client import WorkPlan
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import NotFound
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.worker import Worker, WorkerId, judge
from drumbeat.web.api.answers import located, made, problems
from drumbeat.web.api.entry import PREFIX, Plane
from drumbeat.web.api.paging import by_number
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import After, Id, Limit, Moment, Page
from drumbeat.web.api.shapes_pools import Counts, NewPool, Pause, PoolShape, PoolStanding
from drumbeat.web.api.shapes_runs import BeatShape, EventShape, LogShape, SampleShape, WholeBeat, WorkerShape

router = checked("pools")

POOLS = f"{PREFIX}/pools"
FOR_GOOD = Pause()
_POOL = f"{POOLS}/{{pool_id}}"
_LINKS = {name: f"{name}_pool" for name in ("show", "pause", "resume")} | {"push": "push_job", "list": "list_jobs"}
Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


@router.post(
    POOLS, status_code=201, operation_id="make_pool", responses={**made(_LINKS, "pool_id", "pool_id"), **problems(409)}
)
async def make(body: NewPool, plane: Plane, response: Response) -> PoolShape:
    """Make a pool of jobs, and keep how its workers work."""
    policy: dict[str, Any] = {} if body.max_workers is None else {"max_workers": body.max_workers}
    kept = await plane.pool(body.pool_id).create(_plan(body), **policy)
    located(response, f"{POOLS}/{quote(kept.pool_id, safe='')}")
    return PoolShape.model_validate(kept)


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
    """All pools, oldest first."""
    return [PoolShape.model_validate(each) for each in await plane.store.pools.list(kind)]


@router.get(_POOL, operation_id="show_pool", responses=problems(404))
async def show(pool_id: Id, plane: Plane) -> PoolStanding:
    """How a pool of jobs stands: its jobs, its workers, whether it is paused."""
    found = await plane.pool(pool_id).status()
    counts = Counts.model_validate(found.counts)
    return PoolStanding(
        pool=PoolShape.model_validate(found.pool),
        paused=found.is_paused,
        jobs=counts,
        oldest_waits=found.oldest_waits.total_seconds() if found.oldest_waits is not None else None,
        unhandled=dict(found.unhandled),
        no_handler=found.no_handler,
        trouble=found.trouble,
        workers=[worker_shape(each, found.now, found.pool) for each in found.workers],
        now=found.now,
    )


def worker_shape(worker: Worker, now: datetime, home: PoolRow) -> WorkerShape:
    """A worker with its health by the store's clock."""
    told = {each.name: getattr(worker, each.name) for each in fields(worker)}
    health = judge(worker, now, home.thresholds) if worker.is_live else None
    return WorkerShape.model_validate({**told, "health": health, "terminating": worker.is_terminating})


@router.post(f"{_POOL}/pause", operation_id="pause_pool", responses=problems(404))
async def pause(pool_id: Id, plane: Plane, body: Pause = FOR_GOOD) -> PoolShape:
    """Let nothing be claimed from a pool; what runs goes on."""
    until = None if body.seconds is None else await plane.store.now() + timedelta(seconds=body.seconds)
    return PoolShape.model_validate(await plane.pool(pool_id).pause(until))


@router.post(f"{_POOL}/resume", operation_id="resume_pool", responses=problems(404))
async def resume(pool_id: Id, plane: Plane) -> PoolShape:
    """Let a paused pool's jobs be claimed again."""
    return PoolShape.model_validate(await plane.pool(pool_id).resume())


@router.get(f"{_POOL}/workers", operation_id="list_workers", responses=problems(404))
async def workers(pool_id: Id, plane: Plane, live: bool = False) -> list[WorkerShape]:
    """The workers of a pool, or of a run by its id, with their health."""
    home, now = await _home(plane, pool_id), await plane.store.now()
    return [worker_shape(each, now, home) for each in await plane.store.workers.list(home.pool_id, live=live)]


@router.get(f"{_POOL}/events", operation_id="list_events", responses=problems(404))
async def events(
    pool_id: Id, plane: Plane, request: Request, response: Response, after: After = 0, limit: Limit = 100
) -> Page[EventShape]:
    """A pool's events, in order."""
    home = await _home(plane, pool_id)
    rows = await plane.store.events.read(home.pool_id, after, limit + 1)
    page = by_number(request, response, rows, limit, lambda row: row.sequence_id)
    return Page[EventShape].model_validate(page, from_attributes=True)


@router.get(f"{_POOL}/beats", operation_id="list_beats", responses=problems(404))
async def beats(
    pool_id: Id, plane: Plane, request: Request, response: Response, after: After = 0, limit: Limit = 100
) -> Page[BeatShape]:
    """What a pool's controllers did, and why, oldest first."""
    home = await _home(plane, pool_id)
    rows = await plane.store.beats.list(home.pool_id, after=after, limit=limit + 1)
    page = by_number(request, response, rows, limit, lambda row: row.n)
    return Page[BeatShape].model_validate(page, from_attributes=True)


@router.get(f"{_POOL}/beats/last", operation_id="last_beat", responses=problems(404))
async def last_beat(pool_id: Id, plane: Plane) -> WholeBeat:
    """The last beat, with what it saw."""
    found = await plane.store.beats.last((await _home(plane, pool_id)).pool_id)
    if found is None:
        raise NotFound(f"pool {pool_id!r} has had no beat yet")
    return WholeBeat.model_validate(found)


@router.get(f"{_POOL}/logs", operation_id="list_logs", responses=problems(404))
async def logs(
    pool_id: Id,
    plane: Plane,
    request: Request,
    response: Response,
    worker: Annotated[str | None, Query(max_length=200)] = None,
    level: Annotated[Level | None, Query(description="This level and up.")] = None,
    after: After = 0,
    limit: Limit = 100,
) -> Page[LogShape]:
    """Log lines of a pool's workers, oldest first."""
    home, name = await _home(plane, pool_id), WorkerId(worker) if worker else None
    rows = await plane.store.logs.list(home.pool_id, after=after, worker_id=name, level=level, limit=limit + 1)
    page = by_number(request, response, rows, limit, lambda row: row.log_id)
    return Page[LogShape].model_validate(page, from_attributes=True)


@router.get(f"{_POOL}/samples", operation_id="list_samples", responses=problems(404))
async def samples(
    pool_id: Id,
    plane: Plane,
    worker: Annotated[str | None, Query(max_length=200)] = None,
    since: Annotated[Moment | None, Query(description="Measured after this.")] = None,
    failed: Annotated[bool, Query(description="Only those that count errors.")] = False,
    limit: Limit = 100,
) -> list[SampleShape]:
    """What a pool's workers measured, as they wrote it, oldest first; a run's course is at /runs/{run_id}/samples."""
    home, name = await _home(plane, pool_id), WorkerId(worker) if worker else None
    rows = await plane.store.samples.list(home.pool_id, worker_id=name, since=since, failed=failed, limit=limit)
    return [SampleShape.model_validate(each) for each in rows]


async def _home(plane: ControlPlane, pool_id: str) -> PoolRow:
    return await plane.store.pools.get(PoolId(pool_id))
