"""The input and output of a pool's checker: a frozen view of the pool in, frozen actions out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import PoolId, Thresholds
from drumbeat.core.recovery import EndOverdue, EndStray, ListedInstance, MarkFailed, MarkLost, PoolSnapshot, Reap, Recovery
from drumbeat.core.worker import Worker, WorkerId

__all__ = [
    "Action",
    "Claim",
    "EndOverdue",
    "EndStray",
    "ExpireLeases",
    "ListedInstance",
    "MarkFailed",
    "MarkLost",
    "PoolPolicy",
    "PoolView",
    "Reap",
    "SpawnJobWorker",
    "Streak",
    "TakeBackJobs",
    "handler_command",
    "no_handler",
    "worker_name",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """How many workers a pool may have, and what each can do. Other fields of the stored policy are ignored here."""

    max_workers: int = 10
    concurrency: int = 1  #: jobs that one worker runs at once
    capabilities: tuple[str, ...] = ()  #: of the workers that are started here
    types: tuple[str, ...] = ()  #: the only job types that its workers have handlers for; empty: every type
    mended_at: datetime | None = None  #: worker failures before this time no longer count

    def __post_init__(self) -> None:
        if self.max_workers < 0:
            raise InvalidSettings(f"expected max_workers to be 0 or more, got {self.max_workers}")
        if self.concurrency < 1:
            raise InvalidSettings(f"expected concurrency to be 1 or more, got {self.concurrency}")

    @property
    def slots(self) -> int:
        """How many jobs can run at once with ``max_workers`` workers."""
        return self.max_workers * self.concurrency

    def handles(self, job_type: str) -> bool:
        """Whether a worker that is started here has a handler for jobs of this type."""
        return not self.types or job_type in self.types

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "PoolPolicy":
        """The policy a pool's row holds. Raises InvalidSettings."""
        given = fields.get("capabilities") or ()
        if isinstance(given, str) or not all(isinstance(each, str) for each in given):
            raise InvalidSettings(f"expected a list of words as a pool's capabilities, got {given!r}")
        try:
            return cls(
                max_workers=int(fields.get("max_workers", 10)),
                concurrency=int(fields.get("concurrency", 1)),
                capabilities=tuple(given),
                types=_types(fields.get("handlers")),
                mended_at=datetime.fromisoformat(fields["mended_at"]) if fields.get("mended_at") else None,
            )
        except (TypeError, ValueError, OverflowError) as exc:
            raise InvalidSettings(
                f"expected whole numbers as a pool's max_workers and concurrency, got {dict(fields)}"
            ) from exc


def _types(handlers: Any) -> tuple[str, ...]:
    """The job types a pool's handlers are for; empty (every type) with a default handler, or when no handlers are stored."""
    return tuple(handlers) if isinstance(handlers, Mapping) and "" not in handlers else ()


def no_handler(pool_id: PoolId, waiting: Mapping[str, int]) -> str | None:
    """A message about ready jobs whose type has no handler in the pool; None if there are none."""
    if not waiting:
        return None
    jobs = ", ".join(f"{count} job{'' if count == 1 else 's'} of type {kind!r}" for kind, count in sorted(waiting.items()))
    wait = "waits" if [*waiting.values()] == [1] else "wait"
    return f"{jobs} {wait}: no handler; add one with: {handler_command(pool_id, min(waiting))}"


def handler_command(pool_id: PoolId, job_type: str) -> str:
    """The shell command that adds a handler for a job type to a pool."""
    target = f"{job_type}=module:function" if job_type else "module:function"
    return f"drumbeat pool create {_shell_word(pool_id)} --update --handler {_shell_word(target)}"


def _shell_word(text: str) -> str:
    """A text quoted as one word of a command line."""
    plain = all(letter.isalnum() or letter in "_-.:=@%+," for letter in text)
    return text if text and plain else "'" + text.replace("'", "'\\''") + "'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Streak:
    """Workers that failed one after another before they ran any job."""

    failed: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    error: str | None = None  #: of the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What recovery needs to know of a claimed job."""

    worker_id: WorkerId
    expired: bool  #: the lease has run out
    extended: bool = False  #: the lease was extended once already: when it runs out the job is taken back
    capability: str = ""
    comes_back: bool = True  #: False: once released it is poisoned, or has no handler


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """One snapshot of a pool and its queue. ``now`` is by the store's clock."""

    pool_id: PoolId
    now: datetime
    looking_since: datetime
    paused_until: datetime | None
    thresholds: Thresholds
    policy: PoolPolicy
    workers: tuple[Worker, ...]  #: live workers, and ended ones that are not reaped yet
    instances: tuple[ListedInstance, ...]
    demand: Mapping[str, int]  #: ready jobs by the capability they need ('' for none), each counted up to a cap
    unhandled: Mapping[str, int] = field(default_factory=dict)  #: ready jobs by type, of types the pool has no handler for
    claims: tuple[Claim, ...] = ()  #: claimed jobs, up to a limit
    more_claims: bool = False  #: there may be more claimed jobs than ``claims``
    next_number: int = 0  #: the lowest number that no worker of this pool has had, nor any above it
    streak: Streak = Streak()
    is_scaled: bool = False  #: a fleet starts and ends its workers, the checker does not

    @property
    def snapshot(self) -> PoolSnapshot:
        return PoolSnapshot(
            now=self.now,
            looking_since=self.looking_since,
            thresholds=self.thresholds,
            workers=self.workers,
            instances=self.instances,
        )


def worker_name(pool_id: PoolId, number: int) -> WorkerId:
    """A worker's name, unique in the store, because a lost worker's jobs are released by name in every pool."""
    return WorkerId(f"{pool_id}-worker-{number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnJobWorker:
    """Start a worker. The action names it, so that repeating the action does not start a second one."""

    TYPE: ClassVar[str] = "Spawn"

    worker_id: WorkerId
    slot: int
    group_count: int
    reason: str
    capabilities: tuple[str, ...] = ()
    is_new: bool = True  #: False: its row exists, its instance does not


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBackJobs:
    """Take back the jobs that an ended worker still holds; each job counts a crash, and may be poisoned by it."""

    TYPE: ClassVar[str] = "ReleaseJobs"

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireLeases:
    """Take back all jobs whose lease has run out."""

    reason: str


Action = Recovery | TakeBackJobs | ExpireLeases | SpawnJobWorker
