"""A beat's summary: counts of workers and actions, what each rule wanted, which limits applied, and the next beat's state."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from drumbeat.core.worker import WorkerStatus
from drumbeat.fleet.decide.alarms import alarms
from drumbeat.fleet.decide.classify import Classified, has_queue
from drumbeat.fleet.model import (
    Action,
    AskToDrain,
    EndOverdue,
    Fail,
    FleetState,
    FleetView,
    MarkFailed,
    MarkLost,
    ReleaseJobs,
    ScalingVerdict,
    Spawn,
)
from drumbeat.fleet.money import burn, tariff


def summary(
    view: FleetView, classified: Classified, verdict: ScalingVerdict, actions: Sequence[Action], state: FleetState
) -> dict[str, Any]:
    """Summarise a beat as JSON. ``timestamp``, ``actions`` and ``status`` are as in the earlier RunPod orchestrator."""
    by_status = _by_status(view)
    result = {
        "timestamp": view.now.isoformat(),
        "wanted": verdict.desired,
        **by_status,
        "actions": _action_counts(view, actions),
        "status": _status(view, by_status),
        "wishes": plain(verdict.wishes),
        "limits": plain(verdict.limits),
        "state": plain(state),
    }
    if found := alarms(view, classified, verdict, state):
        result["alarms"] = found
    if view.unlisted is not None:
        result["provider_error"] = view.unlisted
    if view.provider.price_per_hour or view.policy.price_per_hour:
        result["spend"] = {"burn_per_hour": burn(view.workers, tariff(view.policy, view.provider)), **plain(view.spent)}
    return result


def _by_status(view: FleetView) -> dict[str, int]:
    """Count workers by status. A worker that was asked to drain counts as draining, even if its row does not say so yet."""
    counts = Counter([worker.status for worker in view.workers])
    for worker in view.workers:
        if worker.drain_deadline is not None and worker.is_terminating:
            counts[worker.status] -= 1
            counts[WorkerStatus.DRAINING] += 1
    return {status.value: counts[status] for status in WorkerStatus}


def _action_counts(view: FleetView, actions: Sequence[Action]) -> dict[str, int]:
    closed = {each.worker_id for each in actions if isinstance(each, ReleaseJobs)}
    return {
        "workers_promoted": _promoted(view),
        "workers_failed": sum(isinstance(each, MarkLost | MarkFailed | Fail) for each in actions),
        "workers_spawned": sum(isinstance(each, Spawn) for each in actions),
        "workers_terminated": sum(isinstance(each, AskToDrain | EndOverdue) for each in actions),
        "tasks_reset": sum(1 for each in view.held if each.worker_id in closed) if closed else 0,
    }


def _promoted(view: FleetView) -> int:
    """Count the workers that became ready since the last beat."""
    since = view.last.at if view.last else view.now
    return len([each for each in view.workers if each.ready_at is not None and each.ready_at > since])


def _status(view: FleetView, by_status: dict[str, int]) -> dict[str, int]:
    """Count queued jobs, and workers by state. The keys are those of Drumbeat's predecessor, an orchestrator for RunPod."""
    spawning = by_status["spawning"] + by_status["starting"]
    active = by_status["active"] + by_status["waiting"]
    return {
        "queued_tasks": view.queue.ready + view.queue.blocked if view.queue else 0,
        "spawning_workers": spawning,
        "active_workers": active,
        "terminating_workers": by_status["draining"],
        "total_workers": spawning + active + by_status["draining"],
    }


def why_nothing(view: FleetView, classified: Classified, verdict: ScalingVerdict) -> str:
    """Explain in one line why a beat took no action."""
    leaving = sum(worker.is_terminating for worker in classified.living)
    wanted = view.policy.workers if not has_queue(view) else verdict.desired
    here = f"{len(classified.staying)} of {wanted} workers are here" + (f", {leaving} terminating" if leaving else "")
    if view.is_paused:
        return f"paused until {view.paused_until:%Y-%m-%d %H:%M:%S}: {here}"
    bound = "".join(f"; {limit.name}: {limit.reason}" for limit in verdict.limits)
    if has_queue(view) and len(classified.staying) > verdict.desired:
        bound += "; no worker has been idle for long enough, or its time is already paid for"
    return f"{here} and all are healthy{bound}"


def plain(value: Any) -> Any:
    """Convert a value to plain JSON, in msgspec's format. Empty fields are left out to keep the stored row small."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return [*value] if {*map(type, value)} <= _PLAIN else [plain(one) for one in value]
    if kind is dict:
        return _plain_dict(value)
    if kind is datetime:
        return value.isoformat()
    if kind is timedelta:
        return _duration(value)
    if isinstance(value, Enum):
        return value.value
    return {name: plain(content) for name in _field_names(value) if (content := getattr(value, name)) not in _EMPTY}


def _plain_dict(value: dict[str, Any]) -> dict[str, Any]:
    """Convert a dictionary to plain JSON. Many entries are the same object (a timestamp), so each object is converted once."""
    if len({*map(id, value.values())}) == 1:
        return dict.fromkeys(value, plain(next(iter(value.values()))))
    distinct = {id(one): one for one in value.values()}
    converted = {key: plain(one) for key, one in distinct.items()}
    return {name: converted[id(one)] for name, one in value.items()}


_PLAIN = frozenset({str, int, float, bool, type(None)})
_EMPTY: tuple[object, ...] = (None, (), {})
_FIELDS: dict[type, tuple[str, ...]] = {}


def _field_names(value: Any) -> tuple[str, ...]:
    known = _FIELDS.get(type(value))
    if known is None:
        known = _FIELDS[type(value)] = tuple(each.name for each in fields(value))
    return known


def _duration(span: timedelta) -> str:
    return f"PT{span.total_seconds():.6f}".rstrip("0").rstrip(".") + "S"
