"""What a run would start and what to beware of, without starting it (B81, B86)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil, log2
from urllib.parse import urlsplit

from drumbeat.bench.config import load_of
from drumbeat.bench.model import ALL_KINDS, Load, LoadMode, RunPlan
from drumbeat.bench.modes.allocate import allocate, workers_for
from drumbeat.bench.modes.qps import settles_first
from drumbeat.bench.sharding import check_sharding, sharding_of
from drumbeat.bench.standard import standard
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.template.document import PASSWORD_REFUSED, TemplateDocument, holds_password
from drumbeat.bench.template.plan import most_connections, plan_warnings
from drumbeat.bench.template.resolve import resolved
from drumbeat.bench.template.run_config import missing_fields
from drumbeat.bench.too_small import too_small
from drumbeat.bench.values import VIRTUAL_SLOTS
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Phase

_POSTGRES_LIMIT = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())
"""
_MYSQL_LIMIT = "SELECT @@max_connections"
_MYSQL_USED = "SHOW GLOBAL STATUS LIKE 'Threads_connected'"
_ONE_WRITER = frozenset({"sqlite", "duckdb"})
_ONE_PROCESS = frozenset({"duckdb"})
_BEAT = timedelta(seconds=1)  #: until an orchestrator has noticed that a step is over
_OBSERVED_BY = 5  #: connections of the orchestrator and the workers' own, beside the load's


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPhase:
    """One phase and how long it takes; None: as long as it takes."""

    phase: Phase
    duration: timedelta | None = None
    is_estimate: bool = False  #: less if a search ends early, more where it has to look at a level again


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What would be started. A run with ``errors`` cannot succeed; ``warnings`` are for whoever starts it."""

    load_mode: LoadMode
    workers: int  #: at the start
    most_workers: int | None  #: None: as many as it takes
    connections: tuple[int, ...]  #: of each worker, at the start
    most_connections: int | None  #: in all
    cap: int  #: what one worker may hold
    phases: tuple[PlannedPhase, ...]
    estimated_cost: float | None = None  #: None: no prices, or no end is known
    currency: str = "USD"
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def can_proceed(self) -> bool:
        return not self.errors

    @property
    def total_connections(self) -> int:
        return sum(self.connections)


async def preflight(document: TemplateDocument, plan: RunPlan, target: Target | None = None) -> Preflight:
    """Look at a plan and, where it is open, at its database. Nothing is changed there and no load is made."""
    connections = starting_connections(plan)
    most = most_workers(plan)
    ready = Preflight(
        load_mode=plan.load_mode,
        workers=len(connections),
        most_workers=most,
        connections=connections,
        most_connections=most_held(plan),
        cap=plan.scaling.cap,
        phases=phases(plan),
        estimated_cost=estimated_cost(plan),
        currency=plan.prices.currency,
    )
    errors, warnings = list(_plan_errors(document, ready, target)), list(_warnings(document, plan, target))
    load = await _load(document, target, errors)
    if load is not None:
        errors += _unknown_objectives(plan, load)
        errors += _sharding_errors(document, load)
    if target is not None:
        warnings += await _too_many(target, ready)
        warnings += await _too_small(document, target)
    warnings += _one_writer(document, target, load, ready)
    return replace(ready, errors=tuple(errors), warnings=tuple(warnings))


def starting_connections(plan: RunPlan) -> tuple[int, ...]:
    """What each worker holds at first."""
    scaling = plan.scaling
    floors = scaling.min_connections * max(1, scaling.min_workers)
    total = {
        LoadMode.CONCURRENCY: plan.connections or floors,
        LoadMode.QPS: plan.qps.starting_connections or floors,
        LoadMode.FIND_MAX_CONCURRENCY: plan.find_max.start_connections,
    }[plan.load_mode]
    return tuple(allocate(total, range(workers_for(total, scaling)), scaling).values())


def most_workers(plan: RunPlan) -> int | None:
    """CONCURRENCY never adds any."""
    return len(starting_connections(plan)) if plan.load_mode is LoadMode.CONCURRENCY else plan.scaling.most_workers


def most_held(plan: RunPlan) -> int | None:
    return sum(starting_connections(plan)) if plan.load_mode is LoadMode.CONCURRENCY else most_connections(plan)


def phases(plan: RunPlan) -> tuple[PlannedPhase, ...]:
    lasts = measured(plan)
    return (
        PlannedPhase(phase=Phase.PREPARING),
        PlannedPhase(phase=Phase.WARMUP, duration=plan.warmup, is_estimate=settles_first(plan)),
        PlannedPhase(phase=Phase.MEASUREMENT, duration=lasts, is_estimate=lasts is not None and _searches(plan)),
        PlannedPhase(phase=Phase.COOLDOWN),
        PlannedPhase(phase=Phase.PROCESSING),
    )


def measured(plan: RunPlan) -> timedelta | None:
    """How long the measurement takes.

    Find-max: every step up to the bounds, the best one again, and the bisection, each looked at once; without bounds
    nobody knows.
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
    """Worker-hours and target-hours times their prices, for as long as it may take and as many workers as there may be.

    Where nothing bounds the workers, those at the start count.
    """
    prices, time = plan.prices, measured(plan)
    workers = most_workers(plan) or len(starting_connections(plan))
    if time is None or (prices.worker_hour is None and prices.target_hour is None):
        return None
    hours = (plan.warmup + time) / timedelta(hours=1)
    return hours * (workers * (prices.worker_hour or 0.0) + (prices.target_hour or 0.0))


def _plan_errors(document: TemplateDocument, ready: Preflight, target: Target | None) -> Iterator[str]:
    yield from missing_fields(document)
    if holds_password(document.target.url):
        yield PASSWORD_REFUSED
    most = max(ready.workers, ready.most_workers or 0)
    if most > VIRTUAL_SLOTS:
        yield (
            f"{most} workers are more than the {VIRTUAL_SLOTS} that keys are shared out to; "
            "raise scaling.max_connections, or lower scaling.max_workers"
        )
    if most > 1 and (alone := _for_one_process(document, target)):
        yield f"{alone} can be used by one process at a time, and {most} workers may be started; use one"


def _warnings(document: TemplateDocument, plan: RunPlan, target: Target | None) -> Iterator[str]:
    yield from plan_warnings(document, plan)
    if plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY and not plan.objectives:
        yield "no slo: the search ends by stability alone, however slow operations have become; set slo.overall.p95_ms"
    if most_workers(plan) is None and (alone := _for_one_process(document, target)):
        yield f"{alone} can be used by one process at a time; set scaling.max_workers to 1"
    if not document.target.use_cached_result and target is not None and target.traits.name != "mysql":
        yield f"target.use_cached_result: false changes nothing: {target.traits.name} has no query cache"


def _sharding_errors(document: TemplateDocument, load: Load) -> Iterator[str]:
    try:
        check_sharding(load, sharding_of(document.sharding.model_dump() if document.sharding else None))
    except InvalidInput as exc:
        yield str(exc)


async def _load(document: TemplateDocument, target: Target | None, errors: list[str]) -> Load | None:
    """The load, its statements prepared by the database where that is open."""
    if not document.workload.ways:
        return None
    try:
        if target is None:
            return _load_unseen(document)
        load = load_of((await resolved(document, target)).workload.model_dump(mode="json", exclude_none=True))
        if document.table:
            await target.describe(document.table)
        await target.check(load)
        return load
    except InvalidInput as exc:
        errors.append(str(exc))
        return None


def _load_unseen(document: TemplateDocument) -> Load | None:
    """The load as far as it is known without its database."""
    if not document.workload.standard and not document.workload.operations:
        return None
    return load_of(document.workload.model_dump(mode="json", exclude_none=True))


def _unknown_objectives(plan: RunPlan, load: Load) -> Iterator[str]:
    kinds = [str(each.kind) for each in load.used]
    for kind in plan.objectives:
        if kind != ALL_KINDS and kind not in kinds:
            yield f"slo.{kind}: the workload has no such operation; expected overall, {', '.join(kinds)}"


def _one_writer(document: TemplateDocument, target: Target | None, load: Load | None, ready: Preflight) -> Iterator[str]:
    name = target.traits.name if target is not None else _scheme(document)
    writes = [each.kind for each in load.used if not each.reads] if load is not None else []
    most = max(ready.total_connections, ready.most_connections or 0)
    if name in _ONE_WRITER and writes and most > 1:
        yield f"{name} lets one connection write at a time: of {most} that do {', '.join(writes)} the others wait, or fail"


async def _too_many(target: Target, ready: Preflight) -> list[str]:
    """More connections than the server has room for. A pooler in between may have its own, so this only warns."""
    room = await free_connections(target)
    wanted = max(ready.total_connections, ready.most_connections or 0) + _OBSERVED_BY
    if room is None or wanted <= room:
        return []
    return [
        f"{wanted} connections ({_OBSERVED_BY} of them to observe) are more than the {max(room, 0)} that {target.location} has "
        "free; raise its max_connections, go through a pooler, or lower the load's"
    ]


async def _too_small(document: TemplateDocument, target: Target) -> tuple[str, ...]:
    """Less in the tables of a standard workload than it will ask for. One that is missing is an error, told of already."""
    if not document.workload.standard:
        return ()
    try:
        return await too_small(target, standard(document.workload.standard, document.workload.scale))
    except InvalidInput:
        return ()


async def free_connections(target: Target) -> int | None:
    """How many more connections the server would take; None where it has no such limit."""
    match target.traits.name:
        case "postgresql":
            limit, used = (await target.fetch(_POSTGRES_LIMIT))[0]
            return int(limit) - int(used)
        case "mysql":
            limit = (await target.fetch(_MYSQL_LIMIT))[0][0]
            used = (await target.fetch(_MYSQL_USED))[0][1]
            return int(limit) - int(used)
        case _:
            return None


def _for_one_process(document: TemplateDocument, target: Target | None) -> str | None:
    """The database's name if only one worker can use it."""
    if target is not None:
        return None if target.traits.processes else target.traits.name
    return _scheme(document) if _scheme(document) in _ONE_PROCESS else None


def _scheme(document: TemplateDocument) -> str:
    """The kind of database by its URL, whether or not it is open."""
    try:
        return urlsplit(document.target.url or "").scheme.lower()
    except ValueError:
        return ""
