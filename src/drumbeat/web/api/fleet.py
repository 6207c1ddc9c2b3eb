"""API for fleets (autoscaled pools): workers, reasons for scaling decisions, costs, and simulations of policies."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from drumbeat.composition.offline import sentences
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import OPERATORS, PREFIX, Plane, State
from drumbeat.web.api.pools import worker_shape
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id, Moment, RequestBody, Shape
from drumbeat.web.api.shapes_pools import PoolShape
from drumbeat.web.api.shapes_runs import BeatShape, WorkerShape
from drumbeat.web.problems import prefix_field
from drumbeat.web.simulations import HIGHEST_PRICE, LONGEST, LONGEST_JOB, LONGEST_LAG, MOST_JOBS, simulate_on_server

if TYPE_CHECKING:
    from drumbeat.composition.plane import FleetService

router = checked("fleet")

_FLEET = f"{PREFIX}/fleet/{{pool_id}}"
_INTERNAL = frozenset({"state"})  #: fields of a beat's summary that only the next beat needs; not returned to clients

Arrival = Annotated[float, Field(ge=0, le=LONGEST, description="Seconds since the start of the trace.")]
Lasts = Annotated[float, Field(ge=0, le=LONGEST_JOB, description="Seconds.")]
Setting = Annotated[str, Field(max_length=200)] | int | float | bool | None


class FleetStanding(Shape):
    """The state of a fleet: its workers and its last beat (one pass of the autoscaler)."""

    pool: PoolShape
    now: datetime
    workers: list[WorkerShape]
    last: BeatShape | None


class WishShape(Shape):
    """The number of workers that one rule of the scaling policy asks for, and why."""

    rule: str
    workers: int
    reason: str


class LimitShape(Shape):
    """A limit that changed the number of workers that the rules asked for."""

    name: str
    before: int
    after: int
    reason: str


class Explained(Shape):
    """Explains a beat (one pass of the autoscaler), past or planned: inputs, rules, limits and actions."""

    at: datetime
    pool_id: str
    policy: str
    inputs: dict[str, Any]
    wishes: list[WishShape]
    limits: list[LimitShape]
    wanted: int
    actions: list[str]
    why_not: str | None
    provider_error: str | None = Field(description="Why the engine did not answer, or is not being asked now.")
    sentences: list[str]


class SpendingShape(Shape):
    """Money spent in the current hour, day and month (UTC)."""

    hour: float
    day: float
    month: float


class SpentShape(Shape):
    """Money that a fleet has spent, its current cost per hour, and its budgets."""

    price_per_hour: float
    burn_per_hour: float
    spent: SpendingShape
    max_per_hour: float | None
    max_per_day: float | None
    max_per_month: float | None


class Drain(RequestBody):
    """Ids of the workers to drain (finish their jobs, then stop); an empty list means all workers of the fleet."""

    workers: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=1000)] = Field(
        default_factory=list
    )
    within: Annotated[float, Field(gt=0, le=604_800)] | None = Field(default=None, description="Drain deadline in seconds.")


ALL_WORKERS = Drain()


class Asked(Shape):
    """Ids of the workers that this request asked to drain."""

    workers: list[str]


class Exempt(RequestBody):
    """Whether a worker is excluded from the capacity of its fleet (true) or counted again (false)."""

    exempt: bool = True


EXEMPT = Exempt()


class RetryShape(Shape):
    """A request to try the engine of a fleet again: the fleet, and the time of the request."""

    pool_id: str
    retry_at: datetime


class TraceJob(RequestBody):
    """One job of a trace: when it arrives and how long it runs."""

    arrival: Arrival
    duration: Lasts


class Simulation(RequestBody):
    """Input of a simulation: the jobs of a trace, the scaling policy, and the engine's start time and price."""

    jobs: Annotated[list[TraceJob], Field(min_length=1, max_length=MOST_JOBS)]
    policy: Literal["lag_aware", "queue_cover", "queue_ratio", "fixed"] = "lag_aware"
    settings: Annotated[dict[str, Setting], Field(max_length=50, description="Fields of the policy.")] = Field(
        default_factory=dict
    )
    spawn_lag: Annotated[float, Field(gt=0, le=LONGEST_LAG, description="Seconds until a new worker is ready.")] = 120
    jitter: Annotated[float, Field(ge=0, lt=1, description="Random variation of spawn_lag: 0.2 is ± 20 %.")] = 0
    granule: Annotated[
        float,
        Field(gt=0, le=86_400, description="Seconds that paid time is rounded up to, if `settings` has no billing_granule."),
    ] = 1
    price_per_hour: Annotated[
        float, Field(ge=0, le=HIGHEST_PRICE, description="Price of a worker, if `settings` has none.")
    ] = 0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class SimulatedShape(Shape):
    """The result of a simulation: metrics such as cost and waiting times, and the workers and queued jobs over time."""

    figures: dict[str, Any] = Field(
        description="Metrics of a fleet that starts without workers; `warm` has the same metrics for a second pass of the jobs."
    )
    course: dict[str, list[float]] = Field(description="By beat: at (s), workers, busy, queued; thinned if there are many.")


@router.get(_FLEET, operation_id="show_fleet", responses=problems(404))
async def show_fleet(pool_id: Id, plane: Plane) -> FleetStanding:
    """Return the state of a fleet: its workers and its last beat (one pass of the autoscaler)."""
    found = await (await _fleet(plane, pool_id)).status()
    last = None if found.last is None else BeatShape.model_validate(found.last)
    if last is not None:
        last.summary = {name: value for name, value in last.summary.items() if name not in _INTERNAL}
    return FleetStanding(
        pool=PoolShape.model_validate(found.pool),
        now=found.now,
        workers=[worker_shape(each, found.now, found.pool) for each in found.workers],
        last=last,
    )


@router.get(f"{_FLEET}/deeds", operation_id="fleet_deeds", responses=problems(404))
async def fleet_actions(
    pool_id: Id,
    plane: Plane,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of beats; the newest are returned.")] = 50,
) -> list[BeatShape]:
    """List the autoscaler's beats of the last day in which it took actions, newest last; only the last 5000 beats are searched.
    All beats: /pools/{pool_id}/beats."""
    return [BeatShape.model_validate(each) for each in await (await _fleet(plane, pool_id)).beats_with_actions(limit)]


@router.get(f"{_FLEET}/explain", operation_id="explain_fleet", responses=problems(404))
async def explain_fleet(
    pool_id: Id, plane: Plane, at: Annotated[Moment | None, Query(description="Explain the last beat before this time.")] = None
) -> Explained:
    """Explain a beat (one pass of the autoscaler): inputs, what each rule wanted, limits, actions or why there were none."""
    return _explained(await (await _fleet(plane, pool_id)).explain(at))


@router.get(f"{_FLEET}/plan", operation_id="plan_fleet", dependencies=OPERATORS, responses=problems(404, 409, 502))
async def plan_fleet(pool_id: Id, plane: Plane) -> Explained:
    """Preview what the autoscaler would do now. Nothing is changed. If the engine fails, `provider_error` says why."""
    async with plane.fleets.spawner(pool_id) as spawner:
        return _explained(await (await _fleet(plane, pool_id)).plan(spawner))


def _explained(found: Any) -> Explained:
    values = {name: getattr(found, name) for name in Explained.model_fields if name != "sentences"}
    return Explained.model_validate({**values, "sentences": list(sentences(found))}, from_attributes=True)


@router.get(f"{_FLEET}/spend", operation_id="spend_fleet", responses=problems(404, 409, 502))
async def fleet_spending(pool_id: Id, plane: Plane) -> SpentShape:
    """Return the money spent on workers in the current hour, day and month, and the budgets."""
    async with plane.fleets.spawner(pool_id) as spawner:
        return SpentShape.model_validate(await (await _fleet(plane, pool_id)).spend(spawner))


@router.post(f"{_FLEET}/drain", status_code=202, operation_id="drain_fleet", responses=problems(404, 409))
async def drain_workers(pool_id: Id, plane: Plane, body: Drain = ALL_WORKERS) -> Asked:
    """Drain workers: ask them to finish their jobs and stop."""
    limit = None if body.within is None else timedelta(seconds=body.within)
    return Asked(workers=list(await (await _fleet(plane, pool_id)).drain(body.workers, limit)))


@router.post(f"{_FLEET}/retry", status_code=202, operation_id="retry_fleet", responses=problems(404, 409))
async def retry_provider(pool_id: Id, plane: Plane) -> RetryShape:
    """Ask a failing engine for workers again at the next beat. If the circuit breaker is open, only one worker is started."""
    return RetryShape(pool_id=pool_id, retry_at=await (await _fleet(plane, pool_id)).retry())


@router.post(f"{_FLEET}/workers/{{worker_id}}/exempt", operation_id="exempt_worker", responses=problems(404, 409))
async def exempt_worker(pool_id: Id, worker_id: Id, plane: Plane, body: Exempt = EXEMPT) -> WorkerShape:
    """Exclude a worker from the capacity of its fleet, or include it again. An excluded worker is still monitored."""
    fleet = await _fleet(plane, pool_id)
    found, status = await fleet.exempt(worker_id, exempt=body.exempt), await fleet.status()
    return worker_shape(found, status.now, status.pool)


@router.post(f"{_FLEET}/workers/{{worker_id}}/kill", operation_id="kill_worker", responses=problems(404, 409, 502))
async def kill_worker(pool_id: Id, worker_id: Id, plane: Plane) -> WorkerShape:
    """Kill a worker now, wherever it runs. Its jobs go back to the queue."""
    async with plane.fleets.spawner(pool_id) as spawner:
        found = await (await _fleet(plane, pool_id)).kill(worker_id, spawner)
    status = await plane.fleet(pool_id).status()
    return worker_shape(found, status.now, status.pool)


async def _fleet(plane: ControlPlane, pool_id: str) -> "FleetService":
    """Return the fleet of a pool. Raises NotFound, and InvalidInput if the pool belongs to a benchmark run."""
    if (await plane.store.pools.get(PoolId(pool_id))).kind is PoolKind.BENCH:
        raise InvalidInput(f"pool_id: expected a fleet or a job pool, got the run {pool_id!r}")
    return plane.fleet(pool_id)


@router.post(f"{PREFIX}/simulate", operation_id="simulate_fleet")
async def simulate_fleet(body: Simulation, state: State) -> SimulatedShape:
    """Simulate a scaling policy on a trace of jobs. Nothing is stored or started. One simulation runs at a time."""
    provider = {
        "spawn_lag": timedelta(seconds=body.spawn_lag),
        "granule": timedelta(seconds=body.granule),
        "jitter": body.jitter,
        "price_per_hour": body.price_per_hour,
        "seed": body.seed,
    }
    jobs = [(each.arrival, each.duration) for each in body.jobs]
    settings = {name: None if value is None else str(value) for name, value in body.settings.items()}
    async with state.busy:
        with prefix_field("settings"):
            found = await simulate_on_server(jobs, body.policy, settings, **provider)
    return SimulatedShape.model_validate({"figures": found.figures(), "course": _thinned(found.outcome.series)})


def _thinned(series: Any) -> dict[str, list[float]]:
    every = max(len(series.at) // 2000, 1)
    return {name: list(getattr(series, name))[::every] for name in ("at", "workers", "busy", "queued")}
