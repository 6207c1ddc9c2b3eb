"""Input, state and decisions of guardrails. The state is stored in the run's row, so that any orchestrator can resume."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from drumbeat.bench.model.plan import Guardrails, Scaling
from drumbeat.core.event import NewEvent
from drumbeat.core.worker import WorkerId


class GuardrailState(StrEnum):
    """The guardrail state of a run."""

    NORMAL = "normal"  #: no worker is above a threshold
    WARNING = "warning"  #: some workers are above a threshold and are being relieved
    CRITICAL = "critical"  #: so many workers are above a threshold that the run fails if this continues
    DEGRADED = "degraded"  #: the run continues with less load than requested


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedWorker:
    """One running worker and the usage of its host."""

    worker_id: WorkerId
    slot: int
    target: int  #: connections that it is assigned
    cpu_percent: float | None = None
    memory_percent: float | None = None
    fresh: bool = True  #: whether the figures are recent; old figures are ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardView:
    """The input for a guardrail decision."""

    now: datetime
    guardrails: Guardrails
    scaling: Scaling
    workers: tuple[GuardedWorker, ...]
    most_workers: int | None = None
    coming: int = 0  #: workers that are being started


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """The workers with recent figures, and those of them that are above a threshold."""

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
    """The guardrail state of one worker. ``over`` and ``calm`` count consecutive checks."""

    over: int = 0
    calm: int = 0
    ceiling: int | None = None  #: max connections; None: its normal cap
    before: int | None = None  #: its connections before the first back-off
    backed_off: int = 0  #: number of back-offs
    since: int = 0  #: checks since the last back-off


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAction:
    """One entry of ``actions_taken``."""

    timestamp: datetime
    action: str  #: back_off, restore, scale_out
    worker_id: WorkerId | None
    previous_target: int | None
    new_target: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """The state of guardrails between beats."""

    state: GuardrailState = GuardrailState.NORMAL
    workers_over_cpu: tuple[WorkerId, ...] = ()
    workers_over_memory: tuple[WorkerId, ...] = ()
    over_threshold_intervals: int = 0  #: consecutive checks with any worker above a threshold
    failing_intervals: int = 0  #: consecutive checks with enough workers above it for the run to fail
    actions_taken: tuple[GuardAction, ...] = ()
    looked_at: datetime | None = None
    workers: Mapping[str, WorkerGuard] = field(default_factory=dict)
    extra_workers: int = 0  #: workers added since the run began, to take over load from others
    warned: tuple[str, ...] = ()  #: the last warnings, so that they are not repeated
    banner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFailure:
    """Why guardrails end the run."""

    completion_reason: str  #: RESOURCE_EXHAUSTION, or GUARDRAIL in hard mode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailDecision:
    """What guardrails demand from now on."""

    state: GuardState
    ceilings: Mapping[WorkerId, int] = field(default_factory=dict)  #: max connections of workers that must stay below their cap
    extra_workers: int = 0  #: in addition to what the load mode needs
    failure: GuardFailure | None = None
    facts: tuple[NewEvent, ...] = ()  #: SCALE_DOWN and GUARDRAIL_WARNING events
    banner: str | None = None  #: one line for the user interface; None: no problem
    reason: str | None = None  #: what was done in this beat, and why
