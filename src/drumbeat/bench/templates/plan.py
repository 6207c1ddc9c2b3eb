"""From a template to the plan the orchestrator decides by, refusing what can never work."""

from dataclasses import replace
from datetime import timedelta

from drumbeat.bench.model import (
    Allocation,
    FindMaxPlan,
    GuardrailMode,
    Guardrails,
    LoadMode,
    Objective,
    Prices,
    QpsPlan,
    RunPlan,
    Scaling,
    ScalingMode,
)
from drumbeat.bench.model.capacity import HostCapacity, per_worker_cap
from drumbeat.bench.templates.document import TemplateDocument, kind_named
from drumbeat.bench.templates.fields import duration
from drumbeat.core.errors import InvalidInput

CONNECTIONS = 10  #: CONCURRENCY: in all, when none are said
_SETTLE = timedelta(seconds=2)
_QUICK = 10.0  #: milliseconds; most databases answer a simple operation within it, and not all do


def plan_of(document: TemplateDocument, capacity: HostCapacity, *, measured_latency_ms: float | None = None) -> RunPlan:
    """What a run of the template shall do, on workers whose hosts have this capacity.

    A measured latency counts before the one the template states. Raises InvalidInput for bounds that contradict each other
    and for a target that a known latency proves impossible (C30; ``plan_warnings`` says the rest).
    """
    scaling = scaling_of(document, capacity)
    plan = RunPlan(
        load_mode=document.load_mode,
        connections=_connections(document, scaling),
        warmup=duration(document.timing.warmup_seconds),
        duration=duration(document.timing.duration_seconds),
        ramp=duration(document.ramp_seconds),
        scaling=scaling,
        qps=_qps(document),
        find_max=_find_max(document),
        guardrails=_guardrails(document),
        objectives={kind_named(kind): Objective(**each.model_dump()) for kind, each in document.slo.items()},
        on_worker_lost=document.lost_policy,
        partitions=_partitions(document),
        prices=Prices(**document.prices.model_dump()),
    )
    _check_total(plan)
    _check_reachable(plan, measured_latency_ms or document.expected_latency_ms)
    return plan


def _partitions(document: TemplateDocument) -> int:
    given = document.sharding
    return (given.total_partitions or 1) if given is not None and given.enabled else 1


def scaling_of(document: TemplateDocument, capacity: HostCapacity) -> Scaling:
    """The bounds with every default put in, and what one worker may hold."""
    given = document.scaling
    if given.mode is ScalingMode.FIXED:
        return _fixed(document)
    floor, said = given.min_connections or 1, given.max_connections or _ceiling(document)
    if said is not None and said < floor:
        raise InvalidInput(
            f"scaling: min_connections > max_connections ({floor} > {said}); a worker's ceiling is concurrent_connections here"
        )
    return Scaling(
        mode=given.mode,
        min_workers=_least_workers(document),
        max_workers=given.max_workers,
        min_connections=floor,
        max_connections=given.max_connections,
        cap=said or max(floor, per_worker_cap(capacity)),
        allocation=document.allocation or _usual_allocation(document, said),
    )


def _fixed(document: TemplateDocument) -> Scaling:
    given = document.scaling
    missing = [name for name in ("min_workers", "min_connections") if getattr(given, name) is None]
    if missing or given.min_workers is None or given.min_connections is None:
        named = " and ".join(f"scaling.{name}" for name in missing)
        raise InvalidInput(
            f"{named}: FIXED mode needs both min_workers and min_connections (exactly so many workers with so many connections "
            "each); give them, or use AUTO or BOUNDED"
        )
    if document.load_mode is LoadMode.FIND_MAX_CONCURRENCY:
        return _searched(given.min_workers, given.min_connections, document.allocation or Allocation.SPREAD)
    return Scaling(
        mode=ScalingMode.FIXED,
        min_workers=given.min_workers,
        min_connections=given.min_connections,
        cap=given.min_connections,
        allocation=document.allocation or Allocation.SPREAD,
    )


def _searched(workers: int, connections: int, allocation: Allocation) -> Scaling:
    """A search cannot hold its connections fixed: exactly so many workers share each step, up to so many connections each."""
    return Scaling(
        mode=ScalingMode.BOUNDED,
        min_workers=workers,
        max_workers=workers,
        max_connections=connections,
        cap=connections,
        allocation=allocation,
    )


def _ceiling(document: TemplateDocument) -> int | None:
    """A worker's, where ``concurrent_connections`` means that."""
    return None if document.load_mode is LoadMode.CONCURRENCY else document.concurrent_connections


def _least_workers(document: TemplateDocument) -> int:
    return document.scaling.min_workers or 1


def _usual_allocation(document: TemplateDocument, ceiling: int | None) -> Allocation:
    """Find-max fills each worker first where its ceiling was found, not said (C31)."""
    packs = document.load_mode is LoadMode.FIND_MAX_CONCURRENCY and ceiling is None
    return Allocation.PACK if packs else Allocation.SPREAD


def _connections(document: TemplateDocument, scaling: Scaling) -> int | None:
    """CONCURRENCY: in all, and what FIXED says stands; else a worker's ceiling."""
    if document.load_mode is not LoadMode.CONCURRENCY:
        return scaling.cap if document.scaling.mode is ScalingMode.FIXED else document.concurrent_connections
    if scaling.mode is ScalingMode.FIXED:
        return scaling.min_workers * scaling.min_connections
    return document.concurrent_connections or CONNECTIONS


def _qps(document: TemplateDocument) -> QpsPlan:
    return QpsPlan(
        target_qps=document.target_qps,
        interval=duration(document.control_interval_seconds),
        starting_connections=document.starting_threads,
        max_increase=document.max_thread_increase,
        bounds_patience_intervals=document.bounds_patience_intervals,
    )


def _find_max(document: TemplateDocument) -> FindMaxPlan:
    given = document.find_max
    step = duration(given.step_duration_seconds)
    return FindMaxPlan(
        start_connections=given.start_connections,
        connections_increment=given.connections_increment,
        step_duration=step,
        settle=min(_SETTLE, step / 3) if given.settle_seconds is None else duration(given.settle_seconds),
        qps_stability_pct=given.qps_stability_pct,
        latency_stability_pct=given.latency_stability_pct,
        max_error_rate_pct=given.max_error_rate_pct,
        queueing=given.queueing,
        max_waiting_pct=given.max_waiting_pct,
        bisect=given.bisect,
        min_operations=given.min_operations,
        most_looks=given.most_looks,
    )


def _guardrails(document: TemplateDocument) -> Guardrails:
    given = document.guardrails
    fields = given.model_dump(exclude={"interval_seconds", "mode"})
    usual = GuardrailMode.WARN if document.scaling.mode is ScalingMode.FIXED else GuardrailMode.SOFT
    return replace(Guardrails(**fields), mode=given.mode or usual, interval=duration(given.interval_seconds))


def _check_total(plan: RunPlan) -> None:
    """CONCURRENCY within bounds: the connections must fit in."""
    most = plan.scaling.most_workers
    if plan.load_mode is not LoadMode.CONCURRENCY or most is None or plan.connections is None:
        return
    if plan.connections > most * plan.scaling.cap:
        raise InvalidInput(
            f"concurrent_connections: {plan.connections} do not fit in max {most} workers × {plan.scaling.cap} connections; "
            "raise scaling.max_workers or scaling.max_connections"
        )


def _check_reachable(plan: RunPlan, latency_ms: float | None) -> None:
    most = most_connections(plan)
    if plan.load_mode is not LoadMode.QPS or most is None or latency_ms is None:
        return
    reachable = most * 1000 / latency_ms
    if reachable < plan.qps.target_qps:
        raise InvalidInput(
            f"{_unreachable(plan)}: at {latency_ms:g} ms each they do {reachable:.0f} a second; lower target_qps, or raise "
            "scaling.max_workers or scaling.max_connections"
        )


def _unreachable(plan: RunPlan) -> str:
    scaling = plan.scaling
    return f"Target QPS {plan.qps.target_qps:g} unreachable with max {scaling.most_workers} workers × {scaling.cap} connections"


def _within(plan: RunPlan) -> str:
    scaling = plan.scaling
    return f"Target QPS {plan.qps.target_qps:g} within max {scaling.most_workers} workers × {scaling.cap} connections"


def most_connections(plan: RunPlan) -> int | None:
    """Over all workers together, as far as the bounds go; None: they do not end."""
    most = plan.scaling.most_workers
    return None if most is None else most * plan.scaling.cap


def plan_warnings(document: TemplateDocument, plan: RunPlan) -> tuple[str, ...]:
    """What of a plan may not be what its author meant."""
    looks = (_product, _raised, _latency_needed, _unused, _searches_fixed)
    found = [look(document, plan) for look in looks]
    return tuple(warning for warning in found if warning)


def _product(document: TemplateDocument, plan: RunPlan) -> str | None:
    said, stands = document.concurrent_connections, plan.connections
    is_fixed = plan.scaling.mode is ScalingMode.FIXED and plan.load_mode is LoadMode.CONCURRENCY
    if not is_fixed or said is None or said == stands:
        return None
    workers, each = plan.scaling.min_workers, plan.scaling.min_connections
    return f"concurrent_connections is {said}, but FIXED says {workers} workers × {each} connections: {stands} stands"


def _raised(document: TemplateDocument, plan: RunPlan) -> str | None:
    scaling, said = plan.scaling, document.scaling.max_connections or _ceiling(document)
    if (
        document.scaling.mode is ScalingMode.FIXED
        or said is not None
        or scaling.cap > scaling.min_connections
        or scaling.cap == 1
    ):
        return None
    return f"scaling.min_connections is {scaling.cap}, as much as a worker's host was found to take, or more"


def _latency_needed(document: TemplateDocument, plan: RunPlan) -> str | None:
    """The seeds would refuse this; only a latency can tell (C30). In their words where few operations are that quick."""
    most = most_connections(plan)
    if plan.load_mode is not LoadMode.QPS or most is None or document.expected_latency_ms or most >= plan.qps.target_qps:
        return None
    needed = most * 1000 / plan.qps.target_qps
    unknown = "no latency is known yet (expected_latency_ms)"
    if needed <= _QUICK:
        return f"{_unreachable(plan)} unless operations take less than {needed:.3g} ms on average; {unknown}"
    return f"{_within(plan)} takes operations of less than {needed:.3g} ms on average; {unknown}"


def _unused(document: TemplateDocument, plan: RunPlan) -> str | None:
    given = document.scaling
    bounds = [name for name in ("max_workers", "max_connections") if getattr(given, name) is not None]
    if given.mode is not ScalingMode.FIXED or not bounds:
        return None
    return f"{' and '.join(f'scaling.{name}' for name in bounds)} mean nothing in FIXED mode"


def _searches_fixed(document: TemplateDocument, plan: RunPlan) -> str | None:
    if document.scaling.mode is not ScalingMode.FIXED or plan.load_mode is not LoadMode.FIND_MAX_CONCURRENCY:
        return None
    workers, most = plan.scaling.min_workers, plan.scaling.cap
    return f"find-max in FIXED mode: exactly {workers} workers share each step, up to {most} connections each"
