"""What a beat says of itself: the seed's cycle summary, what each rule wanted, and what the next beat must know."""

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
    view: FleetView, crew: Classified, verdict: ScalingVerdict, actions: Sequence[Action], state: FleetState
) -> dict[str, Any]:
    """Plain JSON: ``timestamp``, ``actions`` and ``status`` as in seed 004, then ours."""
    by = _by_status(view)
    told = {
        "timestamp": view.now.isoformat(),
        "wanted": verdict.desired,
        **by,
        "actions": _counted(view, actions),
        "status": _status(view, by),
        "wishes": plain(verdict.wishes),
        "limits": plain(verdict.limits),
        "state": plain(state),
    }
    if found := alarms(view, crew, verdict, state):
        told["alarms"] = found
    if view.unlisted is not None:
        told["provider_error"] = view.unlisted
    if view.provider.price_per_hour or view.policy.price_per_hour:
        told["spend"] = {"burn_per_hour": burn(view.workers, tariff(view.policy, view.provider)), **plain(view.spent)}
    return told


def _by_status(view: FleetView) -> dict[str, int]:
    """Workers by status. A worker that was told to leave counts as draining, though its row may not say so yet."""
    found = Counter([worker.status for worker in view.workers])
    for worker in view.workers:
        if worker.drain_deadline is not None and worker.is_terminating:
            found[worker.status] -= 1
            found[WorkerStatus.DRAINING] += 1
    return {status.value: found[status] for status in WorkerStatus}


def _counted(view: FleetView, actions: Sequence[Action]) -> dict[str, int]:
    closed = {each.worker_id for each in actions if isinstance(each, ReleaseJobs)}
    return {
        "workers_promoted": _promoted(view),
        "workers_failed": sum(isinstance(each, MarkLost | MarkFailed | Fail) for each in actions),
        "workers_spawned": sum(isinstance(each, Spawn) for each in actions),
        "workers_terminated": sum(isinstance(each, AskToDrain | EndOverdue) for each in actions),
        "tasks_reset": sum(1 for each in view.held if each.worker_id in closed) if closed else 0,
    }


def _promoted(view: FleetView) -> int:
    """Workers that got ready since the last beat: they promote themselves."""
    since = view.last.at if view.last else view.now
    return len([each for each in view.workers if each.ready_at is not None and each.ready_at > since])


def _status(view: FleetView, by: dict[str, int]) -> dict[str, int]:
    """The seed's figures (C81): ``total_workers`` counts everyone who lives, draining ones too; capacity does not."""
    spawning = by["spawning"] + by["starting"]
    active = by["active"] + by["waiting"]
    return {
        "queued_tasks": view.queue.ready + view.queue.blocked if view.queue else 0,
        "spawning_workers": spawning,
        "active_workers": active,
        "terminating_workers": by["draining"],
        "total_workers": spawning + active + by["draining"],
    }


def why_nothing(view: FleetView, crew: Classified, verdict: ScalingVerdict) -> str:
    """Why a beat did nothing."""
    leaving = sum(worker.is_terminating for worker in crew.living)
    wanted = view.policy.workers if not has_queue(view) else verdict.desired
    here = f"{len(crew.staying)} of {wanted} workers are here" + (f", {leaving} terminating" if leaving else "")
    if view.is_paused:
        return f"paused until {view.paused_until:%Y-%m-%d %H:%M:%S}: {here}"
    bound = "".join(f"; {limit.name}: {limit.reason}" for limit in verdict.limits)
    if has_queue(view) and len(crew.staying) > verdict.desired:
        bound += "; nobody has been idle for long enough, or its time is paid for"
    return f"{here} and none is ill{bound}"


def plain(value: Any) -> Any:
    """A value as plain JSON, as msgspec would write it. What is at its default is left out, so that little is kept."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return [*value] if {*map(type, value)} <= _PLAIN else [plain(one) for one in value]
    if kind is dict:
        return _mapped(value)
    if kind is datetime:
        return value.isoformat()
    if kind is timedelta:
        return _duration(value)
    if isinstance(value, Enum):
        return value.value
    return {name: plain(told) for name in _names(value) if (told := getattr(value, name)) not in _NOTHING}


def _mapped(value: dict[str, Any]) -> dict[str, Any]:
    """Many workers share one moment, so a moment is written once."""
    if len({*map(id, value.values())}) == 1:
        return dict.fromkeys(value, plain(next(iter(value.values()))))
    moments = {id(one): one for one in value.values()}
    written = {key: plain(one) for key, one in moments.items()}
    return {name: written[id(one)] for name, one in value.items()}


_PLAIN = frozenset({str, int, float, bool, type(None)})
_NOTHING: tuple[object, ...] = (None, (), {})


_FIELDS: dict[type, tuple[str, ...]] = {}


def _names(value: Any) -> tuple[str, ...]:
    known = _FIELDS.get(type(value))
    if known is None:
        known = _FIELDS[type(value)] = tuple(each.name for each in fields(value))
    return known


def _duration(span: timedelta) -> str:
    return f"PT{span.total_seconds():.6f}".rstrip("0").rstrip(".") + "S"
