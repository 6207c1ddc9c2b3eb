"""Input, stored state and actions of the orchestrator, which controls a run in beats (one decision at a time)."""

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
    """One reading of the sessions and statistics of the database under test. Figures that it does not report are None."""

    look: int = 0  #: the number of this reading, from 1
    sessions: int | None = None
    active: int | None = None
    waiting: int | None = None
    lock_waits: int | None = None
    wait_events: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)  #: the server's running totals by name
    error: str | None = None  #: why the statistics could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTarget:
    """The connections and the rate that were last assigned to a worker."""

    connections: int
    qps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """How a run will end once its workers have left: status, reason and result."""

    status: RunStatus
    completion_reason: str
    reason: str
    result: Mapping[str, Any] = field(default_factory=dict)  #: the result of the load mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """The orchestrator's state between two beats (passes of the control loop), stored in the run's row, so that another
    orchestrator can resume."""

    connections: int = 0  #: total connections wanted
    workers: int = 0  #: number of workers wanted
    pace: float | None = None  #: total operations per second; None: as fast as possible
    told: Mapping[WorkerId, AssignedTarget] = field(default_factory=dict)  #: what each worker was last assigned
    find_max: FindMaxState | None = None
    qps: QpsState | None = None
    guard: GuardState | None = None
    snapshots: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  #: server totals by moment (before_warmup …)
    left_at_look: int | None = None  #: number of the latest server reading when the last worker left
    looks_waited: int = 0  #: how many beats have waited since then for the server's final totals
    waiting: str | None = None  #: what the run waits for because of its engine; None: its workers start as they should
    ending: RunEnding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A consistent snapshot of a run, the input of the orchestrator's decision; ``now`` is the time of the store's clock."""

    run_id: RunId
    now: datetime
    looking_since: datetime  #: when this orchestrator began to watch; earlier missing heartbeats do not count
    status: RunStatus
    phase: str | None
    started_at: datetime | None  #: when its first worker was started
    warmup_started_at: datetime | None
    warmup_ended_at: datetime | None
    completion_reason: str | None
    plan: RunPlan
    state: ControllerState
    thresholds: Thresholds
    workers: tuple[Worker, ...]
    instances: tuple[ListedInstance, ...]
    recent: Figures  #: measurements of the last few seconds
    figures: Figures | None = None  #: measurements of the window that the load mode requested, once it has ended
    probe: ServerProbe | None = None
    engine: str = ""  #: the engine that runs the workers, or several as ``a,b``
    usual_start: timedelta = timedelta()  #: how long a worker usually takes to start there
    unlisted: str | None = None  #: why the engine gave no list of its workers; ``instances`` is then empty

    @property
    def snapshot(self) -> PoolSnapshot:
        return PoolSnapshot(
            now=self.now,
            looking_since=self.looking_since,
            thresholds=self.thresholds,
            workers=self.workers,
            instances=self.instances,
            partial=self.unlisted is not None,
            unlisted=self.unlisted,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnBenchWorker:
    """Action: start a worker. The action contains the worker's id, so that a repeated action does not start a second worker."""

    TYPE: ClassVar[str] = "Spawn"

    worker_id: WorkerId
    slot: int
    group_count: int
    connections: int  #: how many connections it opens at first
    reason: str
    is_new: bool = True  #: False: the worker has a row in the store, but no running process
    at: datetime | None = None  #: when it was decided; the actions of one decision have the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTargets:
    """Action: assign connections and rates to workers."""

    targets: Mapping[WorkerId, AssignedTarget]
    ramp: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskWorkersToDrain:
    """Action: ask workers to finish their operations and leave."""

    TYPE: ClassVar[str] = "AskToDrain"

    workers: tuple[WorkerId, ...]
    within: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Action, once all workers are ready: in one transaction, set the run to RUNNING, enter its first phase, and send START."""

    phase: str
    workers: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterPhase:
    """Action: enter a phase of the run and notify the workers."""

    phase: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLoad:
    """Action: tell every worker to leave, and store how the run will end."""

    state: ControllerState
    completion_reason: str
    drain_within: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveStep:
    """Action: store a finished step of the load mode: the connections it set and what was measured with them."""

    step: Step
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFact:
    """Action: store an event of the run."""

    event: NewEvent
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Action: store the orchestrator's state in the run's row. It comes after the actions that the state records as done, so
    that these are repeated if the beat (pass of the control loop) is interrupted."""

    state: ControllerState
    operations: int
    errors: int
    qps: float
    metrics: Mapping[str, Any]
    reason: str = "so that any orchestrator can go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """Action, once all workers have left: merge their measurements and end the run."""

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
