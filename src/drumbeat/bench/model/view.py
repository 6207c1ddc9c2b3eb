"""Input, state and actions of a run's orchestrator; all are immutable."""

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
    """Statistics of the database under test. None: not reported."""

    look: int = 0  #: the number of this reading, from 1
    sessions: int | None = None
    active: int | None = None
    waiting: int | None = None
    lock_waits: int | None = None
    wait_events: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)  #: running totals
    error: str | None = None  #: why the statistics could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTarget:
    """The target that was last assigned to a worker."""

    connections: int
    qps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """How a run ends once its workers have left."""

    status: RunStatus
    completion_reason: str
    reason: str
    result: Mapping[str, Any] = field(default_factory=dict)  #: the result of the load mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """The orchestrator's state between beats. It is stored in the run's row, so that the next leader can resume."""

    connections: int = 0  #: wanted in total
    workers: int = 0  #: wanted
    pace: float | None = None  #: total operations per second; None: as fast as possible
    told: Mapping[WorkerId, AssignedTarget] = field(default_factory=dict)
    find_max: FindMaxState | None = None
    qps: QpsState | None = None
    guard: GuardState | None = None
    snapshots: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  #: the server's totals, by the name of a moment
    left_at_look: int | None = None  #: the number of the reading when the last worker left
    looks_waited: int = 0  #: beats since then spent waiting for the server's final totals
    ending: RunEnding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A consistent snapshot of a run, with the time by the store's clock."""

    run_id: RunId
    now: datetime
    looking_since: datetime  #: when the controller began to watch; earlier silence of workers does not count
    status: RunStatus
    phase: str | None
    started_at: datetime | None  #: when the run was told to start
    warmup_started_at: datetime | None
    warmup_ended_at: datetime | None
    completion_reason: str | None
    plan: RunPlan
    state: ControllerState
    thresholds: Thresholds
    workers: tuple[Worker, ...]
    instances: tuple[ListedInstance, ...]
    recent: Figures  #: of the last few seconds
    figures: Figures | None = None  #: of the window that the load mode requested, once it has ended
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
    """Start a worker. Its id is chosen here, so that repeating the action does not start a second one."""

    TYPE: ClassVar[str] = "Spawn"

    worker_id: WorkerId
    slot: int
    group_count: int
    connections: int  #: initial connections
    reason: str
    is_new: bool = True  #: False: its row exists, but its instance does not


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTargets:
    """Assign connections and rates to workers."""

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
    """All workers are ready: set RUNNING, enter the first phase and send START, in one transaction."""

    phase: str
    workers: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterPhase:
    """Enter a phase and notify the workers."""

    phase: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLoad:
    """Tell every worker to leave, and store how the run ends."""

    state: ControllerState
    completion_reason: str
    drain_within: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveStep:
    """Store a finished step."""

    step: Step
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFact:
    """Store an event."""

    event: NewEvent
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Store the state and figures in the run's row. It is the last action: a beat interrupted before it is decided again."""

    state: ControllerState
    operations: int
    errors: int
    qps: float
    metrics: Mapping[str, Any]
    reason: str = "so that any orchestrator can go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """All workers have left: merge their measurements and end the run."""

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
