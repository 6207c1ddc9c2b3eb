"""Data of load modes, which decide how much load a run generates: input, decisions, and the state stored in the run's row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from drumbeat.bench.model.figures import Figures, KindFigures
from drumbeat.bench.model.plan import RunPlan
from drumbeat.core.run import RunId, Step

SAMPLES_ARRIVE_WITHIN = timedelta(milliseconds=1500)  #: how long after a window's end its last samples may arrive


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time window that a load mode asks to be measured. Its figures are available soon after its end, at a beat (pass of the
    control loop)."""

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
    kinds: Mapping[str, KindFigures] = field(default_factory=dict)  #: figures of the kinds that have their own objective


class FindMaxStatus(StrEnum):
    """The stage of a find-max search. A level is a number of connections; the best level is the highest stable one so far."""

    STEPPING = "STEPPING"  #: each step adds one increment of connections
    VERIFYING = "VERIFYING"  #: measures the best level again, after the first unstable level
    BISECTING = "BISECTING"  #: searches between the best level and the lowest unstable one
    COMPLETED = "COMPLETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMaxState:
    """The state of a find-max search between two passes of the control loop. A level is a number of connections."""

    status: FindMaxStatus = FindMaxStatus.STEPPING
    step: int = 0  #: the current step's number, from 1
    connections: int = 0  #: total connections of the current step
    previous: int | None = None  #: total connections of the previous step
    began: datetime | None = None  #: when the current step set its connections
    window: Window | None = None  #: what is measured; None until every worker has opened its connections
    repeated: bool = False  #: whether the current level has been repeated already
    baseline: StepFigures | None = None  #: the first stable step
    best: StepFigures | None = None  #: the highest stable level so far
    failed: StepFigures | None = None  #: the lowest unstable level
    failed_outcome: str | None = None
    failed_reason: str | None = None  #: why the first unstable level, which ended the stepping, was unstable
    history: tuple[StepFigures, ...] = ()
    next_connections: int | None = None  #: the next level if this step is stable, for display
    ceiling_reached: bool = False
    trial: int = 0  #: the level that is tested; while the baseline is measured again, ``connections`` has the baseline's level
    rounds: int = 0  #: how many levels were stable at first, but not when verified
    short: str | None = None  #: why the window began before all connections were open


@dataclass(frozen=True, slots=True, kw_only=True)
class QpsState:
    """The state of load mode QPS (adjusts connections to reach a throughput) between two passes of the control loop."""

    connections: int = 0  #: total connections
    workers: int = 1
    window: Window | None = None
    looks: int = 0  #: how many time windows were evaluated
    step: int = 0  #: how often the connections were changed
    under: int = 0  #: consecutive windows with throughput below the target
    at_ceiling: int = 0  #: consecutive windows below the target with all limits reached
    slack: int = 0  #: consecutive windows with more connections than needed
    last_change: datetime | None = None
    last_error_pct: float | None = None  #: deviation of throughput from the target, with sign
    ready: int = 0  #: how many workers were running in the last window
    unsettled_since: datetime | None = None  #: since when workers or connections are missing; None: none are
    peak_service_ms: float | None = None  #: highest service time in the windows counted by ``slack``
    scaled_out_at_qps: float | None = None  #: throughput before workers were last added
    scaled_out_from: int | None = None  #: connections before workers were last added
    settled: bool = False  #: whether nothing needs to change: the target, or the most that is possible, is reached
    futile: int = 0  #: windows since it was found that added workers bring no throughput; 0: not found


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeView:
    """The input of a load mode's decision: the plan, the phase, and what the workers do now."""

    run_id: RunId
    now: datetime
    plan: RunPlan
    phase: str  #: WARMUP or MEASUREMENT
    phase_began: datetime
    connections: int  #: total connections that are assigned to workers now
    held: int  #: total open connections that workers report
    ready: int  #: how many workers are running
    coming: int  #: how many workers are being started
    most_workers: int | None  #: how many workers the plan allows; None: no limit
    figures: Figures | None = None  #: what was measured in the requested window; None before its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The decision of a load mode to end the run, with the reason and the result."""

    completion_reason: str  #: one of DURATION, MAX_FOUND, BOUNDS_LIMIT_REACHED
    reason: str
    result: Mapping[str, Any] = field(default_factory=dict)  #: find_max_result, or which limits were reached


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDecision:
    """The decision of a load mode: connections, workers and rate. ``qps`` is the rate of all workers; None: no limit."""

    connections: int
    workers: int
    reason: str
    qps: float | None = None
    find_max: FindMaxState | None = None
    qps_state: QpsState | None = None
    step: Step | None = None  #: a step that has just ended, to be stored
    finish: Finish | None = None
