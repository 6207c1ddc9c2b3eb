"""What the orchestrator of a run sees, remembers and may do: a frozen view in, frozen actions out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar

from drumbeat.bench.model.figures import Figures
from drumbeat.bench.model.guarding import GuardState
from drumbeat.bench.model.plan import RunPlan
from drumbeat.bench.model.steering import FindMaxState, QpsState
from drumbeat.core.event import NewEvent
from drumbeat.core.pool import Thresholds
from drumbeat.core.recovery import ListedInstance, PoolSnapshot, Recovery
from drumbeat.core.run import RunId, RunStatus, Step
from drumbeat.core.worker import Worker, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProbe:
    """What the database under test says of itself. None: it says nothing of that."""

    look: int = 0  #: how many times it has been asked, this time included
    sessions: int | None = None
    active: int | None = None
    waiting: int | None = None
    lock_waits: int | None = None
    wait_events: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)  #: running totals
    error: str | None = None  #: why it could not be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTarget:
    """What a worker was last told."""

    connections: int
    qps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """How a run is to end once its workers have left."""

    status: RunStatus
    completion_reason: str
    reason: str
    result: Mapping[str, Any] = field(default_factory=dict)  #: what the load mode found


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """What an orchestrator remembers between beats. It is in the run's row: whoever leads next goes on with it."""

    connections: int = 0  #: wanted in all
    workers: int = 0  #: wanted
    pace: float | None = None  #: operations a second in all; None: as fast as they can
    told: Mapping[WorkerId, AssignedTarget] = field(default_factory=dict)
    find_max: FindMaxState | None = None
    qps: QpsState | None = None
    guard: GuardState | None = None
    snapshots: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  #: the server's totals, by moment
    left_at_look: int | None = None  #: how often the server had been asked when the last worker had left
    looks_waited: int = 0  #: beats since then in which its last totals were waited for
    ending: RunEnding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One consistent look at a run. The time is in it, by the store's clock."""

    run_id: RunId
    now: datetime
    looking_since: datetime  #: before this no controller saw anything; no silence is counted from before
    status: RunStatus
    phase: str | None
    started_at: datetime | None  #: when it was told to start
    warmup_started_at: datetime | None
    warmup_ended_at: datetime | None
    completion_reason: str | None
    plan: RunPlan
    state: ControllerState
    thresholds: Thresholds
    workers: tuple[Worker, ...]
    instances: tuple[ListedInstance, ...]
    recent: Figures  #: of the last seconds
    figures: Figures | None = None  #: of the window the load mode asked for, once it has passed
    probe: ServerProbe | None = None

    @property
    def sight(self) -> PoolSnapshot:
        return PoolSnapshot(
            now=self.now,
            looking_since=self.looking_since,
            thresholds=self.thresholds,
            workers=self.workers,
            instances=self.instances,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnBenchWorker:
    """Start a worker. Named here, so that asking twice is asking once."""

    TYPE: ClassVar[str] = "Spawn"

    worker_id: WorkerId
    slot: int
    group_count: int
    connections: int  #: what it shall hold to begin with
    reason: str
    is_new: bool = True  #: False: its row is there, its instance is not


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTargets:
    """Tell workers what to hold, and how fast."""

    targets: Mapping[WorkerId, AssignedTarget]
    ramp: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskWorkersToDrain:
    """Ask workers to finish and leave."""

    TYPE: ClassVar[str] = "AskToDrain"

    workers: tuple[WorkerId, ...]
    within: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Every worker is ready: RUNNING, the first phase and START, in one transaction."""

    phase: str
    workers: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterPhase:
    """Go over to a phase, and tell the workers."""

    phase: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLoad:
    """Tell every worker to leave; how the run ends is remembered with it."""

    state: ControllerState
    completion_reason: str
    drain_within: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveStep:
    """Keep a step that ended."""

    step: Step
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFact:
    """Write an event for the record."""

    event: NewEvent
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Keep the state and the figures in the run's row. Comes last: whatever is cut off before it is decided again."""

    state: ControllerState
    operations: int
    errors: int
    qps: float
    metrics: Mapping[str, Any]
    reason: str = "so that any orchestrator can go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """Every worker has left: merge what they measured, and end the run."""

    ending: RunEnding
    reason: str


Action = (
    Recovery
    | SpawnBenchWorker
    | SetTargets
    | AskWorkersToDrain
    | Begin
    | EnterPhase
    | StopLoad
    | SaveStep
    | NoteFact
    | Remember
    | Conclude
)
