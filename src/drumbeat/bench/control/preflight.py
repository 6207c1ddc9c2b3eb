"""Computes what a run would start, with errors and warnings, without starting it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import ceil, log2

from drumbeat.bench.control.inspect import Inspection
from drumbeat.bench.control.modes import qps
from drumbeat.bench.control.modes.allocate import allocate, workers_for
from drumbeat.bench.model import ALL_KINDS, Load, LoadMode, RunPlan, ScalingMode
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.targets.urls import holds_password
from drumbeat.bench.templates.document import PASSWORD_REFUSED, TemplateDocument
from drumbeat.bench.templates.plan import is_cap_estimated, most_connections, plan_warnings
from drumbeat.bench.templates.run_config import missing_fields
from drumbeat.bench.values.draw import VIRTUAL_SLOTS
from drumbeat.bench.workloads.sharding import check_sharding, sharding_of
from drumbeat.core.engine import DEFAULT_ENGINE, EngineCapacity
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Phase

_ONE_WRITER = frozenset({"sqlite", "duckdb"})
_BEAT = timedelta(seconds=1)  #: how long an orchestrator may take to notice that a step is over
_OBSERVED_BY = 5  #: connections of the orchestrator and the workers, besides those of the load


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPhase:
    """One phase of a run and its planned duration; None if that is not known in advance."""

    phase: Phase
    duration: timedelta | None = None
    is_estimate: bool = False  #: the real duration may differ, as a search may end early or repeat measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The workers, connections and phases that a run would have. With ``errors`` it would fail; ``warnings`` are advice."""

    load_mode: LoadMode
    workers: int  #: started at the beginning
    most_workers: int | None  #: None: no limit
    connections: tuple[int, ...]  #: per worker, at the start
    most_connections: int | None  #: of all workers together; None: no limit
    cap: int  #: most connections of one worker
    phases: tuple[PlannedPhase, ...]
    estimated_cost: float | None = None  #: None: no prices, or the duration is not known
    currency: str = "USD"
    engine: str = DEFAULT_ENGINE  #: the engine that runs the workers, or several as ``a,b``
    slots: int | None = None  #: how many workers the engine can run at once; None: no limit, or not known
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def can_proceed(self) -> bool:
        return not self.errors

    @property
    def total_connections(self) -> int:
        return sum(self.connections)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """The engine of a planned run, and the host (``model``) from whose size the connections per worker are estimated."""

    capacity: EngineCapacity = field(default_factory=EngineCapacity)
    model: HostCapacity | None = None  #: None: not known


def within_slots(plan: RunPlan, slots: int | None) -> RunPlan:
    """Return the plan with at most ``slots`` workers. The plan is unchanged in FIXED mode, or if the run starts with more
    workers than ``slots``; ``preflight`` then reports an error."""
    scaling = plan.scaling
    if slots is None or scaling.mode is ScalingMode.FIXED or len(starting_connections(plan)) > slots:
        return plan
    most = slots if scaling.max_workers is None else min(scaling.max_workers, slots)
    return replace(plan, scaling=replace(scaling, max_workers=most))


def preflight(document: TemplateDocument, plan: RunPlan, inspection: Inspection, engine: EnginePlan | None = None) -> Preflight:
    """Compute what a run would start, with errors and warnings from its plan and the inspection of its database. Pure."""
    engine = engine or EnginePlan()
    connections = starting_connections(plan)
    ready = Preflight(
        load_mode=plan.load_mode,
        workers=len(connections),
        most_workers=most_workers(plan),
        connections=connections,
        most_connections=most_held(plan),
        cap=plan.scaling.cap,
        phases=phases(plan),
        estimated_cost=estimated_cost(plan),
        currency=plan.prices.currency,
        engine=engine.capacity.engines,
        slots=engine.capacity.slots,
    )
    return replace(
        ready,
        errors=(*_slot_errors(ready, engine.capacity), *_errors(document, plan, ready, inspection)),
        warnings=(*_engine_warnings(document, ready, engine), *_warnings(document, plan, ready, inspection)),
    )


def starting_connections(plan: RunPlan) -> tuple[int, ...]:
    """Return how many connections each worker opens at the start of the run."""
    scaling = plan.scaling
    floors = scaling.min_connections * max(1, scaling.min_workers)
    total = {
        LoadMode.CONCURRENCY: plan.connections or floors,
        LoadMode.QPS: qps.starting_connections(plan),
        LoadMode.FIND_MAX_CONCURRENCY: plan.find_max.start_connections,
    }[plan.load_mode]
    return tuple(allocate(total, range(workers_for(total, scaling)), scaling).values())


def most_workers(plan: RunPlan) -> int | None:
    """Return the maximum number of workers of a run; None: no limit. A CONCURRENCY run never adds workers."""
    return len(starting_connections(plan)) if plan.load_mode is LoadMode.CONCURRENCY else plan.scaling.most_workers


def most_held(plan: RunPlan) -> int | None:
    return sum(starting_connections(plan)) if plan.load_mode is LoadMode.CONCURRENCY else most_connections(plan)


def phases(plan: RunPlan) -> tuple[PlannedPhase, ...]:
    duration = measured(plan)
    return (
        PlannedPhase(phase=Phase.PREPARING),
        PlannedPhase(phase=Phase.WARMUP, duration=plan.warmup, is_estimate=qps.settles_first(plan)),
        PlannedPhase(phase=Phase.MEASUREMENT, duration=duration, is_estimate=duration is not None and _searches(plan)),
        PlannedPhase(phase=Phase.COOLDOWN),
        PlannedPhase(phase=Phase.PROCESSING),
    )


def measured(plan: RunPlan) -> timedelta | None:
    """Return how long the measurement takes; None if that is not known.

    For a find-max run: the time of every step up to the most connections, of verifying the best step, and of the bisection.
    """
    if not _searches(plan):
        return plan.duration
    most, search = most_connections(plan), plan.find_max
    if most is None:
        return None
    above = max(0, most - search.start_connections)
    steps = 1 + ceil(above / search.connections_increment)
    halvings = ceil(log2(min(above, search.connections_increment))) if above and search.bisect else 0
    return (steps + bool(above) + halvings) * (search.settle + search.step_duration + _BEAT)


def _searches(plan: RunPlan) -> bool:
    return plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY


def estimated_cost(plan: RunPlan) -> float | None:
    """Estimate the cost of a run: hours of workers and of the database times their prices, with the most workers allowed.

    If the number of workers has no limit, the workers at the start are counted. None if the duration or the prices are unknown.
    """
    prices, time = plan.prices, measured(plan)
    workers = most_workers(plan) or len(starting_connections(plan))
    if time is None or (prices.worker_hour is None and prices.target_hour is None):
        return None
    hours = (plan.warmup + time) / timedelta(hours=1)
    return hours * (workers * (prices.worker_hour or 0.0) + (prices.target_hour or 0.0))


def _slot_errors(ready: Preflight, capacity: EngineCapacity) -> Iterator[str]:
    if capacity.slots is not None and ready.workers > capacity.slots:
        yield (
            f"the run needs {ready.workers} workers, but {capacity.text}; use fewer workers (scaling.min_workers), "
            "more connections per worker (scaling.max_connections), or raise the slots of the engine"
        )


def _engine_warnings(document: TemplateDocument, ready: Preflight, engine: EnginePlan) -> Iterator[str]:
    capacity, model, most = engine.capacity, engine.model, document.scaling.max_workers
    if capacity.slots is not None and most is not None and most > capacity.slots >= ready.workers:
        yield f"scaling.max_workers is {most}, but {capacity.text}; at most {capacity.slots} workers are started"
    if capacity.elsewhere and model is not None and is_cap_estimated(document):
        yield (
            f"at most {ready.cap} connections per worker, estimated from this machine ({model.cpu_cores:g} cores, "
            f"{model.memory_gb:.1f} GiB), as the hosts of engine {capacity.engines} are not known; if they differ, set "
            "scaling.max_connections"
        )


def _errors(document: TemplateDocument, plan: RunPlan, ready: Preflight, inspection: Inspection) -> Iterator[str]:
    yield from missing_fields(document)
    if holds_password(document.target.url):
        yield PASSWORD_REFUSED
    most = max(ready.workers, ready.most_workers or 0)
    if most > VIRTUAL_SLOTS:
        yield (
            f"{most} workers are too many: keys are distributed over at most {VIRTUAL_SLOTS} workers; "
            "raise scaling.max_connections or lower scaling.max_workers"
        )
    if most > 1 and inspection.one_process:
        yield f"{inspection.product} can be used by one process at a time, but the run can have {most} workers; use one worker"
    if inspection.problem is not None:
        yield inspection.problem
    if inspection.load is not None:
        yield from _unknown_objectives(plan, inspection.load)
        yield from _sharding_errors(document, inspection.load)


def _warnings(document: TemplateDocument, plan: RunPlan, ready: Preflight, inspection: Inspection) -> Iterator[str]:
    yield from plan_warnings(document, plan)
    if plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY and not plan.objectives:
        yield "no slo: the search looks only at stability and might accept slow operations; set slo.overall.p95_ms"
    if most_workers(plan) is None and inspection.one_process:
        yield f"{inspection.product} can be used by one process at a time; set scaling.max_workers to 1"
    is_known = inspection.location is not None
    if document.target.use_cached_result is False and is_known and inspection.product not in ("mysql", "snowflake"):
        yield f"target.use_cached_result: false has no effect: {inspection.product} has no query cache"
    if document.target.warehouse is not None and is_known and inspection.product != "snowflake":
        yield f"target.warehouse has no effect: {inspection.product} has no warehouses"
    yield from _too_many_connections(ready, inspection)
    yield from inspection.size_warnings
    yield from _one_writer(ready, inspection)


def _sharding_errors(document: TemplateDocument, load: Load) -> Iterator[str]:
    try:
        check_sharding(load, sharding_of(document.sharding.model_dump() if document.sharding else None))
    except InvalidInput as exc:
        yield str(exc)


def _unknown_objectives(plan: RunPlan, load: Load) -> Iterator[str]:
    kinds = [str(each.kind) for each in load.used]
    for kind in plan.objectives:
        if kind != ALL_KINDS and kind not in kinds:
            yield f"slo.{kind}: the workload has no such operation; expected overall, {', '.join(kinds)}"


def _one_writer(ready: Preflight, inspection: Inspection) -> Iterator[str]:
    writes = [each.kind for each in inspection.load.used if not each.reads] if inspection.load is not None else []
    most = max(ready.total_connections, ready.most_connections or 0)
    if inspection.product in _ONE_WRITER and writes and most > 1:
        yield (
            f"{inspection.product} lets one connection write at a time: of {most} connections that run {', '.join(writes)}, "
            "all but one wait or fail"
        )


def _too_many_connections(ready: Preflight, inspection: Inspection) -> Iterator[str]:
    """Warn if the run needs more connections than the server accepts. Not an error, as a connection pooler might allow more."""
    free, needed = inspection.free_connections, max(ready.total_connections, ready.most_connections or 0) + _OBSERVED_BY
    if free is not None and needed > free:
        yield (
            f"{needed} connections ({_OBSERVED_BY} of them to observe the database) are more than the {max(free, 0)} that "
            f"{inspection.location} has free; raise its max_connections, use a connection pooler, or use fewer connections"
        )
