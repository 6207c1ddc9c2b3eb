"""Fleets: how many workers a pool has, why, what they cost, and what another policy would have done."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from drumbeat.composition.offline import sentences
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import OPERATORS, PREFIX, InHouse, Plane
from drumbeat.web.api.pools import worker_shape
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id, Moment, RequestBody, Shape
from drumbeat.web.api.shapes_pools import PoolShape
from drumbeat.web.api.shapes_runs import BeatShape, WorkerShape
from drumbeat.web.problems import naming
from drumbeat.web.simulations import HIGHEST_PRICE, LONGEST, LONGEST_JOB, LONGEST_LAG, MOST_JOBS, simulated

if TYPE_CHECKING:
    from drumbeat.composition.plane import FleetService

router = checked("fleet")

_FLEET = f"{PREFIX}/fleet/{{pool_id}}"
_UNSEEN = frozenset({"state"})  #: of a beat's summary: what it leaves to the next, for no reader

Arrival = Annotated[float, Field(ge=0, le=LONGEST, description="Seconds since the trace began.")]
Lasts = Annotated[float, Field(ge=0, le=LONGEST_JOB, description="Seconds.")]
Setting = Annotated[str, Field(max_length=200)] | int | float | bool | None


class FleetStanding(Shape):
    """How a fleet stands: its workers, and what the last beat saw and did."""

    pool: PoolShape
    now: datetime
    workers: list[WorkerShape]
    last: BeatShape | None


class WishShape(Shape):
    """What one rule wanted."""

    rule: str
    workers: int
    reason: str


class LimitShape(Shape):
    """What bound it."""

    name: str
    before: int
    after: int
    reason: str


class Explained(Shape):
    """Why a beat did what it did, or what one would do now."""

    at: datetime
    pool_id: str
    policy: str
    inputs: dict[str, Any]
    wishes: list[WishShape]
    limits: list[LimitShape]
    wanted: int
    actions: list[str]
    why_not: str | None
    provider_error: str | None = Field(description="Why the provider could not be asked, or is not asked now.")
    sentences: list[str]


class SpendingShape(Shape):
    """What was spent in the running hour, day and month (UTC)."""

    hour: float
    day: float
    month: float


class SpentShape(Shape):
    """What a fleet has cost, what it costs now, and what it may."""

    price_per_hour: float
    burn_per_hour: float
    spent: SpendingShape
    max_per_hour: float | None
    max_per_day: float | None
    max_per_month: float | None


class Drain(RequestBody):
    """Who shall leave; nobody named: everyone."""

    workers: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=1000)] = Field(
        default_factory=list
    )
    within: Annotated[float, Field(gt=0, le=604_800)] | None = Field(default=None, description="Seconds.")


EVERYBODY = Drain()


class Asked(Shape):
    """Workers that were newly asked."""

    workers: list[str]


class Exempt(RequestBody):
    """Whether a worker counts for nothing."""

    exempt: bool = True


EXEMPT = Exempt()


class RetryShape(Shape):
    """When the provider was asked to be tried again."""

    pool_id: str
    retry_at: datetime


class TraceJob(RequestBody):
    """A job of a trace."""

    arrival: Arrival
    duration: Lasts


class Simulation(RequestBody):
    """Jobs to be run on virtual time, under a policy."""

    jobs: Annotated[list[TraceJob], Field(min_length=1, max_length=MOST_JOBS)]
    policy: Literal["lag_aware", "queue_cover", "queue_ratio", "fixed"] = "lag_aware"
    settings: Annotated[dict[str, Setting], Field(max_length=50, description="Fields of the policy.")] = Field(
        default_factory=dict
    )
    spawn_lag: Annotated[float, Field(gt=0, le=LONGEST_LAG)] = 120
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0
    granule: Annotated[float, Field(gt=0, le=86_400)] = 1
    price_per_hour: Annotated[float, Field(ge=0, le=HIGHEST_PRICE)] = 0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class SimulatedShape(Shape):
    """What it came to: cost and wait together, since either alone is easy."""

    figures: dict[str, Any] = Field(
        description="Of a fleet that begins without workers; under `warm` the same figures when the jobs come a second time."
    )
    course: dict[str, list[float]] = Field(description="Beat by beat: at, workers, busy, queued; at most 2000 beats of it.")


@router.get(_FLEET, operation_id="show_fleet", responses=problems(404))
async def show(pool_id: Id, plane: Plane) -> FleetStanding:
    """How a fleet stands."""
    found = await (await _desk(plane, pool_id)).status()
    last = None if found.last is None else BeatShape.model_validate(found.last)
    if last is not None:
        last.summary = {name: value for name, value in last.summary.items() if name not in _UNSEEN}
    return FleetStanding(
        pool=PoolShape.model_validate(found.pool),
        now=found.now,
        workers=[worker_shape(each, found.now, found.pool) for each in found.workers],
        last=last,
    )


@router.get(f"{_FLEET}/deeds", operation_id="fleet_deeds", responses=problems(404))
async def deeds(
    pool_id: Id,
    plane: Plane,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many of the last beats that did something.")] = 50,
) -> list[BeatShape]:
    """What beats of the last day did, newest last; every beat is at /pools/{pool_id}/beats."""
    return [BeatShape.model_validate(each) for each in (await (await _desk(plane, pool_id)).deeds())[-limit:]]


@router.get(f"{_FLEET}/explain", operation_id="explain_fleet", responses=problems(404))
async def explain(
    pool_id: Id, plane: Plane, at: Annotated[Moment | None, Query(description="The last beat before this moment.")] = None
) -> Explained:
    """Why a beat did what it did: what it saw, what each rule wanted, which limit bound it, why nothing."""
    return _explained(await (await _desk(plane, pool_id)).explain(at))


@router.get(f"{_FLEET}/plan", operation_id="plan_fleet", dependencies=OPERATORS, responses=problems(404, 409, 502))
async def plan(pool_id: Id, plane: Plane) -> Explained:
    """What a beat would do now. Nothing is written or changed. A provider that fails is in ``provider_error``."""
    async with plane.fleets.spawner(pool_id) as spawner:
        return _explained(await (await _desk(plane, pool_id)).plan(spawner))


def _explained(found: Any) -> Explained:
    told = {name: getattr(found, name) for name in Explained.model_fields if name != "sentences"}
    return Explained.model_validate({**told, "sentences": list(sentences(found))}, from_attributes=True)


@router.get(f"{_FLEET}/spend", operation_id="spend_fleet", responses=problems(404, 409, 502))
async def spend(pool_id: Id, plane: Plane) -> SpentShape:
    """What the workers have cost in this hour, day and month, and what they may."""
    async with plane.fleets.spawner(pool_id) as spawner:
        return SpentShape.model_validate(await (await _desk(plane, pool_id)).spend(spawner))


@router.post(f"{_FLEET}/drain", status_code=202, operation_id="drain_fleet", responses=problems(404, 409))
async def drain(pool_id: Id, plane: Plane, body: Drain = EVERYBODY) -> Asked:
    """Ask workers to finish what they hold and leave."""
    limit = None if body.within is None else timedelta(seconds=body.within)
    return Asked(workers=list(await (await _desk(plane, pool_id)).drain(body.workers, limit)))


@router.post(f"{_FLEET}/retry", status_code=202, operation_id="retry_fleet", responses=problems(404, 409))
async def retry(pool_id: Id, plane: Plane) -> RetryShape:
    """Have the next beat ask the provider again, whatever it refused, and try a worker though the breaker is open."""
    return RetryShape(pool_id=pool_id, retry_at=await (await _desk(plane, pool_id)).retry())


@router.post(f"{_FLEET}/workers/{{worker_id}}/exempt", operation_id="exempt_worker", responses=problems(404, 409))
async def exempt(pool_id: Id, worker_id: Id, plane: Plane, body: Exempt = EXEMPT) -> WorkerShape:
    """Have a worker not count as capacity, or count again; it is watched like any other."""
    desk = await _desk(plane, pool_id)
    found, status = await desk.exempt(worker_id, exempt=body.exempt), await desk.status()
    return worker_shape(found, status.now, status.pool)


@router.post(f"{_FLEET}/workers/{{worker_id}}/kill", operation_id="kill_worker", responses=problems(404, 409, 502))
async def kill(pool_id: Id, worker_id: Id, plane: Plane) -> WorkerShape:
    """End a worker now, wherever it runs; its jobs go back to the queue."""
    async with plane.fleets.spawner(pool_id) as spawner:
        found = await (await _desk(plane, pool_id)).kill(worker_id, spawner)
    status = await plane.fleet(pool_id).status()
    return worker_shape(found, status.now, status.pool)


async def _desk(plane: ControlPlane, pool_id: str) -> "FleetService":
    """The desk of a pool that is no run's: those have a controller of another kind. Raises NotFound, InvalidInput."""
    if (await plane.store.pools.get(PoolId(pool_id))).kind is PoolKind.BENCH:
        raise InvalidInput(f"pool_id: expected a fleet or a pool of jobs, got {pool_id!r}, which is a run's")
    return plane.fleet(pool_id)


@router.post(f"{PREFIX}/simulate", operation_id="simulate_fleet")
async def simulate(body: Simulation, house: InHouse) -> SimulatedShape:
    """What a policy would cost on a trace, and how long jobs would wait. Nothing is kept or started; one at a time."""
    around = {
        "spawn_lag": timedelta(seconds=body.spawn_lag),
        "granule": timedelta(seconds=body.granule),
        "jitter": body.jitter,
        "price_per_hour": body.price_per_hour,
        "seed": body.seed,
    }
    jobs = [(each.arrival, each.duration) for each in body.jobs]
    settings = {name: None if value is None else str(value) for name, value in body.settings.items()}
    async with house.busy:
        with naming("settings"):
            found = await simulated(jobs, body.policy, settings, **around)
    return SimulatedShape.model_validate({"figures": found.figures(), "course": _course(found.outcome.course)})


def _course(course: Any) -> dict[str, list[float]]:
    every = max(len(course.at) // 2000, 1)
    return {name: list(getattr(course, name))[::every] for name in ("at", "workers", "busy", "queued")}
