"""A run as one document, RUN_UPDATE: everything a dashboard shows of it, as it is now."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from drumbeat.bench.model import Watched, WorkerSnapshot
from drumbeat.core.log import Log
from drumbeat.core.run import RUN_ENDED, Phase, Result, Run, RunStatus
from drumbeat.core.worker import WorkerStatus
from drumbeat.web.snapshot_sections import bounds, decision, find_max, guardrails, objective, qps_controller

MOST_DECISIONS = 50
_WORKING = frozenset({WorkerStatus.ACTIVE, WorkerStatus.DRAINING})


def run_document(seen: Watched) -> dict[str, Any]:
    """The data of a RUN_UPDATE, without its log lines."""
    run, aggregate = seen.run, aggregate_metrics(seen)
    return {
        "test_id": run.run_id,
        "status": run.status,
        "phase": shown_phase(run),
        "timestamp": seen.now,
        "run": _run(seen, aggregate),
        "ops": {"total": aggregate["total_ops"], "current_per_sec": aggregate["qps"]},
        "operations": {"reads": seen.reads, "writes": seen.writes},
        "latency": {name: aggregate[f"{name}_ms"] for name in ("p50", "p95", "p99", "avg")},
        "errors": {"count": aggregate["total_errors"], "rate": aggregate["error_rate"]},
        "connections": {"active": aggregate["active_connections"], "target": aggregate["target_connections"]},
        "latency_aggregation_method": "merged histograms (exact)" if len(seen.workers) > 1 else None,
        "workers": [worker_document(each) for each in seen.workers],
        "warehouse": None,
        "find_max": find_max(seen),
        "qps_controller_state": qps_controller(seen),
        "guardrails": guardrails(seen),
        "bounds": bounds(seen),
        "slo": [objective(each) for each in seen.objectives],
        "decisions": [decision(each) for each in seen.decisions[-MOST_DECISIONS:]],
        "custom_metrics": _custom(seen),
        "enrichment_progress": enrichment(seen),
        "warehouse_details": None,
        "cancellation_reason": run.completion_reason if run.status is RunStatus.CANCELLED else None,
        "error": failure(seen),
        "timing": timing(seen),
    }


def shown_phase(run: Run) -> str | None:
    """The phase; of a run that ended its status, as the seeds have it."""
    return run.status if run.status in RUN_ENDED else run.phase


def aggregate_metrics(seen: Watched) -> dict[str, Any]:
    """Of all workers together: the last seconds while it runs, the whole measurement afterwards."""
    run, whole = seen.run, whole_result(seen)
    counts = {
        "total_ops": run.operations,
        "total_errors": run.errors,
        "error_rate": run.errors / run.operations if run.operations else 0.0,
        "read_count": seen.reads,
        "write_count": seen.writes,
        "active_connections": sum(each.worker.active for each in seen.workers if each.worker.is_live),
        "target_connections": sum(each.worker.target for each in seen.workers if each.worker.is_live),
    }
    if seen.figures is not None:
        now = seen.figures
        rates = {"qps": now.qps, "p50_ms": now.p50_ms, "p95_ms": now.p95_ms, "p99_ms": now.p99_ms, "avg_ms": now.mean_ms}
        return counts | rates
    held = {"target_connections": whole.connections or 0} if whole else {}
    return counts | held | {"qps": run.qps} | _latency(whole)


def _latency(whole: Result | None) -> dict[str, float | None]:
    if whole is None or whole.latency.mean is None:
        return {"p50_ms": None, "p95_ms": None, "p99_ms": None, "avg_ms": None}
    p50, p95, p99 = (None if ns is None else ns / 1e6 for ns in whole.latency.percentiles_ns((50, 95, 99)))
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "avg_ms": whole.latency.mean / timedelta(milliseconds=1)}


def whole_result(seen: Watched) -> Result | None:
    return next((row for row in seen.results if row.worker_id is None and row.kind is None), None)


def _run(seen: Watched, aggregate: Mapping[str, Any]) -> dict[str, Any]:
    run, states = seen.run, [each.worker.status for each in seen.workers]
    return {
        "run_id": run.run_id,
        "name": run.name,
        "status": run.status,
        "phase": shown_phase(run),
        "template_id": run.template_id,
        "load_mode": seen.plan.load_mode,
        "scaling_mode": seen.plan.scaling.mode,
        "completion_reason": run.completion_reason,
        "verdict": seen.judgement.verdict,
        "verdict_reason": seen.judgement.reason,
        "is_orphan": seen.judgement.is_orphan,
        "total_workers_expected": run.expected_workers,
        "workers_registered": sum(state is not WorkerStatus.SPAWNING for state in states),
        "workers_active": sum(state in _WORKING for state in states),
        "workers_completed": sum(state is WorkerStatus.TERMINATED for state in states),
        "elapsed_seconds": elapsed(seen).total_seconds(),
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "aggregate_metrics": aggregate,
    }


def worker_document(seen: WorkerSnapshot) -> dict[str, Any]:
    worker = seen.worker
    return {
        "worker_id": worker.worker_id,
        "worker_group_id": worker.slot,
        "status": worker.status,
        "phase": worker.phase,
        "health": seen.health,
        "heartbeat_age_seconds": round(seen.silence.total_seconds(), 3),
        "host": worker.host,
        "error": worker.error,
        "metrics": {
            "qps": seen.qps,
            "p50_ms": seen.p50_ms,
            "p95_ms": seen.p95_ms,
            "p99_ms": seen.p99_ms,
            "reads": seen.reads,
            "writes": seen.writes,
            "operations": worker.operations,
            "errors": worker.errors,
            "active_connections": worker.active,
            "target_connections": worker.target,
            "held_connections": worker.applied_target,
            "cpu_percent": worker.cpu_percent,
            "memory_percent": worker.memory_percent,
        },
    }


def _custom(seen: Watched) -> dict[str, Any]:
    live = [each.worker for each in seen.workers if each.worker.is_live]
    cpu = [each.cpu_percent for each in live if each.cpu_percent is not None]
    memory = [each.memory_percent for each in live if each.memory_percent is not None]
    return {
        "ops_by_kind": dict(seen.by_kind),
        "resources": {
            "cpu_percent": sum(cpu) / len(cpu) if cpu else None,
            "memory_percent": sum(memory) / len(memory) if memory else None,
        },
        "soft_guardrails": seen.run.custom_metrics.get("soft_guardrails"),
        "bounds_state": seen.run.custom_metrics.get("bounds_state"),
    }


def enrichment(seen: Watched) -> dict[str, Any] | None:
    """Whether the result was completed with the database's own totals; None while there is no result."""
    whole = whole_result(seen)
    return None if whole is None else {"status": whole.enrichment_status, "error": whole.enrichment_error}


def failure(seen: Watched) -> str | None:
    """Why it failed."""
    whole = whole_result(seen)
    return whole.failure_reason if whole is not None else seen.run.custom_metrics.get("failure_reason")


def elapsed(seen: Watched) -> timedelta:
    run = seen.run
    return max((run.ended_at or seen.now) - run.started_at, timedelta()) if run.started_at else timedelta()


def timing(seen: Watched) -> dict[str, Any]:
    began = phase_began(seen.run)
    within = (seen.run.ended_at or seen.now) - began if began else None
    return {
        "elapsed_display_seconds": round(elapsed(seen).total_seconds(), 3),
        "phase_elapsed_seconds": None if within is None else round(max(within.total_seconds(), 0.0), 3),
        "warmup_seconds": seen.plan.warmup.total_seconds(),
        "duration_seconds": seen.plan.duration.total_seconds(),
    }


def phase_began(run: Run) -> datetime | None:
    """When the present phase began, as far as the row says."""
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
