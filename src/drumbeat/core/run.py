"""A run: one benchmark execution, its phases, steps and results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

from drumbeat.core.errors import IllegalMove
from drumbeat.core.histogram import Histogram
from drumbeat.core.worker import WorkerId

RunId = NewType("RunId", str)


class RunStatus(StrEnum):
    """Where a run is.

    PREPARED ─▶ STARTING ─▶ RUNNING ─▶ STOPPING ─▶ COMPLETED
        └──────────┴───────────┴─▶ CANCELLING ─▶ CANCELLED
        └──────────┴───────────┴──────────┴─────▶ FAILED
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
    RunStatus.STARTING: frozenset({RunStatus.RUNNING, RunStatus.CANCELLING, RunStatus.FAILED}),
    RunStatus.RUNNING: frozenset({RunStatus.STOPPING, RunStatus.CANCELLING, RunStatus.FAILED}),
    RunStatus.STOPPING: frozenset({RunStatus.COMPLETED, RunStatus.CANCELLING, RunStatus.FAILED}),
    RunStatus.CANCELLING: frozenset({RunStatus.CANCELLED, RunStatus.FAILED}),
    RunStatus.COMPLETED: frozenset(),
    RunStatus.FAILED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
}


def check_run_move(run: str, before: RunStatus, after: RunStatus) -> None:
    """Raise IllegalMove unless the diagram has the arrow ``before`` → ``after``."""
    if after not in RUN_MOVES[before]:
        legal = ", ".join(sorted(RUN_MOVES[before])) or "nothing: it is an end state"
        raise IllegalMove(f"run {run} cannot move from {before} to {after}; from {before} it may go to {legal}")


class Phase(StrEnum):
    """What a running benchmark is doing."""

    PREPARING = "PREPARING"
    WARMUP = "WARMUP"
    MEASUREMENT = "MEASUREMENT"
    COOLDOWN = "COOLDOWN"
    PROCESSING = "PROCESSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row of ``runs``. Its workers live in the pool of the same id."""

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
    started_at: datetime | None = None
    warmup_started_at: datetime | None = None
    warmup_ended_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row of ``results``: of a whole run or one worker, over all its operations or one kind."""

    run_id: RunId
    worker_id: WorkerId | None = None  #: None: the whole run
    kind: str | None = None  #: None: all kinds
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFile:
    """One row of ``execution_files``: where some of a run's executions are."""

    run_id: RunId
    worker_id: WorkerId
    path: str
    host: str
    rows: int
    size: int  #: in bytes
