"""A run's report as JSON, for programs."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from drumbeat.bench.model.explanation import explanation_document
from drumbeat.bench.model.record import Measured, PhaseRecord, RunRecord, Second, WorkerRecord
from drumbeat.bench.results.availability import as_metrics, availability_of, corrected
from drumbeat.bench.results.compare.configuration import redacted
from drumbeat.bench.results.cost import cost_of
from drumbeat.bench.results.report import content
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.top_errors import most_frequent
from drumbeat.bench.results.verdicts import judged_at, verdicts_of


def as_json(record: RunRecord) -> str:
    return json.dumps(as_dict(record), indent=1, ensure_ascii=False, default=str) + "\n"


def as_dict(record: RunRecord) -> Mapping[str, Any]:
    """Return the report as values for JSON, without histograms, which stay in the store."""
    slowest95, slowest99 = record.slowest
    judgement = judge_run(record)
    return {
        "run": _run(record),
        "passed": judgement.passed,
        "verdict": judgement.verdict,
        "verdict_reason": judgement.reason,
        "exit_code": int(judgement.gate),
        "judged_at": judged_at(record),
        "summary": list(content.summary(record)),
        "explanation": explanation_document(written) if (written := content.explanation(record)) else None,
        "verdicts": [asdict(each) | {"standing": each.standing} for each in verdicts_of(record)],
        "availability": as_metrics(availability_of(record)),
        "corrected_latency": asdict(fair) if (fair := corrected(record)) else None,
        "client_limited": record.client_limited,
        "warnings": content.warnings(record),
        "most_frequent_error": asdict(error) if (error := most_frequent(record)) else None,
        "totals": measured(record.whole) | {"slowest_worker_p95_ms": slowest95, "slowest_worker_p99_ms": slowest99},
        "kinds": {kind: measured(each) for kind, each in record.kinds.items()},
        "phases": [_phase(phase) for phase in record.phases],
        "workers": [_worker(worker) for worker in record.workers],
        "steps": [asdict(step) for step in record.steps],
        "find_max_result": record.find_max_result or None,
        "timeline": [_second(second) for second in record.timeline],
        "server": [asdict(second) for second in record.server],
        "decisions": [asdict(each) for each in record.decisions],
        "failures": [asdict(each) for each in record.failures],
        "cost": asdict(cost_of(record)),
        "config": redacted(record.run.config),
    }


def _run(record: RunRecord) -> Mapping[str, Any]:
    run = record.run
    return {
        "run_id": run.run_id,
        "name": run.name,
        "status": run.status,
        "completion_reason": run.completion_reason,
        "load_mode": record.plan.load_mode,
        "scaling_mode": record.plan.scaling.mode,
        "template_id": run.template_id,
        "target": content.target(record),
        "started_at": record.origin,
        "ended_at": run.ended_at,
    }


def measured(found: Measured) -> dict[str, Any]:
    counts = {"operations": found.operations, "errors": found.errors, "error_rate": found.error_rate}
    counts |= {"failed_connects": found.failed_connects}
    return counts | {"seconds": found.seconds, "qps": found.qps} | asdict(found.latency)


def _phase(phase: PhaseRecord) -> Mapping[str, Any]:
    kinds = {kind: measured(each) for kind, each in phase.kinds.items()}
    return {"name": phase.name, "began": phase.began, "ended": phase.ended, **measured(phase.whole), "kinds": kinds}


def _worker(worker: WorkerRecord) -> Mapping[str, Any]:
    about = {
        "worker_id": worker.worker_id,
        "slot": worker.slot,
        "status": worker.status,
        "host": worker.host,
        "error": worker.error,
    }
    return about | measured(worker.measured) | {"series": [asdict(second) for second in worker.series]}


def _second(second: Second) -> Mapping[str, Any]:
    values = asdict(second) | {"qps": second.qps}
    del values["histogram"]
    return values
