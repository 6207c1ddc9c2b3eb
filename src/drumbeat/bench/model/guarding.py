"""Data of guardrails, which limit the CPU and memory use of workers' hosts: input, stored state, and decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from drumbeat.bench.model.plan import Guardrails, Scaling
from drumbeat.core.event import NewEvent
from drumbeat.core.worker import WorkerId


class GuardrailState(StrEnum):
    """Whether workers of a run are above a CPU or memory threshold, and what that means for the run."""

    NORMAL = "normal"  #: no worker is above a threshold
    WARNING = "warning"  #: some workers are above a threshold, so their load is reduced
    CRITICAL = "critical"  #: so many workers are above a threshold that the run fails if this continues
    DEGRADED = "degraded"  #: the run continues with less load than requested


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedWorker:
    """One running worker, its assigned connections, and the CPU and memory use of its host."""

    worker_id: WorkerId
    slot: int
    target: int  #: how many connections it is assigned
    cpu_percent: float | None = None
    memory_percent: float | None = None
    fresh: bool = True  #: whether the figures are recent; old figures are ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardView:
    """The input of a guardrail decision: the limits, the workers, and the highest number of workers allowed."""

    now: datetime
    guardrails: Guardrails
    scaling: Scaling
    workers: tuple[GuardedWorker, ...]
    most_workers: int | None = None
    coming: int = 0  #: how many workers are being started
    waiting: int | None = None  #: how many sessions wait in the server; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """Which workers have recent figures (``fresh``), and which of them are above the CPU or memory threshold."""

    fresh: tuple[GuardedWorker, ...]
    over_cpu: tuple[GuardedWorker, ...]
    over_memory: tuple[GuardedWorker, ...]

    @property
    def over(self) -> list[GuardedWorker]:
        ids = {worker.worker_id for worker in (*self.over_cpu, *self.over_memory)}
        return [worker for worker in self.fresh if worker.worker_id in ids]

    @property
    def all_over(self) -> bool:
        return len(self.over) == len(self.fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGuard:
    """The guardrail state of one worker. ``over`` and ``calm`` count consecutive checks above and below the thresholds."""

    over: int = 0
    calm: int = 0
    ceiling: int | None = None  #: its reduced maximum of connections; None: not reduced
    before: int | None = None  #: its connections before the first reduction
    backed_off: int = 0  #: how often its connections were reduced
    since: int = 0  #: checks since the last reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAction:
    """One action of the guardrails, for the list ``actions_taken``: which worker's connections changed, and how."""

    timestamp: datetime
    action: str  #: back_off, restore, scale_out
    worker_id: WorkerId | None
    previous_target: int | None
    new_target: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """The state of guardrails between two passes of the control loop, stored in the run's row for any orchestrator."""

    state: GuardrailState = GuardrailState.NORMAL
    workers_over_cpu: tuple[WorkerId, ...] = ()
    workers_over_memory: tuple[WorkerId, ...] = ()
    over_threshold_intervals: int = 0  #: consecutive checks in which any worker was above a threshold
    failing_intervals: int = 0  #: consecutive checks with so many workers above a threshold that the run fails if this lasts
    queued_intervals: int = 0  #: consecutive checks in which too many sessions waited in the server
    actions_taken: tuple[GuardAction, ...] = ()
    looked_at: datetime | None = None
    workers: Mapping[str, WorkerGuard] = field(default_factory=dict)
    extra_workers: int = 0  #: workers added since the run began, to take over load from others
    warned: tuple[str, ...] = ()  #: the last warnings, so that they are not repeated
    banner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFailure:
    """Says that guardrails end the run as failed, and why."""

    completion_reason: str  #: RESOURCE_EXHAUSTION, SERVER_QUEUE, or GUARDRAIL in hard mode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailDecision:
    """What guardrails demand from now on: lower connection limits, extra workers, or the end of the run."""

    state: GuardState
    ceilings: Mapping[WorkerId, int] = field(default_factory=dict)  #: max connections of workers with reduced load
    extra_workers: int = 0  #: workers to add to those that the load mode needs
    failure: GuardFailure | None = None
    facts: tuple[NewEvent, ...] = ()  #: SCALE_DOWN and GUARDRAIL_WARNING events
    banner: str | None = None  #: one line for the user interface; None: no problem
    reason: str | None = None  #: what the guardrails did in this beat, and why
