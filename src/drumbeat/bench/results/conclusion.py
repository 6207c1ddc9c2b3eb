"""Computes the result of a whole run: its workers' results merged exactly, with verdicts, caveats and cost. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from drumbeat.bench.model import ControllerState, LoadMode, RunEnding, RunRecord, WorkerRecord
from drumbeat.bench.model.server_totals import RESETS, rise, was_reset
from drumbeat.bench.results.availability import as_metrics, availability_of, corrected
from drumbeat.bench.results.caveats import caveats
from drumbeat.bench.results.cost import HOURS, Method, cost_of
from drumbeat.bench.results.curves import curves_of, encode_curves
from drumbeat.bench.results.record import ended_record
from drumbeat.bench.results.timeline import Counting, histogram_of, kinds_of
from drumbeat.bench.results.top_errors import errors_by_class
from drumbeat.bench.results.verdicts import verdicts_of
from drumbeat.core.event import EventType
from drumbeat.core.histogram import Histogram
from drumbeat.core.run import Phase, Result, RunId, RunStatus
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import WorkerId, WorkerStatus

#: actions and events that end a measurement; the second set is used only if none of the first set occurred
_STOPPED = (frozenset({"StopLoad", EventType.STOP}), frozenset({"AskToDrain"}))
_BEAT_STORED_WITHIN = timedelta(seconds=1)  #: a decision is dated when its beat is stored; workers may act on it before that
_BAD_ENDS = frozenset({WorkerStatus.LOST, WorkerStatus.ERROR})
COMPLETED, FAILED, PENDING, SKIPPED = "COMPLETED", "FAILED", "PENDING", "SKIPPED"


@dataclass(slots=True)
class _Sum:
    """Adds up the result rows of all workers for one kind of operation."""

    operations: int = 0
    reads: int = 0
    writes: int = 0
    errors: int = 0
    seconds: float = 0.0  #: how long the longest measurement of a worker took
    latency: Histogram = field(default_factory=Histogram)

    def add(self, row: Result) -> None:
        self.operations += row.operations
        self.reads += row.reads
        self.writes += row.writes
        self.errors += row.errors
        self.seconds = max(self.seconds, row.operations / row.qps if row.qps else 0.0)
        self.latency.merge(row.latency)


def unfinished(results: Sequence[Result], workers: Iterable[WorkerId]) -> list[WorkerId]:
    """Return the workers that stored no final result, for example because they were killed or timed out."""
    finished = {row.worker_id for row in results if row.kind is None and row.status is RunStatus.COMPLETED}
    return [worker_id for worker_id in workers if worker_id not in finished]


class SampledResult:
    """Adds up the samples of a worker that stored no results itself, those of the MEASUREMENT phase, and makes its results."""

    def __init__(self, run_id: RunId, worker_id: WorkerId) -> None:
        self._whole = Result(run_id=run_id, worker_id=worker_id, status=RunStatus.FAILED, custom_metrics={"from_samples": True})
        self._sums: defaultdict[str | None, Counting] = defaultdict(Counting)
        self._writes = 0
        self._seconds = 0.0

    def add(self, sample: StoredSample) -> None:
        if sample.phase != Phase.MEASUREMENT:
            return
        self._seconds += 0.0 if sample.extra.get("draining") else sample.interval.total_seconds()
        self._sums[None].add(sample.operations, sample.errors, sample.reads, sample.latency)
        self._writes += sample.writes
        for kind, block in kinds_of(sample):
            counts = int(block.get("operations", 0)), int(block.get("errors", 0))
            self._sums[kind].add(*counts, 0, histogram_of(block.get("response")))

    def rows(self) -> list[Result]:
        """Return the result of all kinds of operations, then one for each kind; no rows if no sample was measured."""
        rows = [self._row(kind, self._sums[kind]) for kind in sorted(self._sums, key=lambda kind: kind or "")]
        return [replace(row, writes=self._writes) if row.kind is None else row for row in rows]

    def _row(self, kind: str | None, counted: Counting) -> Result:
        return replace(
            self._whole,
            kind=kind,
            operations=counted.operations,
            errors=counted.errors,
            reads=counted.reads,
            qps=counted.operations / self._seconds if self._seconds else None,
            latency=counted.histogram,
        )


def replaced_span(record: RunRecord) -> float | None:
    """Return the seconds from the start of MEASUREMENT to the decision that stopped the load, if no worker ran for all of this
    time: each was lost, left early or replaced another worker. Else None.

    A worker that ran all the time measures the duration itself. Its figure is more exact, because a worker enters a phase up to
    some seconds after the orchestrator has decided it."""
    began = record.run.warmup_ended_at
    stopped = next((each.at for actions in _STOPPED for each in record.decisions if each.what in actions), None)
    if began is None or stopped is None or any(_stayed(worker, began, stopped) for worker in record.workers):
        return None
    return (stopped - began).total_seconds()


def _stayed(worker: WorkerRecord, began: datetime, stopped: datetime) -> bool:
    """Whether a worker ran from the beginning to the end of the measurement."""
    if worker.status in _BAD_ENDS or worker.extra.get("from_samples") or worker.began is None or worker.began > began:
        return False
    return worker.ended is None or worker.ended >= stopped - _BEAT_STORED_WITHIN


def whole_run(
    run_id: RunId, rows: Sequence[Result], ending: RunEnding, now: datetime, span: float | None = None
) -> list[Result]:
    """Merge the workers' results into the rows of the whole run: first all kinds of operations, then one row for each kind.

    Rates are operations divided by the longest time that a worker measured, or by ``span`` (see ``replaced_span``) if that is
    longer.
    """
    sums: defaultdict[str | None, _Sum] = defaultdict(_Sum)
    sums[None] = _Sum()
    for row in rows:
        sums[row.kind].add(row)
    longest = sums[None].seconds
    seconds = max(longest, span or 0.0) if longest else 0.0
    began = [row.started_at for row in rows if row.started_at is not None]
    return [
        Result(
            run_id=run_id,
            kind=kind,
            status=ending.status,
            operations=total.operations,
            reads=total.reads,
            writes=total.writes,
            errors=total.errors,
            qps=total.operations / seconds if seconds else None,
            latency=total.latency,
            started_at=min(began, default=None),
            ended_at=now,
        )
        for kind, total in sums.items()
    ]


def with_metrics(rows: Sequence[Result], record: RunRecord, state: ControllerState, ending: RunEnding) -> list[Result]:
    """Return the whole run's rows with connections, search result, caveats, verdicts and cost added to the first row."""
    whole, *kinds = rows
    status, error, server = enrichment(state)
    described_whole = replace(
        whole,
        connections=round(max((second.target for second in record.timeline), default=0)),
        find_max_result=ending.result if record.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY and ending.result else None,
        failure_reason=ending.reason if ending.status is RunStatus.FAILED else None,
        enrichment_status=status,
        enrichment_error=error,
    )
    ended = ended_record(record, [described_whole, *kinds], ending)
    return [replace(described_whole, custom_metrics=_metrics(ended, ending, server)), *kinds]


def _metrics(record: RunRecord, ending: RunEnding, server: Mapping[str, Any]) -> dict[str, Any]:
    slowest = dict(zip(("p95_ms", "p99_ms"), record.slowest, strict=True))
    return {
        "latency_aggregation_method": "merged histograms (exact)" if len(record.workers) > 1 else None,
        "slowest_worker": slowest,
        "client_limited": record.client_limited,
        "flags": _flags(record),
        "doubts": [*record.notes, *caveats(record)],
        "phases": {phase.name: _figures(phase.whole) for phase in record.phases},
        "slo": [_verdict(each) for each in verdicts_of(record)],
        "cost": stored_cost(record),
        "bounds": dict(ending.result) if record.plan.load_mode is LoadMode.QPS else None,
        "server": dict(server),
        "availability": as_metrics(availability_of(record)),
        "corrected": asdict(fair) if (fair := corrected(record)) else None,
        "curves": encode_curves(curves_of(record.timeline)),
        "failures": _examples(record),
        "error_classes": errors_by_class(record),
    }


def _examples(record: RunRecord) -> list[dict[str, Any]]:
    """Return one example of a failed operation for each combination of kind, error class and SQLSTATE, for the web pages."""
    sorts = {(each.kind, each.error_class, each.sqlstate): each for each in record.failures}
    return [asdict(each) for each in sorts.values()]


def _flags(record: RunRecord) -> list[str]:
    flags = ["CLIENT_LIMITED"] if record.client_limited else []
    if any(worker.status in _BAD_ENDS or worker.extra.get("from_samples") for worker in record.workers):
        flags.append("WORKERS_LOST")
    if any(second.phase == Phase.MEASUREMENT and (second.errors or second.failed_connects) for second in record.timeline):
        flags.append("ERRORS")
    if (found := availability_of(record)) is not None and found.without_service:
        flags.append("OUTAGE")
    return flags


def _figures(measured: Any) -> dict[str, Any]:
    latency = measured.latency
    return {
        "operations": measured.operations,
        "errors": measured.errors,
        "qps": measured.qps,
        "p50_ms": latency.p50_ms,
        "p95_ms": latency.p95_ms,
        "p99_ms": latency.p99_ms,
    }


def _verdict(verdict: Any) -> dict[str, Any]:
    return {
        "kind": verdict.kind or None,
        "measure": verdict.measure,
        "limit": verdict.limit,
        "found": verdict.found,
        "standing": verdict.standing,
    }


def stored_cost(record: RunRecord) -> dict[str, Any] | None:
    """Return a run's cost as its result stores it, with the hours used; ``target`` is the database's part of the total. None if
    the cost is unknown."""
    cost = cost_of(record)
    if cost.method is Method.UNAVAILABLE:
        return None
    names = ("total", "currency", "per_1000_operations", "target", *HOURS)
    return {name: getattr(cost, name) for name in names}


def enrichment(state: ControllerState) -> tuple[str, str | None, dict[str, Any]]:
    """Return the enrichment status of a run's result, the error or None, and how much each counter of the server rose."""
    before, warm, after = (state.snapshots.get(name) for name in ("before_warmup", "after_warmup", "after_measurement"))
    if not state.snapshots:
        return SKIPPED, "the database offers no server statistics, or they could not be read", {}
    begin = warm or before
    if begin is None or after is None:
        return FAILED, "the server's totals were not read at both the start and the end of the measurement", {}
    parts: dict[str, Any] = {"measurement": rise(begin, after)}
    if before is not None and warm is not None:
        parts["warmup"] = rise(before, warm)
    first = before or begin
    if after.get(RESETS, 0) > first.get(RESETS, 0) or any(was_reset(name, begin, after) for name in parts["measurement"]):
        parts["note"] = "the server's totals were reset during the run (restart or reset): its counts just before that are lost"
    return COMPLETED, None, parts
