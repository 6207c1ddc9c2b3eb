"""Parts of a decision: what each rule wants, which limits apply, and the actions the fleet can take."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.core.recovery import Recovery
from drumbeat.core.worker import Worker, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWish:
    """How many workers one rule wants, and why."""

    rule: str
    workers: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit that changed the number of wanted workers, and why."""

    name: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingVerdict:
    """How many workers are wanted, what each rule wants, and which limits changed the number."""

    desired: int
    wishes: tuple[RuleWish, ...] = ()
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Start a worker. Its name is chosen beforehand, so that a repeated request does not start a second worker."""

    worker_id: WorkerId
    slot: int
    group_count: int
    reason: str
    is_new: bool = True  #: False: the worker's row exists already, only its instance is started
    at: datetime | None = None  #: time of the beat; after the provider fails, other spawns of this beat are skipped
    price_per_hour: float | None = None  #: stored in the worker's row
    contract: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteInstance:
    """Record the provider's id of an instance in its worker's row, so that the instance is not started again."""

    worker_id: WorkerId
    ref: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTarget:
    """Set a worker's target, for example its number of connections."""

    worker_id: WorkerId
    target: int
    ramp: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToDrain:
    """Ask a worker to drain: finish its jobs and leave."""

    worker_id: WorkerId
    within: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Close the row of a live but faulty worker; after that its jobs are released and its instance is terminated."""

    worker: Worker
    reason: str
    rule: str  #: the health rule that found the fault


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseJobs:
    """Return the jobs of an ended worker to the queue. Refused while the worker's row is live."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireJobs:
    """Return jobs with an expired lease to the queue, whichever worker held them."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandVolume:
    """Expand a volume. The size is absolute, so that a repeated request does not expand it twice."""

    worker_id: WorkerId  #: the worker that reported the volume
    volume: str  #: the provider's id of the volume
    to_gb: int
    seen_gb: float  #: the volume's current size as the worker reports it
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Warn the user about a worker; nothing else is done."""

    worker_id: WorkerId
    rule: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRefusals:
    """Forget which requests the provider refused, so that they are tried again, because a user asked for a retry."""

    reason: str


Action = (
    Recovery
    | ForgetRefusals
    | NoteInstance
    | Spawn
    | SetTarget
    | AskToDrain
    | Fail
    | ReleaseJobs
    | ExpireJobs
    | ExpandVolume
    | Warn
)
