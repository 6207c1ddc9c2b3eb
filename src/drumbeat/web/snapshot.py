"""The RUN_UPDATE document: the current state of a run, with everything that a dashboard shows about it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from drumbeat.bench.model import LiveRun, WorkerSnapshot
from drumbeat.core.log import Log
from drumbeat.core.run import RUN_ENDED, Phase, Result, Run, RunStatus, error_rate
from drumbeat.core.worker import WorkerStatus
from drumbeat.web.snapshot_sections import (
    bounds,
    decision,
    failure as failure,
    find_max,
    guardrails,
    objective,
    qps_controller,
    whole_result as whole_result,
)

MOST_DECISIONS = 50
_WORKING = frozenset({WorkerStatus.ACTIVE, WorkerStatus.DRAINING})


def run_document(watched: LiveRun) -> dict[str, Any]:
    """Return the data of a RUN_UPDATE message, without log lines."""
    run, aggregate = watched.run, aggregate_metrics(watched)
    return {
        "test_id": run.run_id,
        "status": run.status,
        "phase": shown_phase(run),
        "timestamp": watched.now,
        "run": _run(watched, aggregate),
        "ops": {"total": aggregate["total_ops"], "current_per_sec": aggregate["qps"]},
        "operations": {"reads": watched.reads, "writes": watched.writes},
        "latency": {name: aggregate[f"{name}_ms"] for name in ("p50", "p95", "p99", "avg")},
        "errors": {
            "count": aggregate["total_errors"],
            "failed_connects": aggregate["failed_connects"],
            "rate": aggregate["error_rate"],
        },
        "connections": {"active": aggregate["active_connections"], "target": aggregate["target_connections"]},
        "latency_aggregation_method": "merged histograms (exact)" if len(watched.workers) > 1 else None,
        "workers": [worker_document(each) for each in watched.workers],
        "warehouse": None,
        "find_max": find_max(watched),
        "qps_controller_state": qps_controller(watched),
        "guardrails": guardrails(watched),
        "bounds": bounds(watched),
        "slo": [objective(each) for each in watched.objectives],
        "decisions": [decision(each) for each in watched.decisions[-MOST_DECISIONS:]],
        "custom_metrics": _custom(watched),
        "enrichment_progress": enrichment(watched),
        "warehouse_details": None,
        "cancellation_reason": run.completion_reason if run.status is RunStatus.CANCELLED else None,
        "error": failure(watched),
        "timing": timing(watched),
    }


def shown_phase(run: Run) -> str | None:
    """Return the phase of a run (None before its first phase), or the status of a run that has ended."""
    return run.status if run.status in RUN_ENDED else run.phase


def aggregate_metrics(watched: LiveRun) -> dict[str, Any]:
    """Return metrics over all workers: of the last seconds while the run is active, of the whole measurement afterwards."""
    run, total = watched.run, whole_result(watched)
    counts = {
        "total_ops": run.operations,
        "total_errors": run.errors,
        "failed_connects": watched.failed_connects,
        "error_rate": error_rate(run.operations, run.errors, watched.failed_connects),
        "read_count": watched.reads,
        "write_count": watched.writes,
        "active_connections": sum(each.worker.active for each in watched.workers if each.worker.is_live),
        "target_connections": sum(each.worker.target for each in watched.workers if each.worker.is_live),
    }
    if watched.figures is not None:
        now = watched.figures
        rates = {"qps": now.qps, "p50_ms": now.p50_ms, "p95_ms": now.p95_ms, "p99_ms": now.p99_ms, "avg_ms": now.mean_ms}
        return counts | rates
    connections = {"target_connections": total.connections or 0} if total else {}
    return counts | connections | {"qps": run.qps} | _latency(total)


def _latency(total: Result | None) -> dict[str, float | None]:
    if total is None or total.latency.mean is None:
        return {"p50_ms": None, "p95_ms": None, "p99_ms": None, "avg_ms": None}
    p50, p95, p99 = (None if ns is None else ns / 1e6 for ns in total.latency.percentiles_ns((50, 95, 99)))
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "avg_ms": total.latency.mean / timedelta(milliseconds=1)}


def _run(watched: LiveRun, aggregate: Mapping[str, Any]) -> dict[str, Any]:
    run, states = watched.run, [each.worker.status for each in watched.workers]
    return {
        "run_id": run.run_id,
        "name": run.name,
        "status": run.status,
        "phase": shown_phase(run),
        "template_id": run.template_id,
        "load_mode": watched.plan.load_mode,
        "scaling_mode": watched.plan.scaling.mode,
        "completion_reason": run.completion_reason,
        "verdict": watched.judgement.verdict,
        "verdict_reason": watched.judgement.reason,
        "is_orphan": watched.judgement.is_orphan,
        "total_workers_expected": run.expected_workers,
        "workers_registered": sum(state is not WorkerStatus.SPAWNING for state in states),
        "workers_active": sum(state in _WORKING for state in states),
        "workers_completed": sum(state is WorkerStatus.TERMINATED for state in states),
        "elapsed_seconds": elapsed(watched).total_seconds(),
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "aggregate_metrics": aggregate,
    }


def worker_document(snapshot: WorkerSnapshot) -> dict[str, Any]:
    worker = snapshot.worker
    return {
        "worker_id": worker.worker_id,
        "worker_group_id": worker.slot,
        "status": worker.status,
        "phase": worker.phase,
        "health": snapshot.health,
        "heartbeat_age_seconds": round(snapshot.silence.total_seconds(), 3),
        "host": worker.host,
        "error": worker.error or worker.not_started,
        "metrics": {
            "qps": snapshot.qps,
            "p50_ms": snapshot.p50_ms,
            "p95_ms": snapshot.p95_ms,
            "p99_ms": snapshot.p99_ms,
            "reads": snapshot.reads,
            "writes": snapshot.writes,
            "operations": worker.operations,
            "errors": worker.errors,
            "active_connections": worker.active,
            "target_connections": worker.target,
            "held_connections": worker.applied_target,
            "cpu_percent": worker.cpu_percent,
            "memory_percent": worker.memory_percent,
        },
    }


def _custom(watched: LiveRun) -> dict[str, Any]:
    live = [each.worker for each in watched.workers if each.worker.is_live]
    cpu = [each.cpu_percent for each in live if each.cpu_percent is not None]
    memory = [each.memory_percent for each in live if each.memory_percent is not None]
    return {
        "ops_by_kind": dict(watched.by_kind),
        "resources": {
            "cpu_percent": sum(cpu) / len(cpu) if cpu else None,
            "memory_percent": sum(memory) / len(memory) if memory else None,
        },
        "soft_guardrails": watched.run.custom_metrics.get("soft_guardrails"),
        "bounds_state": watched.run.custom_metrics.get("bounds_state"),
    }


def enrichment(watched: LiveRun) -> dict[str, Any] | None:
    """Return whether the database's own counters were added to the result; None while there is no result."""
    total = whole_result(watched)
    return None if total is None else {"status": total.enrichment_status, "error": total.enrichment_error}


def elapsed(watched: LiveRun) -> timedelta:
    run = watched.run
    return max((run.ended_at or watched.now) - run.started_at, timedelta()) if run.started_at else timedelta()


def timing(watched: LiveRun) -> dict[str, Any]:
    began = phase_began(watched.run)
    in_phase = (watched.run.ended_at or watched.now) - began if began else None
    return {
        "elapsed_display_seconds": round(elapsed(watched).total_seconds(), 3),
        "phase_elapsed_seconds": None if in_phase is None else round(max(in_phase.total_seconds(), 0.0), 3),
        "warmup_seconds": watched.plan.warmup.total_seconds(),
        "duration_seconds": watched.plan.duration.total_seconds(),
    }


def phase_began(run: Run) -> datetime | None:
    """Return when the current phase began; None if the run does not record it for this phase."""
    match run.phase:
        case Phase.PREPARING:
            return run.started_at
        case Phase.WARMUP:
            return run.warmup_started_at
        case Phase.MEASUREMENT:
            return run.warmup_ended_at
    return None


def log_document(line: Log) -> dict[str, Any]:
    return {
        "log_id": line.log_id,
        "timestamp": line.at,
        "level": line.level,
        "logger": line.logger,
        "worker_id": line.worker_id,
        "message": line.message,
        "details": line.details,
    }
