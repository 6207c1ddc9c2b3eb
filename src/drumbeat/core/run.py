"""A run: one benchmark execution, its phases, steps and results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

from drumbeat.core.errors import IllegalMove, StaleWrite
from drumbeat.core.histogram import Histogram
from drumbeat.core.worker import WorkerId

RunId = NewType("RunId", str)


class RunStatus(StrEnum):
    """The state of a run.

    PREPARED ─▶ STARTING ─▶ RUNNING ─▶ STOPPING ─▶ COMPLETED
        │          └───────────┼──────────▲│
        └──────────┴───────────┴──────────┴┼─▶ CANCELLING ─▶ CANCELLED
        └──────────┴───────────┴───────────┴──────┴────────▶ FAILED
    """

    PREPARED = "PREPARED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    CANCELLING = "CANCELLING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


RUN_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})

RUN_MOVES: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.PREPARED: frozenset({RunStatus.STARTING, RunStatus.CANCELLING, RunStatus.CANCELLED, RunStatus.FAILED}),
    RunStatus.STARTING: frozenset({RunStatus.RUNNING, RunStatus.STOPPING, RunStatus.CANCELLING, RunStatus.FAILED}),
    RunStatus.RUNNING: frozenset({RunStatus.STOPPING, RunStatus.CANCELLING, RunStatus.FAILED}),
    RunStatus.STOPPING: frozenset({RunStatus.COMPLETED, RunStatus.CANCELLING, RunStatus.FAILED}),
    RunStatus.CANCELLING: frozenset({RunStatus.CANCELLED, RunStatus.FAILED}),
    RunStatus.COMPLETED: frozenset(),
    RunStatus.FAILED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
}


def check_run_move(run: str, before: RunStatus, after: RunStatus) -> None:
    """Raise IllegalMove if a run must not change from status ``before`` to ``after``; see the diagram of RunStatus."""
    if after not in RUN_MOVES[before]:
        legal = ", ".join(sorted(RUN_MOVES[before])) or "nothing: it is an end state"
        raise IllegalMove(f"run {run} cannot move from {before} to {after}; from {before} it can move to {legal}")


class Phase(StrEnum):
    """The phase of a benchmark run, that is, what it is doing now."""

    PREPARING = "PREPARING"
    WARMUP = "WARMUP"
    MEASUREMENT = "MEASUREMENT"
    COOLDOWN = "COOLDOWN"
    PROCESSING = "PROCESSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stored benchmark run: one row of ``runs``. Its workers are in the pool with the same id."""

    run_id: RunId
    name: str
    config: Mapping[str, Any]
    status: RunStatus = RunStatus.PREPARED
    phase: str | None = None
    template_id: str | None = None
    completion_reason: str | None = None
    expected_workers: int = 0
    operations: int = 0
    errors: int = 0
    qps: float = 0.0
    controller_state: Mapping[str, Any] = field(default_factory=dict)
    custom_metrics: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None  #: when its first worker was started
    warmup_started_at: datetime | None = None
    warmup_ended_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row of ``results``: the figures of a whole run or of one worker, over all operations or one kind of operation."""

    run_id: RunId
    worker_id: WorkerId | None = None  #: None: the whole run
    kind: str | None = None  #: kind of operation; None: all kinds
    status: RunStatus = RunStatus.RUNNING
    connections: int | None = None
    operations: int = 0
    reads: int = 0
    writes: int = 0
    errors: int = 0
    qps: float | None = None
    latency: Histogram = field(default_factory=Histogram)
    find_max_result: Mapping[str, Any] | None = None
    failure_reason: str | None = None
    enrichment_status: str | None = None
    enrichment_error: str | None = None
    custom_metrics: Mapping[str, Any] = field(default_factory=dict)
    started_at: datetime | None = None
    ended_at: datetime | None = None


def error_rate(operations: float, errors: float, failed_connects: float = 0) -> float:
    """Return the share of failures, from 0 to 1. A failed attempt to connect counts as one more operation, which failed."""
    tried = operations + failed_connects
    return (errors + failed_connects) / tried if tried else 0.0


class StepType(StrEnum):
    """The type of a load step: a step of the search for the maximum load, or a change of connections to hold a target QPS."""

    FIND_MAX = "FIND_MAX"
    QPS_SCALING = "QPS_SCALING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of ``steps``: a load that a controller decided on, and what was measured under that load."""

    run_id: RunId
    type: StepType
    n: int  #: number of the step, from 1 for each type
    from_target: int | None  #: total connections before the step
    to_target: int  #: total connections from the step on
    started_at: datetime
    ended_at: datetime | None = None
    operations: int = 0
    errors: int = 0
    failed_connects: int = 0
    qps: float | None = None
    target_qps: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    qps_vs_prior: float | None = None  #: change of qps against the last stable step, in percent
    p95_vs_baseline: float | None = None  #: change of p95 against the first step, in percent
    queue_detected: bool | None = None  #: None: the server does not report waiting sessions
    #: STABLE, DEGRADED, ERROR_THRESHOLD, QUEUE_DETECTED, SLO, HELD; UNDER_TARGET, OVER_TARGET, ON_TARGET
    outcome: str | None = None
    reason: str | None = None
    is_probe: bool = False  #: whether the step only verified or bisected a result

    @property
    def error_rate(self) -> float:
        return error_rate(self.operations, self.errors, self.failed_connects)

    @property
    def direction(self) -> str | None:
        if self.from_target is None or self.from_target == self.to_target:
            return None
        return "up" if self.to_target > self.from_target else "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One row of ``executions``: a single operation on the database under test, as a worker recorded it."""

    run_id: RunId
    worker_id: WorkerId
    n: int
    connection: int
    kind: str
    started_at: datetime
    duration_ms: float
    ok: bool
    error_class: str | None = None
    error: str | None = None
    rows: int | None = None
    warmup: bool = False
    query_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One row of ``templates``: a reusable run configuration."""

    template_id: str
    name: str
    config: Mapping[str, Any]
    description: str | None = None
    tags: tuple[str, ...] = ()
    usage_count: int = 0
    last_used_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def expect_content(self, seen: "Template") -> None:
        """Raise StaleWrite if this template no longer has the name, config, description and tags of ``seen``."""
        if any(getattr(self, each) != getattr(seen, each) for each in ("name", "config", "description", "tags")):
            raise StaleWrite(f"template {self.name!r} was changed by someone else meanwhile; reload it and try again")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFile:
    """One row of ``execution_files``: a file that holds some of a run's executions."""

    run_id: RunId
    worker_id: WorkerId
    path: str
    host: str
    rows: int
    size: int  #: in bytes
