"""Makes the plan of a run from a template, and refuses settings that can never work."""

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
from drumbeat.core.errors import InvalidInput

CONNECTIONS = 10  #: load mode CONCURRENCY: total connections if the template sets none
_SETTLE = timedelta(seconds=2)
_TYPICAL_LATENCY = 10.0  #: milliseconds; a typical latency of a simple operation


def plan_of(document: TemplateDocument, capacity: HostCapacity, *, measured_latency_ms: float | None = None) -> RunPlan:
    """Return the plan for a run of the template on workers whose hosts have this capacity.

    A measured latency takes precedence over the template's expected latency. Raises InvalidInput if limits contradict each
    other, or if the target QPS is impossible at that latency.
    """
    scaling = scaling_of(document, capacity)
    plan = RunPlan(
        load_mode=document.load_mode,
        connections=_connections(document, scaling),
        warmup=timedelta(seconds=document.timing.warmup_seconds),
        duration=timedelta(seconds=document.timing.duration_seconds),
        ramp=timedelta(seconds=document.ramp_seconds),
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
    check_reachable(plan, measured_latency_ms or document.expected_latency_ms)
    return plan


def _partitions(document: TemplateDocument) -> int:
    given = document.sharding
    return (given.total_partitions or 1) if given is not None and given.enabled else 1


def scaling_of(document: TemplateDocument, capacity: HostCapacity) -> Scaling:
    """Return the limits on workers and on connections per worker, with defaults for limits that the template does not set."""
    given = document.scaling
    if given.mode is ScalingMode.FIXED:
        return _fixed(document)
    floor, requested = given.min_connections or 1, given.max_connections or _ceiling(document)
    if requested is not None and requested < floor:
        raise InvalidInput(
            f"scaling.min_connections is {floor}, but the max per worker is {requested} (scaling.max_connections or "
            "concurrent_connections); lower min_connections or raise the max"
        )
    return Scaling(
        mode=given.mode,
        min_workers=given.min_workers or 1,
        max_workers=given.max_workers,
        min_connections=floor,
        max_connections=given.max_connections,
        cap=requested or max(floor, per_worker_cap(capacity)),
        allocation=document.allocation or _default_allocation(document, requested),
    )


def _fixed(document: TemplateDocument) -> Scaling:
    given = document.scaling
    missing = [name for name in ("min_workers", "min_connections") if getattr(given, name) is None]
    if missing or given.min_workers is None or given.min_connections is None:
        named = " and ".join(f"scaling.{name}" for name in missing)
        raise InvalidInput(
            f"{named}: FIXED mode needs both min_workers and min_connections (the exact numbers of workers and of connections "
            "per worker); set them, or use AUTO or BOUNDED"
        )
    if document.load_mode is LoadMode.FIND_MAX_CONCURRENCY:
        return _fixed_find_max(given.min_workers, given.min_connections, document.allocation or Allocation.SPREAD)
    return Scaling(
        mode=ScalingMode.FIXED,
        min_workers=given.min_workers,
        min_connections=given.min_connections,
        cap=given.min_connections,
        allocation=document.allocation or Allocation.SPREAD,
    )


def _fixed_find_max(workers: int, connections: int, allocation: Allocation) -> Scaling:
    """Return the limits of find-max in FIXED mode: an exact number of workers, with up to ``connections`` connections each."""
    return Scaling(
        mode=ScalingMode.BOUNDED,
        min_workers=workers,
        max_workers=workers,
        max_connections=connections,
        cap=connections,
        allocation=allocation,
    )


def _ceiling(document: TemplateDocument) -> int | None:
    """Return ``concurrent_connections`` in load modes QPS and find-max, where it limits each worker; else None."""
    return None if document.load_mode is LoadMode.CONCURRENCY else document.concurrent_connections


def _default_allocation(document: TemplateDocument, ceiling: int | None) -> Allocation:
    """Return PACK (fill one worker after the other) for find-max without a maximum per worker; otherwise SPREAD (evenly)."""
    packs = document.load_mode is LoadMode.FIND_MAX_CONCURRENCY and ceiling is None
    return Allocation.PACK if packs else Allocation.SPREAD


def _connections(document: TemplateDocument, scaling: Scaling) -> int | None:
    """Return the total connections in load mode CONCURRENCY; in other modes, the maximum of each worker, None if not set."""
    if document.load_mode is not LoadMode.CONCURRENCY:
        return scaling.cap if document.scaling.mode is ScalingMode.FIXED else document.concurrent_connections
    if scaling.mode is ScalingMode.FIXED:
        return scaling.min_workers * scaling.min_connections
    return document.concurrent_connections or CONNECTIONS


def _qps(document: TemplateDocument) -> QpsPlan:
    return QpsPlan(
        target_qps=document.target_qps,
        interval=timedelta(seconds=document.control_interval_seconds),
        starting_connections=document.starting_threads,
        max_increase=document.max_thread_increase,
        bounds_patience_intervals=document.bounds_patience_intervals,
    )


def _find_max(document: TemplateDocument) -> FindMaxPlan:
    given = document.find_max
    step = timedelta(seconds=given.step_duration_seconds)
    return FindMaxPlan(
        start_connections=given.start_connections,
        connections_increment=given.connections_increment,
        step_duration=step,
        settle=min(_SETTLE, step / 3) if given.settle_seconds is None else timedelta(seconds=given.settle_seconds),
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
    default = GuardrailMode.WARN if document.scaling.mode is ScalingMode.FIXED else GuardrailMode.SOFT
    return replace(Guardrails(**fields), mode=given.mode or default, interval=timedelta(seconds=given.interval_seconds))


def _check_total(plan: RunPlan) -> None:
    """Raise InvalidInput if the total connections of load mode CONCURRENCY exceed the limits of the workers."""
    most = plan.scaling.most_workers
    if plan.load_mode is not LoadMode.CONCURRENCY or most is None or plan.connections is None:
        return
    if plan.connections > most * plan.scaling.cap:
        raise InvalidInput(
            f"concurrent_connections is {plan.connections}, more than max {most} workers × {plan.scaling.cap} connections; "
            "raise scaling.max_workers or scaling.max_connections"
        )


def check_reachable(plan: RunPlan, latency_ms: float | None) -> None:
    """Raise InvalidInput if the target QPS cannot be reached at this latency with as many connections as the plan allows."""
    most = most_connections(plan)
    if plan.load_mode is not LoadMode.QPS or most is None or latency_ms is None:
        return
    reachable = most * 1000 / latency_ms
    if reachable < plan.qps.target_qps:
        raise InvalidInput(
            f"{_limits(plan)}: at {latency_ms:g} ms per operation these complete only {reachable:.0f} operations per second; "
            "lower target_qps, or raise scaling.max_workers or scaling.max_connections"
        )


def _limits(plan: RunPlan, how: str = "cannot be reached with") -> str:
    scaling = plan.scaling
    return f"Target QPS {plan.qps.target_qps:g} {how} max {scaling.most_workers} workers × {scaling.cap} connections"


def most_connections(plan: RunPlan) -> int | None:
    """Return the maximum number of connections of all workers together; None: no limit."""
    most = plan.scaling.most_workers
    return None if most is None else most * plan.scaling.cap


def is_cap_estimated(document: TemplateDocument) -> bool:
    """Whether a worker's maximum of connections is estimated from the capacity of a host, as the template sets none."""
    given = document.scaling
    return given.mode is not ScalingMode.FIXED and given.max_connections is None and _ceiling(document) is None


def plan_warnings(document: TemplateDocument, plan: RunPlan) -> tuple[str, ...]:
    """Return warnings about settings that have no effect or are perhaps not intended."""
    checks = (_overridden, _above_capacity, _latency_needed, _unused, _searches_fixed)
    found = [check(document, plan) for check in checks]
    return tuple(warning for warning in found if warning)


def _overridden(document: TemplateDocument, plan: RunPlan) -> str | None:
    requested, actual = document.concurrent_connections, plan.connections
    is_fixed = plan.scaling.mode is ScalingMode.FIXED and plan.load_mode is LoadMode.CONCURRENCY
    if not is_fixed or requested is None or requested == actual:
        return None
    workers, each = plan.scaling.min_workers, plan.scaling.min_connections
    return f"concurrent_connections is {requested}, but FIXED sets {workers} workers × {each} connections; using {actual}"


def _above_capacity(document: TemplateDocument, plan: RunPlan) -> str | None:
    scaling, requested = plan.scaling, document.scaling.max_connections or _ceiling(document)
    if (
        document.scaling.mode is ScalingMode.FIXED
        or requested is not None
        or scaling.cap > scaling.min_connections
        or scaling.cap == 1
    ):
        return None
    return f"scaling.min_connections is {scaling.cap}, which is at or above the estimated capacity of a worker's host"


def _latency_needed(document: TemplateDocument, plan: RunPlan) -> str | None:
    """Warn if the target QPS can be reached only at a low latency and the template does not say which latency to expect."""
    most = most_connections(plan)
    if plan.load_mode is not LoadMode.QPS or most is None or document.expected_latency_ms or most >= plan.qps.target_qps:
        return None
    needed = most * 1000 / plan.qps.target_qps
    unknown = "no latency is known yet (expected_latency_ms)"
    if needed <= _TYPICAL_LATENCY:
        return f"{_limits(plan)} unless operations take less than {needed:.3g} ms on average; {unknown}"
    return f"{_limits(plan, 'within')} needs operations of less than {needed:.3g} ms on average; {unknown}"


def _unused(document: TemplateDocument, plan: RunPlan) -> str | None:
    given = document.scaling
    bounds = [name for name in ("max_workers", "max_connections") if getattr(given, name) is not None]
    if given.mode is not ScalingMode.FIXED or not bounds:
        return None
    return f"{' and '.join(f'scaling.{name}' for name in bounds)}: not used in FIXED mode"


def _searches_fixed(document: TemplateDocument, plan: RunPlan) -> str | None:
    if document.scaling.mode is not ScalingMode.FIXED or plan.load_mode is not LoadMode.FIND_MAX_CONCURRENCY:
        return None
    workers, most = plan.scaling.min_workers, plan.scaling.cap
    return f"find-max in FIXED mode: exactly {workers} workers share each step, up to {most} connections each"
