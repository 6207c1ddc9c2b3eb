"""Finds what limited a run, from the figures in its stored rows. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from drumbeat.bench.model.best import best_of
from drumbeat.bench.model.load import ErrorClass
from drumbeat.bench.model.plan import LoadMode
from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.availability import availability_of
from drumbeat.bench.results.run_verdict import BOUNDS_REACHED, missed_target
from drumbeat.bench.results.verdicts import verdicts_of

_BUSY_WITHIN = 0.1  #: connections count as busy all the time if Little's law explains their number within this share
_QUEUED_SHARE = 0.01  #: share of statements from which those that queued in the database count as a limit
_SEARCH_ENDS = {
    "QUEUE_DETECTED": "QUEUEING",
    "DEGRADED": "SLOWER",
    "ERROR_THRESHOLD": "ERRORS_ABOVE",
    "SLO": "OBJECTIVE_ABOVE",
}


class LimitKind(StrEnum):
    """What limited a run's load or throughput, or kept it from meeting an objective."""

    NOT_STARTED = "NOT_STARTED"  #: its workers were not ready in time
    GUARDRAIL = "GUARDRAIL"  #: it was ended by the CPU or memory of the workers' hosts
    BACKED_OFF = "BACKED_OFF"  #: connections were taken from workers, by the CPU or memory of their hosts
    WORKERS_LOST = "WORKERS_LOST"
    CLIENT = "CLIENT"  #: the workers, not the database
    OUTAGE = "OUTAGE"
    SERVER_QUEUE = "SERVER_QUEUE"  #: statements queued in the database, as its own history says
    ERRORS = "ERRORS"
    BOUNDS = "BOUNDS"  #: the configured numbers of workers and connections, in mode QPS
    BELOW_TARGET = "BELOW_TARGET"  #: less than the target throughput, within the bounds
    SEARCH_BOUNDS = "SEARCH_BOUNDS"  #: the configured numbers of workers and connections, in a search
    NO_STABLE_LEVEL = "NO_STABLE_LEVEL"
    QUEUEING = "QUEUEING"  #: above the level found, sessions waited in the database
    SLOWER = "SLOWER"  #: above the level found, latency rose or throughput fell too far
    ERRORS_ABOVE = "ERRORS_ABOVE"  #: above the level found, too many operations failed
    OBJECTIVE_ABOVE = "OBJECTIVE_ABOVE"  #: above the level found, an objective was missed
    OBJECTIVE = "OBJECTIVE"  #: an objective was missed
    CONNECTIONS = "CONNECTIONS"  #: every connection was busy all the time


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimit:
    """One thing that limited a run, with the figures that show it."""

    kind: LimitKind
    figures: Mapping[str, float] = field(default_factory=dict)
    error_class: ErrorClass | None = None
    detail: str = ""  #: a reason in words, for people only: it may contain names


def limits_of(record: RunRecord) -> tuple[RunLimit, ...]:
    """Return what limited an ended run, the most important first. Only the run's row, results and steps are used."""
    checks = (_not_started, _guardrails, _lost, _client, _outage, _server_queue, _errors, _qps, _search, _objectives)
    found = tuple(limit for check in checks for limit in check(record))
    return found or tuple(_connections(record))


def _metrics(record: RunRecord) -> Mapping[str, Any]:
    return record.result.custom_metrics if record.result else {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _numbers(**values: object) -> dict[str, float]:
    """Return the values that are numbers."""
    return {name: value for name, value in values.items() if isinstance(value, int | float) and not isinstance(value, bool)}


def _not_started(record: RunRecord) -> Iterator[RunLimit]:
    if record.run.completion_reason == "START_TIMEOUT":
        yield RunLimit(kind=LimitKind.NOT_STARTED)


def _guardrails(record: RunRecord) -> Iterator[RunLimit]:
    rails, stored = record.plan.guardrails, _mapping(record.run.custom_metrics.get("soft_guardrails"))
    limits = {"max_cpu_percent": rails.max_cpu_percent, "max_memory_percent": rails.max_memory_percent}
    if record.run.completion_reason in ("GUARDRAIL", "RESOURCE_EXHAUSTION"):
        over = {name: len(stored.get(name) or ()) for name in ("workers_over_cpu", "workers_over_memory")}
        yield RunLimit(kind=LimitKind.GUARDRAIL, figures=over | limits)
        return
    actions = [_mapping(each).get("action") for each in stored.get("actions_taken") or ()]
    if times := actions.count("back_off"):
        yield RunLimit(kind=LimitKind.BACKED_OFF, figures={"times": times} | limits)


def _lost(record: RunRecord) -> Iterator[RunLimit]:
    silent = {row.worker_id for row in record.results if row.worker_id and row.custom_metrics.get("from_samples")}
    flags = _metrics(record).get("flags") or ()
    if record.run.completion_reason == "WORKER_LOST" or "WORKERS_LOST" in flags or silent:
        yield RunLimit(kind=LimitKind.WORKERS_LOST, figures={"without_a_final_result": len(silent)} if silent else {})


def _client(record: RunRecord) -> Iterator[RunLimit]:
    if _metrics(record).get("client_limited") is True:
        yield RunLimit(kind=LimitKind.CLIENT)


def _outage(record: RunRecord) -> Iterator[RunLimit]:
    found = availability_of(record)
    if found is not None and found.without_service:
        figures = {"seconds_without_service": found.without_service, "seconds": found.seconds}
        yield RunLimit(kind=LimitKind.OUTAGE, figures=figures)


def _server_queue(record: RunRecord) -> Iterator[RunLimit]:
    counted = _mapping(_mapping(_metrics(record).get("server")).get("measurement"))
    found = _numbers(**{name: counted.get(name) for name in ("statements", "queued", "longest_queue_time")})
    statements, queued = found.get("statements", 0), found.get("queued", 0)
    if statements and queued >= _QUEUED_SHARE * statements:
        yield RunLimit(kind=LimitKind.SERVER_QUEUE, figures=found)
    elif record.run.completion_reason == "SERVER_QUEUE":
        yield RunLimit(kind=LimitKind.SERVER_QUEUE)


def _errors(record: RunRecord) -> Iterator[RunLimit]:
    whole = record.whole
    if not whole.errors and not whole.failed_connects:
        return
    counts = {"errors": whole.errors, "operations": whole.operations, "failed_connects": whole.failed_connects}
    classes = _mapping(_metrics(record).get("error_classes"))
    known = {name: count for name, count in _numbers(**{each: classes.get(each) for each in ErrorClass}).items() if count}
    most = max(known, key=lambda name: known[name], default=None)
    yield RunLimit(
        kind=LimitKind.ERRORS,
        figures=counts | {"error_percent": whole.error_rate * 100} | ({"most_frequent": known[most]} if most else {}),
        error_class=ErrorClass(most) if most else None,
    )


def _qps(record: RunRecord) -> Iterator[RunLimit]:
    if record.plan.load_mode is not LoadMode.QPS or not record.whole.operations or missed_target(record) is None:
        return
    scaling, bounds = record.plan.scaling, _mapping(_metrics(record).get("bounds"))
    reached = {"reached": record.whole.qps, "target": record.plan.qps.target_qps}
    if record.run.completion_reason == BOUNDS_REACHED:
        most = _numbers(
            max_workers=bounds.get("max_workers", scaling.most_workers),
            max_connections=bounds.get("max_connections", scaling.max_connections),
        )
        yield RunLimit(kind=LimitKind.BOUNDS, figures=reached | most)
    else:
        yield RunLimit(kind=LimitKind.BELOW_TARGET, figures=reached)


def _search(record: RunRecord) -> Iterator[RunLimit]:
    found = record.find_max_result
    if record.plan.load_mode is not LoadMode.FIND_MAX_CONCURRENCY or not found:
        return
    best, reason = best_of(record), str(found.get("reason") or "")
    if best is None:
        yield RunLimit(kind=LimitKind.NO_STABLE_LEVEL, detail=reason)
        return
    level = _numbers(connections=best.connections, operations_per_second=best.qps)
    if found.get("max_type") == "BOUNDED_MAX":
        yield RunLimit(kind=LimitKind.SEARCH_BOUNDS, figures=level)
    elif (outcome := str(found.get("outcome"))) in _SEARCH_ENDS:
        yield RunLimit(kind=LimitKind(_SEARCH_ENDS[outcome]), figures=level, detail=reason)


def _objectives(record: RunRecord) -> Iterator[RunLimit]:
    missed = [each for each in verdicts_of(record) if not each.is_met and each.found is not None]
    if missed:
        yield RunLimit(kind=LimitKind.OBJECTIVE, figures={"missed": len(missed)})


def _connections(record: RunRecord) -> Iterator[RunLimit]:
    """Yield a limit if every connection of a closed loop was busy all the time: throughput × mean latency is then about the
    number of connections (Little's law)."""
    whole, connections = record.whole, record.result.connections if record.result else None
    mean = whole.latency.mean_ms
    if record.plan.load_mode is not LoadMode.CONCURRENCY or not connections or not mean or not whole.qps:
        return
    if abs(whole.qps * mean / 1000 / connections - 1) <= _BUSY_WITHIN:
        yield RunLimit(kind=LimitKind.CONNECTIONS, figures={"connections": connections, "mean_ms": mean})
