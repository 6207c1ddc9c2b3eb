"""CPU and memory guardrails: take connections from overloaded workers, or fail the run. Pure: no clock, no I/O, no log.

Workers with fresh figures are checked once per interval. A worker over the CPU or memory threshold is overloaded. In soft mode:

- *no worker overloaded*: ``normal``; ``degraded`` while a worker still has a lowered ceiling (limit of its connections).
- *some overloaded*: ``warning``. A worker overloaded for ``act_patience`` checks gets ``back_off_percent`` fewer connections
  (a back-off), and one more worker is requested. If the bounds allow no more workers, the run is ``degraded``.
- *enough overloaded to fail* (``fail_threshold``): ``critical``. Back-offs continue, as they might save the run.
- *enough overloaded to fail for ``patience_intervals`` checks*: the run fails with RESOURCE_EXHAUSTION.

More sessions waiting in the server than ``max_queued_percent`` of the connections for ``patience_intervals`` checks fail the
run with SERVER_QUEUE: more load would only measure the queue.

After a back-off a worker is not backed off again for some checks. When it has stayed below the thresholds for a number of
checks, its ceiling is raised step by step; each further back-off doubles that number. Hard mode fails the run at the first
overload; warn mode only reports it. If a run has a single worker, its overload is enough to fail: the worker is backed off
first, then the run fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from math import ceil, floor
from typing import Any

from drumbeat.bench.model.guarding import (
    GuardAction,
    GuardedWorker,
    GuardFailure,
    GuardrailDecision,
    GuardrailState,
    GuardState,
    GuardView,
    Overload,
    WorkerGuard,
)
from drumbeat.bench.model.plan import FailThreshold, GuardrailMode, ScalingMode
from drumbeat.core.event import EventType, NewEvent, Scope
from drumbeat.core.worker import WorkerId

LEFT_ALONE = 3  #: checks between two back-offs (cuts of connections) of the same worker
CALM = 3  #: checks below the thresholds before a worker gets connections back; doubled by each further back-off …
MOST_DOUBLINGS = 4  #: … but doubled at most this many times
KEPT_ACTIONS = 100


def guard(view: GuardView, state: GuardState) -> GuardrailDecision:
    """Check all workers' CPU and memory. Returns limits on their connections, or a failure, and the state to store."""
    if not view.guardrails.enabled:
        return GuardrailDecision(state=GuardState())
    due = state.looked_at is None or view.now - state.looked_at >= view.guardrails.interval
    overload = _overload(view)
    if not due or not overload.fresh:
        return _guarded(state)
    state = _count(view, state, overload)
    if failure := _failure(view, state, overload):
        return _failed(view, state, overload, failure)
    if view.guardrails.mode is GuardrailMode.WARN:
        return _conclude(view, state, overload, ())
    restored = _restore(view, state)
    relieved, acted = _back_off(view, restored, overload)
    return _conclude(view, _scale_out(view, relieved, overload, acted), overload, acted)


def soft_guardrails(state: GuardState) -> dict[str, Any]:
    """Return the guardrail state as stored in the run's row under ``custom_metrics.soft_guardrails``."""
    return {
        "workers_over_cpu": list(state.workers_over_cpu),
        "workers_over_memory": list(state.workers_over_memory),
        "over_threshold_intervals": state.over_threshold_intervals,
        "actions_taken": [asdict(action) | {"timestamp": _instant(action.timestamp)} for action in state.actions_taken],
        "state": str(state.state),
    }


def _overload(view: GuardView) -> Overload:
    rails = view.guardrails
    fresh = tuple(sorted((worker for worker in view.workers if worker.fresh), key=lambda worker: worker.slot))
    return Overload(
        fresh=fresh,
        over_cpu=tuple(worker for worker in fresh if (worker.cpu_percent or 0.0) >= rails.max_cpu_percent),
        over_memory=tuple(worker for worker in fresh if (worker.memory_percent or 0.0) >= rails.max_memory_percent),
    )


def _count(view: GuardView, state: GuardState, overload: Overload) -> GuardState:
    over = {worker.worker_id for worker in overload.over}
    fresh = {worker.worker_id for worker in overload.fresh}
    known = {worker.worker_id: state.workers.get(worker.worker_id, WorkerGuard()) for worker in view.workers}
    return replace(
        state,
        looked_at=view.now,
        workers_over_cpu=tuple(worker.worker_id for worker in overload.over_cpu),
        workers_over_memory=tuple(worker.worker_id for worker in overload.over_memory),
        over_threshold_intervals=state.over_threshold_intervals + 1 if over else 0,
        failing_intervals=state.failing_intervals + 1 if _enough_to_fail(view, overload) else 0,
        queued_intervals=state.queued_intervals + 1 if _queues(view) else 0,
        workers={name: _checked(known[name], name in over) if name in fresh else known[name] for name in known},
    )


def _checked(worker: WorkerGuard, over: bool) -> WorkerGuard:
    return replace(worker, over=worker.over + 1 if over else 0, calm=0 if over else worker.calm + 1, since=worker.since + 1)


def _enough_to_fail(view: GuardView, overload: Overload) -> bool:
    match view.guardrails.fail_threshold:
        case FailThreshold.ALL:
            return overload.all_over
        case FailThreshold.MAJORITY:
            return 2 * len(overload.over) > len(overload.fresh)
        case FailThreshold.ANY:
            return bool(overload.over)


def _queues(view: GuardView) -> bool:
    """Whether more sessions wait in the server than ``max_queued_percent`` of the connections."""
    share = view.guardrails.max_queued_percent
    return share is not None and view.waiting is not None and view.waiting > share / 100 * _connections(view)


def _connections(view: GuardView) -> int:
    return sum(worker.target for worker in view.workers)


def _queue_failure(view: GuardView, state: GuardState) -> GuardFailure | None:
    rails = view.guardrails
    patience = 1 if rails.mode is GuardrailMode.HARD else rails.patience_intervals
    if rails.mode is GuardrailMode.WARN or state.queued_intervals < patience:
        return None
    found = f"{view.waiting} of {_connections(view)} connections waited in the server"
    reason = f"{found}, more than {rails.max_queued_percent:g} %, for {state.queued_intervals} checks"
    return GuardFailure(completion_reason="SERVER_QUEUE", reason=reason)


def _failure(view: GuardView, state: GuardState, overload: Overload) -> GuardFailure | None:
    rails = view.guardrails
    if queued := _queue_failure(view, state):
        return queued
    if rails.mode is GuardrailMode.HARD and overload.over:
        worst = overload.over[0]
        return GuardFailure(completion_reason="GUARDRAIL", reason=f"{worst.worker_id}: {_detail(view, worst, digits=2)}")
    if rails.mode is GuardrailMode.SOFT and state.failing_intervals >= rails.patience_intervals:
        who = f"{len(overload.over)} of {len(overload.fresh)} workers over threshold for {state.failing_intervals} intervals"
        return GuardFailure(
            completion_reason="RESOURCE_EXHAUSTION",
            reason=f"{who}; {overload.over[0].worker_id}: {_detail(view, overload.over[0])}",
        )
    return None


def _failed(view: GuardView, state: GuardState, overload: Overload, failure: GuardFailure) -> GuardrailDecision:
    banner = "Statements queue in the database server" if failure.completion_reason == "SERVER_QUEUE" else "Resource exhaustion"
    state = replace(state, state=GuardrailState.CRITICAL, banner=banner)
    return replace(_guarded(state), failure=failure, facts=_warnings(view, state, overload), reason=failure.reason)


def _restore(view: GuardView, state: GuardState) -> GuardState:
    """Raise the reduced connection limits of workers that have been below the thresholds for long enough."""
    for worker in view.workers:
        guarded = state.workers[worker.worker_id]
        if guarded.ceiling is None or guarded.before is None or guarded.calm < _calm_needed(guarded):
            continue
        raised = guarded.ceiling + max(1, ceil(guarded.before * view.guardrails.back_off_percent / 100))
        free = raised >= guarded.before
        new = replace(guarded, ceiling=None if free else raised, before=None if free else guarded.before, calm=0)
        taken = _action(view, "restore", worker.worker_id, guarded.ceiling, min(raised, guarded.before))
        state = _remember(state, worker.worker_id, new, taken)
    return state


def _calm_needed(guarded: WorkerGuard) -> int:
    return int(CALM * 2 ** min(max(0, guarded.backed_off - 1), MOST_DOUBLINGS))


def _back_off(view: GuardView, state: GuardState, overload: Overload) -> tuple[GuardState, tuple[NewEvent, ...]]:
    """Reduce the connections of workers that have been over a threshold for too long. Returns the state and events to store."""
    facts: list[NewEvent] = []
    for worker in overload.over:
        guarded = state.workers[worker.worker_id]
        target = _backed_off(view, worker)
        if target >= worker.target or not _may_back_off(view, guarded):
            continue
        before = worker.target if guarded.before is None else guarded.before
        new = replace(guarded, ceiling=target, before=before, backed_off=guarded.backed_off + 1, since=0)
        taken = _action(view, "back_off", worker.worker_id, worker.target, target)
        state = _remember(state, worker.worker_id, new, taken)
        facts.append(_scale_down(view, worker, target))
    return state, tuple(facts)


def _may_back_off(view: GuardView, guarded: WorkerGuard) -> bool:
    rested = guarded.backed_off == 0 or guarded.since >= LEFT_ALONE
    return guarded.over >= view.guardrails.act_patience and rested


def _backed_off(view: GuardView, worker: GuardedWorker) -> int:
    """Return how many connections an overloaded worker keeps: at least 1 in FIXED mode, else at least ``min_connections``."""
    least = 1 if view.scaling.mode is ScalingMode.FIXED else view.scaling.min_connections
    return max(least, floor(worker.target * (1 - view.guardrails.back_off_percent / 100)))


def _scale_out(view: GuardView, state: GuardState, overload: Overload, acted: Sequence[NewEvent]) -> GuardState:
    """Request a worker for the connections taken from others. If all workers are overloaded, do not: a new one would be too."""
    if not acted or overload.all_over or view.coming or not _may_scale_out(view):
        return state
    taken = _action(view, "scale_out", None, None, None)
    return replace(state, extra_workers=state.extra_workers + 1, actions_taken=(*state.actions_taken, taken)[-KEPT_ACTIONS:])


def _may_scale_out(view: GuardView) -> bool:
    has_room = view.most_workers is None or len(view.workers) + view.coming < view.most_workers
    return view.scaling.mode is not ScalingMode.FIXED and has_room


def _conclude(view: GuardView, state: GuardState, overload: Overload, acted: tuple[NewEvent, ...]) -> GuardrailDecision:
    named = _named_state(view, state, overload)
    concluded = replace(state, state=named, banner=_banner(view, state, overload, named))
    warnings = _warnings(view, state, overload)
    keys = tuple(_key(warning) for warning in warnings)
    new = tuple(warning for warning in warnings if _key(warning) not in state.warned)
    return replace(_guarded(replace(concluded, warned=keys)), facts=(*acted, *new), reason=_reason(acted, concluded))


def _named_state(view: GuardView, state: GuardState, overload: Overload) -> GuardrailState:
    lowered = any(worker.ceiling is not None for worker in state.workers.values())
    if not overload.over:
        return GuardrailState.DEGRADED if lowered else GuardrailState.NORMAL
    if _enough_to_fail(view, overload):
        return GuardrailState.CRITICAL
    return GuardrailState.DEGRADED if lowered and not view.coming and not _may_scale_out(view) else GuardrailState.WARNING


def _banner(view: GuardView, state: GuardState, overload: Overload, named: GuardrailState) -> str | None:
    share = f"{len(overload.over)}/{len(overload.fresh)}"
    match named:
        case GuardrailState.NORMAL:
            return None
        case GuardrailState.DEGRADED:
            return "Running at reduced capacity"
        case GuardrailState.WARNING:
            return f"{share} workers over {_types(overload)} threshold"
        case GuardrailState.CRITICAL:
            who = "All" if overload.all_over else share
            patience = view.guardrails.patience_intervals
            return f"{who} workers over threshold ({min(state.failing_intervals, patience)}/{patience} intervals)"


def _types(overload: Overload) -> str:
    if overload.over_cpu and overload.over_memory:
        return "CPU and memory"
    return "CPU" if overload.over_cpu else "memory"


def _warnings(view: GuardView, state: GuardState, overload: Overload) -> tuple[NewEvent, ...]:
    patience = view.guardrails.patience_intervals
    workers = (("cpu", overload.over_cpu), ("memory", overload.over_memory))
    warned = [_warning(threshold, over, patience - state.over_threshold_intervals) for threshold, over in workers if over]
    if state.queued_intervals:
        warned.append(_warning("queue", (), patience - state.queued_intervals))
    return tuple(warned)


def _warning(threshold: str, over: Sequence[GuardedWorker], remaining: int) -> NewEvent:
    return NewEvent(
        type=EventType.GUARDRAIL_WARNING,
        payload={
            "workers_over_threshold": [worker.worker_id for worker in over],
            "threshold_type": threshold,
            "intervals_remaining": max(0, remaining),
        },
    )


def _key(warning: NewEvent) -> str:
    return str(sorted(warning.payload.items()))


def _scale_down(view: GuardView, worker: GuardedWorker, target: int) -> NewEvent:
    return NewEvent(
        type=EventType.SCALE_DOWN,
        scope=Scope.WORKER,
        worker_id=worker.worker_id,
        payload={
            "reason": "soft_guardrail",
            "detail": _detail(view, worker),
            "previous_target_connections": worker.target,
            "new_target_connections": target,
        },
    )


def _detail(view: GuardView, worker: GuardedWorker, digits: int = 1) -> str:
    rails, cpu, memory = view.guardrails, worker.cpu_percent or 0.0, worker.memory_percent or 0.0
    if cpu >= rails.max_cpu_percent:
        return f"CPU {cpu:.{digits}f} %, limit {rails.max_cpu_percent:.{digits}f} %"
    return f"memory {memory:.{digits}f} %, limit {rails.max_memory_percent:.{digits}f} %"


def _action(view: GuardView, action: str, worker: WorkerId | None, before: int | None, after: int | None) -> GuardAction:
    return GuardAction(timestamp=view.now, action=action, worker_id=worker, previous_target=before, new_target=after)


def _remember(state: GuardState, worker_id: WorkerId, guarded: WorkerGuard, taken: GuardAction) -> GuardState:
    workers: Mapping[str, WorkerGuard] = {**state.workers, worker_id: guarded}
    return replace(state, workers=workers, actions_taken=(*state.actions_taken, taken)[-KEPT_ACTIONS:])


def _reason(acted: Sequence[NewEvent], state: GuardState) -> str | None:
    done = [
        f"{fact.worker_id} backed off to {fact.payload['new_target_connections']} connections: {fact.payload['detail']}"
        for fact in acted
    ]
    return "; ".join(done) or state.banner


def _guarded(state: GuardState) -> GuardrailDecision:
    ceilings = {WorkerId(name): worker.ceiling for name, worker in state.workers.items() if worker.ceiling is not None}
    return GuardrailDecision(state=state, ceilings=ceilings, extra_workers=state.extra_workers, banner=state.banner)


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
