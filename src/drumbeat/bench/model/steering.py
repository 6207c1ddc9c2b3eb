"""Input, state and decisions of load modes. The state is stored in the run's row, so that any orchestrator can resume."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from drumbeat.bench.model.figures import Figures, KindFigures
from drumbeat.bench.model.plan import RunPlan
from drumbeat.core.run import RunId, Step

SAMPLES_ARRIVE_WITHIN = timedelta(milliseconds=1500)  #: after a window's end; before that, its last samples may be missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time window that a load mode wants measured. Its figures are in the first beat after its end."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """The figures of a finished find-max step, for comparison with later steps."""

    connections: int
    qps: float
    p95_ms: float | None
    p99_ms: float | None
    stable: bool
    is_probe: bool = False
    kinds: Mapping[str, KindFigures] = field(default_factory=dict)  #: kinds with their own objective


class FindMaxStatus(StrEnum):
    """The stage of a find-max search."""

    STEPPING = "STEPPING"  #: goes up by one increment per step
    VERIFYING = "VERIFYING"  #: measures the best level again after the first failure
    BISECTING = "BISECTING"  #: searches between the best level and the lowest failed one
    COMPLETED = "COMPLETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMaxState:
    """The state of a find-max search between beats."""

    status: FindMaxStatus = FindMaxStatus.STEPPING
    step: int = 0  #: the current step's number, from 1
    connections: int = 0  #: the current step's level
    previous: int | None = None  #: the previous step's level
    began: datetime | None = None  #: when its target was set
    window: Window | None = None  #: None until every worker holds its target
    repeated: bool = False  #: whether the current level has been repeated already
    baseline: StepFigures | None = None  #: the first stable step
    best: StepFigures | None = None  #: the highest stable level so far
    failed: StepFigures | None = None  #: the lowest unstable level
    failed_outcome: str | None = None
    failed_reason: str | None = None  #: of the first failure, which ended the search
    history: tuple[StepFigures, ...] = ()
    next_connections: int | None = None  #: the level after a stable step, for display
    ceiling_reached: bool = False
    trial: int = 0  #: the level to be judged; ``connections`` differs while the baseline is measured again
    rounds: int = 0  #: how many best levels failed verification
    short: str | None = None  #: why the window began before all connections were open


@dataclass(frozen=True, slots=True, kw_only=True)
class QpsState:
    """The state of the QPS controller between beats."""

    connections: int = 0  #: in total
    workers: int = 1
    window: Window | None = None
    looks: int = 0  #: number of evaluated windows
    step: int = 0  #: number of changes
    under: int = 0  #: consecutive windows below the target
    at_ceiling: int = 0  #: consecutive windows below the target with all limits reached
    slack: int = 0  #: consecutive windows with more connections than needed
    last_change: datetime | None = None
    last_error_pct: float | None = None  #: signed
    ready: int = 0  #: working workers in the last window
    unsettled_since: datetime | None = None  #: since when workers have not held their assigned connections; None: they do
    peak_service_ms: float | None = None  #: the highest in the windows with slack
    scaled_out_at_qps: float | None = None  #: throughput when workers were last added
    scaled_out_from: int | None = None  #: connections when workers were last added
    settled: bool = False  #: whether nothing needs to change: on target, or no more can be reached
    futile: int = 0  #: windows since workers were added without effect; 0: the last ones had an effect


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeView:
    """The input for a decision of a load mode."""

    run_id: RunId
    now: datetime
    plan: RunPlan
    phase: str  #: WARMUP or MEASUREMENT
    phase_began: datetime
    connections: int  #: the total assigned to workers now
    held: int  #: the total that workers report
    ready: int  #: working workers
    coming: int  #: workers that are being started
    most_workers: int | None  #: by the plan's limits; None: no limit
    figures: Figures | None = None  #: of the requested window; None before its end, or without a window


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The load mode is finished."""

    completion_reason: str  #: DURATION, MAX_FOUND, BOUNDS_LIMIT_REACHED
    reason: str
    result: Mapping[str, Any] = field(default_factory=dict)  #: find_max_result, or which limits were reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Steer:
    """What a load mode wants from now on. ``qps`` is the total rate of all workers; None: as fast as possible."""

    connections: int
    workers: int
    reason: str
    qps: float | None = None
    find_max: FindMaxState | None = None
    qps_state: QpsState | None = None
    step: Step | None = None  #: a step that has just ended, to be stored
    finish: Finish | None = None
