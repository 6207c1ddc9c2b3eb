"""What each rule wanted, which limits bound, and what the fleet may do."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.core.recovery import Recovery
from drumbeat.core.worker import Worker, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What one rule wanted, as a number of workers, and why."""

    rule: str
    workers: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound on the wish, and whether it changed anything."""

    name: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingVerdict:
    """How many workers there shall be, what each rule wanted, and which limits bound."""

    desired: int
    wishes: tuple[Wish, ...] = ()
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Start a worker. Named here, so that asking twice is asking once."""

    worker_id: WorkerId
    slot: int
    group_count: int
    reason: str
    is_new: bool = True  #: False: its row is there, its instance is not
    at: datetime | None = None  #: the beat that asks: after one refusal the rest of it is not tried
    price_per_hour: float | None = None  #: kept with its row
    contract: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteInstance:
    """Keep with a worker's row what its provider calls it: whoever was seen once is not started again."""

    worker_id: WorkerId
    ref: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTarget:
    """Tell a worker what to hold."""

    worker_id: WorkerId
    target: int
    ramp: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToDrain:
    """Ask a worker to finish and leave."""

    worker_id: WorkerId
    within: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Close the row of a worker that is alive and ill; its jobs go back and its instance is ended after that."""

    worker: Worker
    reason: str
    rule: str  #: which one found it ill


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseJobs:
    """Take back what an ended worker holds. Not done while its row is live."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireJobs:
    """Take back jobs whose lease has run out, whoever held them."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandVolume:
    """Make a volume so large. An absolute size, so that asking twice is asking once."""

    worker_id: WorkerId  #: who saw it run full
    volume: str  #: what its provider calls it
    to_gb: int
    seen_gb: float  #: how large it is now, as that worker sees it
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Something a person should know; nothing is done about it."""

    worker_id: WorkerId
    rule: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRefusals:
    """Have the provider asked again for what it refused, as a person wished."""

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
