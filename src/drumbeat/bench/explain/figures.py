"""Collects the figures of a run that a language model is given: numbers, and words from fixed lists. Pure.

Nothing that a person wrote is among them: no names, hosts, SQL, parameters, rows or messages. A text is given only if it is one
of the words listed in this file or in an enum of Drumbeat.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from math import floor, isfinite, log10
from typing import Any

from drumbeat.bench.model import ErrorClass, Kind, LoadMode, Measured, RunRecord, find_max_steps
from drumbeat.bench.results.availability import availability_of
from drumbeat.bench.results.compare.similarity import target_kind
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.summary import limits_of
from drumbeat.bench.results.summary.changes import figure_differences, settings_that_differ
from drumbeat.bench.results.summary.sentences import DATABASES
from drumbeat.bench.results.verdicts import verdicts_of
from drumbeat.core.run import Step

DIGITS = 6  #: significant digits of a figure
MOST_KINDS = 10
MOST_STEPS = 40


class EndReason(StrEnum):
    """Why a run ended, as given to a language model; a reason not listed here is left out."""

    DURATION = "DURATION"
    MAX_FOUND = "MAX_FOUND"
    BOUNDS_LIMIT_REACHED = "BOUNDS_LIMIT_REACHED"
    GUARDRAIL = "GUARDRAIL"
    RESOURCE_EXHAUSTION = "RESOURCE_EXHAUSTION"
    SERVER_QUEUE = "SERVER_QUEUE"
    START_TIMEOUT = "START_TIMEOUT"
    WORKER_LOST = "WORKER_LOST"
    ERROR = "ERROR"
    USER = "USER"


class StepOutcome(StrEnum):
    """What a step of a search, or a whole search, found, as given to a language model; others are left out."""

    STABLE = "STABLE"
    DEGRADED = "DEGRADED"
    ERROR_THRESHOLD = "ERROR_THRESHOLD"
    QUEUE_DETECTED = "QUEUE_DETECTED"
    SLO = "SLO"
    HELD = "HELD"
    TRUE_MAX = "TRUE_MAX"
    BOUNDED_MAX = "BOUNDED_MAX"


def model_figures(record: RunRecord, before: RunRecord | None = None) -> dict[str, Any]:
    """Return the figures of an ended run, and of the run before it with the same template, as data without empty values."""
    names = _kind_names(record)
    found = {
        **_plan(record),
        **_ending(record),
        **_measured(record.whole),
        "by_kind": [{"kind": names[kind], **_measured(each)} for kind, each in list(record.kinds.items())[:MOST_KINDS]],
        "errors_by_class": _errors(record),
        "objectives": list(_objectives(record, names)),
        "limits": [
            {"limit": str(each.kind), **each.figures, "error_class": each.error_class and str(each.error_class)}
            for each in limits_of(record)
        ],
        "availability_percent": found.percent if (found := availability_of(record)) else None,
        "search": _search(record) if record.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY else None,
        "cost": _numbers(_mapping(_metrics(record).get("cost")), ("total", "per_1000_operations")),
        "run_before": _before(record, before) if before else None,
    }
    plain = _plain(found)
    assert isinstance(plain, dict)
    return plain


def numbers_in(figures: object) -> Iterator[float]:
    """Yield every number among the figures."""
    if isinstance(figures, bool):
        return
    if isinstance(figures, int | float):
        yield float(figures)
    elif isinstance(figures, Mapping):
        for each in figures.values():
            yield from numbers_in(each)
    elif isinstance(figures, list | tuple):
        for each in figures:
            yield from numbers_in(each)


def _plain(value: Any) -> Any:
    """Return a value with its numbers rounded, and without None, empty lists and empty mappings."""
    if isinstance(value, Mapping):
        inside = {name: _plain(each) for name, each in value.items()}
        return {name: each for name, each in inside.items() if each is not None and each != {} and each != []}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return _rounded(value) if isinstance(value, float) else value


def _rounded(value: float) -> float | None:
    if not isfinite(value):
        return None
    if value == 0 or abs(value) >= 10**DIGITS:
        return round(value)
    return round(value, DIGITS - 1 - floor(log10(abs(value))))


def _member(kind: type[StrEnum], text: object) -> str | None:
    """Return a text if it is a member of an enum; else None."""
    return str(text) if text in set(kind) else None


def _metrics(record: RunRecord) -> Mapping[str, Any]:
    return record.result.custom_metrics if record.result else {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _numbers(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    return {name: value for name in names if isinstance(value := values.get(name), int | float) and not isinstance(value, bool)}


def _kind_names(record: RunRecord) -> dict[str, str]:
    """Return a name for each kind of operation: a standard kind keeps its name; a custom kind gets a number, because its name
    was written by a user."""
    kinds = [*record.kinds, *(kind for kind in record.plan.objectives if kind not in record.kinds)]
    own = [kind for kind in kinds if kind and kind not in set(Kind)]
    numbered = {kind: f"custom operation {n}" for n, kind in enumerate(own, 1)}
    return {kind: numbered.get(kind) or kind or "all kinds" for kind in kinds}


def _plan(record: RunRecord) -> dict[str, Any]:
    plan, connections = record.plan, record.result.connections if record.result else None
    return {
        "database": DATABASES.get(target_kind(record)),
        "load_mode": str(plan.load_mode),
        "scaling_mode": str(plan.scaling.mode),
        "workers": len({row.worker_id for row in record.results if row.worker_id}),
        "connections": connections,
        "min_workers": plan.scaling.min_workers,
        "max_workers": plan.scaling.most_workers,
        "max_connections_per_worker": plan.scaling.max_connections,
        "target_operations_per_second": plan.qps.target_qps if plan.load_mode is LoadMode.QPS else None,
        "warmup_seconds": plan.warmup.total_seconds(),
        "planned_seconds": plan.duration.total_seconds() if plan.load_mode is not LoadMode.FIND_MAX_CONCURRENCY else None,
    }


def _ending(record: RunRecord) -> dict[str, Any]:
    judgement = judge_run(record)
    return {
        "status": str(record.run.status),
        "ended_because": _member(EndReason, record.run.completion_reason),
        "verdict": str(judgement.verdict),
    }


def _measured(found: Measured) -> dict[str, Any]:
    if not found.operations:
        return {"operations": 0}
    latency = {name: value for name, value in asdict(found.latency).items() if name not in ("count", "stddev_ms", "least_ms")}
    return {
        "measured_seconds": found.seconds,
        "operations": found.operations,
        "operations_per_second": found.qps,
        "errors": found.errors,
        "failed_connects": found.failed_connects,
        "error_percent": found.error_rate * 100,
        "latency": latency,
    }


def _errors(record: RunRecord) -> dict[str, float]:
    return _numbers(_mapping(_metrics(record).get("error_classes")), [str(each) for each in ErrorClass])


def _objectives(record: RunRecord, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for each in verdicts_of(record)[:MOST_KINDS]:
        standing = {"measure": str(each.measure), "limit": each.limit, "found": each.found, "standing": str(each.standing)}
        yield {"kind": names.get(each.kind, "all kinds"), **standing}


def _search(record: RunRecord) -> dict[str, Any]:
    found, steps = record.find_max_result, find_max_steps(record)
    usl = _mapping(found.get("usl"))
    return {
        **_numbers(found, ("best_connections", "best_qps", "best_p95_ms", "best_p99_ms", "baseline_p95_ms")),
        "maximum": _member(StepOutcome, found.get("max_type")),
        "not_higher_because": _member(StepOutcome, found.get("outcome")),
        "scalability_law_peak_connections": _numbers(usl, ("peak_connections",)).get("peak_connections"),
        "steps": [_step(each) for each in steps[-MOST_STEPS:]],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "connections": step.to_target,
        "operations_per_second": step.qps,
        "p95_ms": step.p95_ms,
        "error_percent": step.error_rate * 100,
        "outcome": _member(StepOutcome, step.outcome),
    }


def _before(record: RunRecord, before: RunRecord) -> dict[str, Any]:
    changes = figure_differences(record, before)
    scaled = [(each, 100 if each.bounds.absolute else 1) for each in changes]
    return {
        "figures": {each.bounds.label: each.before * scale for each, scale in scaled},
        "change_percent": {each.bounds.label: each.percent for each in changes},
        "settings_that_differ": len(settings_that_differ(record, before)),
    }
