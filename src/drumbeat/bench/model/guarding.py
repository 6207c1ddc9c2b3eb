"""What guardrails see, remember and say. The state is kept in the run's row, so that any orchestrator can go on with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from drumbeat.bench.model.plan import Guardrails, Scaling
from drumbeat.core.event import NewEvent
from drumbeat.core.worker import WorkerId


class GuardrailState(StrEnum):
    """How a run stands with its hosts."""

    NORMAL = "normal"  #: no worker is over a threshold
    WARNING = "warning"  #: some are; something is done about it
    CRITICAL = "critical"  #: so many are that the run fails if it stays so
    DEGRADED = "degraded"  #: the run goes on with less than it was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedWorker:
    """One worker that works, and what its host is put to."""

    worker_id: WorkerId
    slot: int
    target: int  #: connections it is told to hold
    cpu_percent: float | None = None
    memory_percent: float | None = None
    fresh: bool = True  #: whether the figures are recent; those that are not say nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardView:
    """What guardrails decide by."""

    now: datetime
    guardrails: Guardrails
    scaling: Scaling
    workers: tuple[GuardedWorker, ...]
    most_workers: int | None = None
    coming: int = 0  #: workers that are being started


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """The workers whose figures count, and those of them that are over."""

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
    """What is remembered of one worker. Numbers are looks, in a row."""

    over: int = 0
    calm: int = 0
    ceiling: int | None = None  #: the most it may hold; None: its usual cap
    before: int | None = None  #: what it held before it was first backed off
    backed_off: int = 0  #: how often
    since: int = 0  #: looks since the last time


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAction:
    """One line of ``actions_taken``."""

    timestamp: datetime
    action: str  #: back_off, restore, scale_out
    worker_id: WorkerId | None
    previous_target: int | None
    new_target: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What guardrails remember between beats."""

    state: GuardrailState = GuardrailState.NORMAL
    workers_over_cpu: tuple[WorkerId, ...] = ()
    workers_over_memory: tuple[WorkerId, ...] = ()
    over_threshold_intervals: int = 0  #: looks in a row with any worker over
    failing_intervals: int = 0  #: looks in a row with enough of them over for the run to fail
    actions_taken: tuple[GuardAction, ...] = ()
    looked_at: datetime | None = None
    workers: Mapping[str, WorkerGuard] = field(default_factory=dict)
    extra_workers: int = 0  #: asked for since the run began, to take what others were relieved of
    warned: tuple[str, ...] = ()  #: what the last warnings said, so that they are not repeated
    banner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFailure:
    """Why the run must end."""

    completion_reason: str  #: RESOURCE_EXHAUSTION, or GUARDRAIL in hard mode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailDecision:
    """What guardrails want from now on."""

    state: GuardState
    ceilings: Mapping[WorkerId, int] = field(default_factory=dict)  #: of workers that must hold less than their cap
    extra_workers: int = 0  #: beyond what the load mode asks for
    failure: GuardFailure | None = None
    facts: tuple[NewEvent, ...] = ()  #: SCALE_DOWN and GUARDRAIL_WARNING, for the record
    banner: str | None = None  #: one line for whoever watches; None: all is well
    reason: str | None = None  #: what was done now, and why
