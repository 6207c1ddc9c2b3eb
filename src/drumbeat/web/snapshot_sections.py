"""Sections of the RUN_UPDATE document: search for the maximum number of connections, throughput controller, limits."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from drumbeat.bench.model import DecisionRecord, Guardrails, LiveRun, LoadMode, ObjectiveStatus, ScalingMode
from drumbeat.core.run import RUN_ENDED, Result, Step, StepType
from drumbeat.core.worker import WorkerId

FAILED_BY_GUARDRAIL = frozenset({"RESOURCE_EXHAUSTION", "GUARDRAIL", "SERVER_QUEUE"})
GUARDRAIL_COLOURS: Mapping[str, str] = {"warning": "yellow", "critical": "orange", "degraded": "yellow", "failed": "red"}
MOST_CHANGES = 10
_QUEUE = "Statements queue in the database server"  #: the same words as in the guardrails' decision
_MOST_STEPS = 60  #: maximum number of search steps in the document; the newest are included


def guardrails(watched: LiveRun) -> dict[str, Any]:
    """Return the state of the CPU and memory guardrails (limits for workers): message, colour, and detail with values."""
    reported = watched.run.custom_metrics.get("soft_guardrails") or {}
    state = str(reported.get("state") or "normal")
    message = (watched.run.controller_state.get("guard") or {}).get("banner")
    if watched.run.status in RUN_ENDED:
        state = "normal"
    if watched.run.completion_reason in FAILED_BY_GUARDRAIL:
        state = "failed"
        message = _QUEUE if watched.run.completion_reason == "SERVER_QUEUE" else "Resource exhaustion"
    return {
        "state": state,
        "message": None if state == "normal" else message,
        "detail": None if state == "normal" else _guardrail_detail(watched, state, reported),
        "color": GUARDRAIL_COLOURS.get(state),
        "icon": "info" if state == "degraded" else None,
        "actions_taken": (reported.get("actions_taken") or [])[-MOST_CHANGES:],
    }


def _guardrail_detail(watched: LiveRun, state: str, reported: Mapping[str, Any]) -> str | None:
    """Return why the run failed, which workers exceed a limit, or how much a worker was throttled; None if none of these."""
    if state == "failed":
        return failure(watched)
    rails = watched.plan.guardrails
    over = [
        *_over(watched, reported.get("workers_over_cpu"), "CPU", "cpu_percent", rails.max_cpu_percent),
        *_over(watched, reported.get("workers_over_memory"), "memory", "memory_percent", rails.max_memory_percent),
    ]
    return "; ".join(over) or _throttled(reported.get("actions_taken") or (), rails)


def _over(watched: LiveRun, names: Sequence[str] | None, what: str, field: str, limit: float) -> list[str]:
    figures = {each.worker.worker_id: getattr(each.worker, field) for each in watched.workers}
    known = [(name, figures[WorkerId(name)]) for name in names or () if figures.get(WorkerId(name)) is not None]
    return [f"{what} of {name} {value:.0f} %, limit {limit:g} %" for name, value in known]


def _throttled(actions: Sequence[Mapping[str, Any]], rails: Guardrails) -> str | None:
    last = next((each for each in reversed(actions) if each.get("action") == "back_off"), None)
    if last is None:
        return None
    limits = f"limits: CPU {rails.max_cpu_percent:g} %, memory {rails.max_memory_percent:g} %"
    change = f"from {last.get('previous_target')} to {last.get('new_target')} connections"
    return f"{last.get('worker_id')} was reduced {change} ({limits})"


def failure(watched: LiveRun) -> str | None:
    """Return why the run failed; None if it did not fail."""
    total = whole_result(watched)
    return total.failure_reason if total is not None else watched.run.custom_metrics.get("failure_reason")


def bounds(watched: LiveRun) -> dict[str, Any] | None:
    """Return the worker and connection limits of the run; None in scaling mode AUTO, which has none."""
    scaling = watched.plan.scaling
    if scaling.mode is ScalingMode.AUTO:
        return None
    state = watched.run.custom_metrics.get("bounds_state") or {}
    return {
        "mode": scaling.mode,
        "min_workers": scaling.min_workers,
        "max_workers": scaling.most_workers,
        "min_connections": scaling.min_connections,
        "max_connections": scaling.max_connections,
        "at_max_workers": bool(state.get("at_max_workers")),
        "message": state.get("message"),
    }


def find_max(watched: LiveRun) -> dict[str, Any] | None:
    """Return progress and result of the search for the maximum number of connections; None in other load modes."""
    if watched.plan.load_mode is not LoadMode.FIND_MAX_CONCURRENCY:
        return None
    state = watched.run.controller_state.get("find_max") or {}
    steps = [each for each in watched.steps if each.type is StepType.FIND_MAX]
    found = _found(watched)
    bounded = bool(state.get("ceiling_reached")) or found.get("max_type") == "BOUNDED_MAX"
    return {
        "status": state.get("status"),
        "step": state.get("step"),
        "connections": state.get("connections"),
        "next_connections": state.get("next_connections"),
        "baseline": state.get("baseline"),
        "best": state.get("best"),
        "last": step_document(steps[-1]) if steps else None,
        "countdown_seconds": _until((state.get("window") or {}).get("until"), watched.now) if not found else None,
        "limits": {
            "latency_pct": watched.plan.find_max.latency_stability_pct,
            "qps_pct": watched.plan.find_max.qps_stability_pct,
            "error_pct": watched.plan.find_max.max_error_rate_pct,
        },
        "badge": "BOUNDED_MAX" if bounded else found.get("max_type"),
        "knee": found.get("knee"),
        "message": found.get("message"),
        "result": found or None,
        "steps": [step_document(each) for each in steps[-_MOST_STEPS:]],
    }


def _found(watched: LiveRun) -> Mapping[str, Any]:
    total = whole_result(watched)
    return (total.find_max_result if total else None) or {}


def whole_result(watched: LiveRun) -> Result | None:
    """Return the result row of the whole run (all workers and all kinds of operations together); None while there is none."""
    return next((row for row in watched.results if row.worker_id is None and row.kind is None), None)


def qps_controller(watched: LiveRun) -> dict[str, Any] | None:
    """Return the state of the throughput controller and its last changes; None in other load modes."""
    if watched.plan.load_mode is not LoadMode.QPS:
        return None
    state = watched.run.controller_state.get("qps") or {}
    target = watched.plan.qps.target_qps
    qps = watched.figures.qps if watched.figures else watched.run.qps
    changes = [step_document(each) for each in watched.steps if each.type is StepType.QPS_SCALING]
    return {
        "target_qps": target,
        "current_qps": qps,
        "error_pct": 100 * (qps - target) / target if target else None,
        "tolerance": watched.plan.qps.tolerance,
        "connections": state.get("connections"),
        "workers": state.get("workers"),
        "next_evaluation_seconds": _until((state.get("window") or {}).get("until"), watched.now),
        "looks": state.get("looks"),
        "under": state.get("under"),
        "at_ceiling": state.get("at_ceiling"),
        "history": changes[-MOST_CHANGES:],
    }


def step_document(step: Step) -> dict[str, Any]:
    names = (
        "n", "from_target", "to_target", "direction", "started_at", "ended_at", "operations", "errors", "failed_connects",
        "error_rate", "qps", "target_qps", "p50_ms", "p95_ms", "p99_ms", "qps_vs_prior", "p95_vs_baseline", "queue_detected",
        "outcome", "reason", "is_probe",
    )  # fmt: skip
    return {name: getattr(step, name) for name in names}


def objective(status: ObjectiveStatus) -> dict[str, Any]:
    return {
        "kind": status.kind or None,
        "measure": status.measure,
        "limit": status.limit,
        "found": status.found,
        "standing": status.standing,
    }


def decision(decided: DecisionRecord) -> dict[str, Any]:
    return {
        "at": decided.at,
        "offset_seconds": round(decided.offset, 3),
        "what": decided.what,
        "reason": decided.reason,
        "error": decided.error,
        "times": decided.times,
    }


def _until(moment: str | None, now: datetime) -> float | None:
    """Return the seconds until a moment, at least 0; None if the text is empty or not a time."""
    if not moment:
        return None
    try:
        return max((datetime.fromisoformat(moment) - now).total_seconds(), 0.0)
    except ValueError:
        return None
