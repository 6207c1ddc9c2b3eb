"""What a load mode sees, remembers and says. It is kept in the run's row, so that any orchestrator can go on with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from drumbeat.bench.model.figures import Figures, KindFigures
from drumbeat.bench.model.plan import RunPlan
from drumbeat.core.run import RunId, Step

SAMPLES_ARRIVE_WITHIN = timedelta(milliseconds=1500)  #: after a window's end; until then its last samples may be missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of time a mode wants measured. Its figures come with the first beat after its end."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """A finished find-max step, as later ones are compared with it."""

    connections: int
    qps: float
    p95_ms: float | None
    p99_ms: float | None
    stable: bool
    is_probe: bool = False
    kinds: Mapping[str, KindFigures] = field(default_factory=dict)  #: those that have an objective of their own


class FindMaxStatus(StrEnum):
    """Where a search is."""

    STEPPING = "STEPPING"  #: up, one increment at a time
    VERIFYING = "VERIFYING"  #: back at the best level after a first failure
    BISECTING = "BISECTING"  #: between the best level and the lowest one that failed
    COMPLETED = "COMPLETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMaxState:
    """What a search remembers between beats."""

    status: FindMaxStatus = FindMaxStatus.STEPPING
    step: int = 0  #: the current step's number, from 1
    connections: int = 0  #: the current step's level
    previous: int | None = None  #: the level before it
    began: datetime | None = None  #: when its target was set
    window: Window | None = None  #: None until every worker holds its target
    repeated: bool = False  #: whether the level in question has been repeated once already (C25)
    baseline: StepFigures | None = None  #: the first stable step
    best: StepFigures | None = None  #: the highest stable level so far
    failed: StepFigures | None = None  #: the lowest level that was not stable
    failed_outcome: str | None = None
    failed_reason: str | None = None  #: the first failure's, which is why the search ended
    history: tuple[StepFigures, ...] = ()
    next_connections: int | None = None  #: what would come after a stable step, for whoever watches
    ceiling_reached: bool = False
    trial: int = 0  #: the level in question; ``connections`` differs from it while the baseline is measured again
    rounds: int = 0  #: how many best levels have failed when they were verified
    short: str | None = None  #: why the window was opened before every connection was held


@dataclass(frozen=True, slots=True, kw_only=True)
class QpsState:
    """What the throughput controller remembers between beats."""

    connections: int = 0  #: in all
    workers: int = 1
    window: Window | None = None
    looks: int = 0  #: how many windows have been judged
    step: int = 0  #: how many changes have been made
    under: int = 0  #: windows in a row below the target
    at_ceiling: int = 0  #: windows in a row below it with nothing left to give
    slack: int = 0  #: windows in a row with more connections than it takes
    last_change: datetime | None = None
    last_error_pct: float | None = None  #: signed
    ready: int = 0  #: workers that worked at the last look
    unsettled_since: datetime | None = None  #: since when the workers have not held what they were told; None: they do
    peak_service_ms: float | None = None  #: the slowest of the windows with slack
    scaled_out_at_qps: float | None = None  #: what was reached when workers were last added
    scaled_out_from: int | None = None  #: and with how many connections
    settled: bool = False  #: whether the last look found nothing to change: on target, or no more to be had
    futile: int = 0  #: windows since workers were added that brought no more; 0: those added last did


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeView:
    """What a load mode decides by."""

    run_id: RunId
    now: datetime
    plan: RunPlan
    phase: str  #: WARMUP or MEASUREMENT
    phase_began: datetime
    connections: int  #: the total the workers are told to hold, as it is now
    held: int  #: what they say they hold
    ready: int  #: workers that work
    coming: int  #: workers that are being started
    most_workers: int | None  #: how many there may be, by the plan's bounds; None: no limit
    figures: Figures | None = None  #: of the window the state asks for; None while it lasts, or before one is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The mode has reached its end."""

    completion_reason: str  #: DURATION, MAX_FOUND, BOUNDS_LIMIT_REACHED
    reason: str
    result: Mapping[str, Any] = field(default_factory=dict)  #: find_max_result, or what bounds were reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Steer:
    """What a load mode wants from now on. ``qps`` paces the workers together; None: as fast as they can."""

    connections: int
    workers: int
    reason: str
    qps: float | None = None
    find_max: FindMaxState | None = None
    qps_state: QpsState | None = None
    step: Step | None = None  #: one that ended now, for the record
    finish: Finish | None = None
