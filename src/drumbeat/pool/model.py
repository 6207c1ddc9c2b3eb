"""The values a pool's checker works with: the view of a pool that it reads, and the actions that it decides on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.paused_types import PAUSED_TYPE as PAUSED_TYPE, paused_types as paused_types
from drumbeat.core.pool import PoolId, Thresholds, is_pool_name
from drumbeat.core.recovery import (
    EndOverdue as EndOverdue,
    EndStray as EndStray,
    ListedInstance as ListedInstance,
    MarkFailed as MarkFailed,
    MarkLost as MarkLost,
    PoolSnapshot,
    Reap as Reap,
    Recovery,
)
from drumbeat.core.worker import Worker, WorkerId

TASK_HANDLER = "task_handler:"  #: followed by a job type: the field of the policy with the handler that a task recorded for it


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """How many workers a pool is allowed to have, and which jobs they can run. Other fields of the policy are ignored."""

    max_workers: int = 10
    concurrency: int = 1  #: jobs that one worker runs at once
    capabilities: tuple[str, ...] = ()  #: what the pool's workers offer, such as gpu
    types: tuple[str, ...] = ()  #: job types that the pool's workers have handlers for; empty: every type
    mended_at: datetime | None = None  #: worker failures before this time no longer count
    paused: frozenset[str] = frozenset()  #: job types that are not claimed

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
        """Whether the pool's workers have a handler for jobs of this type."""
        return not self.types or job_type in self.types

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "PoolPolicy":
        """Read the policy from the JSON in a pool's row. Raises InvalidSettings."""
        given = fields.get("capabilities") or ()
        if isinstance(given, str) or not all(isinstance(each, str) for each in given):
            raise InvalidSettings(f"expected the pool's capabilities to be a list of names, got {given!r}")
        try:
            return cls(
                max_workers=int(fields.get("max_workers", 10)),
                concurrency=int(fields.get("concurrency", 1)),
                capabilities=tuple(given),
                types=_types(fields.get("handlers")),
                mended_at=datetime.fromisoformat(fields["mended_at"]) if fields.get("mended_at") else None,
                paused=paused_types(fields),
            )
        except (TypeError, ValueError, OverflowError) as exc:
            raise InvalidSettings(
                f"expected the pool's max_workers and concurrency to be whole numbers, got {dict(fields)}"
            ) from exc


def _types(handlers: Any) -> tuple[str, ...]:
    """Return the job types that have a handler; empty (every type) with a default handler, or when no handlers are stored."""
    return tuple(handlers) if isinstance(handlers, Mapping) and "" not in handlers else ()


def task_handler_fields(types: Iterable[str]) -> list[str]:
    """Return the fields of a pool's policy that say that a task has recorded the handler of these job types."""
    return [TASK_HANDLER + kind for kind in types]


def no_handler(pool_id: PoolId, waiting: Mapping[str, int], not_loaded: Mapping[str, str] | None = None) -> str | None:
    """Return a message about ready jobs that wait because their type has no handler; None if there are no such jobs.

    ``not_loaded``: types whose handler cannot be loaded, with the cause.
    """
    causes = not_loaded or {}
    missing = {kind: count for kind, count in waiting.items() if kind not in causes}
    messages = [f"{_jobs_wait(missing)}: no handler; add one with: {handler_command(pool_id, min(missing))}"] if missing else []
    messages += [
        f"{_jobs_wait({kind: count})}: {not_loaded_message(pool_id, causes[kind])}"
        for kind, count in sorted(waiting.items())
        if kind in causes
    ]
    return "; ".join(messages) or None


def _jobs_wait(waiting: Mapping[str, int]) -> str:
    jobs = ", ".join(f"{count} job{'' if count == 1 else 's'} of type {kind!r}" for kind, count in sorted(waiting.items()))
    return f"{jobs} {'waits' if [*waiting.values()] == [1] else 'wait'}"


def not_loaded_message(pool_id: PoolId, cause: str) -> str:
    """Return a message that says why a handler cannot be loaded, and what to do."""
    resume = f"drumbeat pool resume {_shell_word(pool_id)}"
    return f"workers cannot load the {cause}; fix it and restart the workers; checks start new ones after: {resume}"


def no_pool(pool_id: PoolId) -> str:
    """Return a message that says that there is no such pool, with the command that creates it if the name is allowed."""
    if not is_pool_name(pool_id):
        return f"no pool {pool_id!r}; see: drumbeat pools list"
    return f"no pool {pool_id!r}; create it with: drumbeat pool create {_shell_word(pool_id)}, or push to it"


def no_job(pool_id: PoolId, job_id: str) -> str:
    """Return a message that says that there is no such job, with the command that lists the jobs of its pool."""
    return f"there is no job {job_id!r}; see: drumbeat pool list {_shell_word(pool_id)}"


def handler_command(pool_id: PoolId, job_type: str) -> str:
    """Return the shell command that adds a handler for a job type to a pool."""
    target = f"{job_type}=module:function" if job_type else "module:function"
    return f"drumbeat pool create {_shell_word(pool_id)} --update --handler {_shell_word(target)}"


def remove_handler_command(pool_id: PoolId, job_type: str) -> str:
    """Return the shell command that removes the handler of a job type from a pool."""
    return f"drumbeat pool create {_shell_word(pool_id)} --update --remove-handler {_shell_word(job_type)}"


def _shell_word(text: str) -> str:
    """Quote a text for the shell, if needed, so that it is one word."""
    plain = all(letter.isalnum() or letter in "_-.:=@%+," for letter in text)
    return text if text and plain else "'" + text.replace("'", "'\\''") + "'"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStreak:
    """How many of the newest workers failed in a row before they ran a job, since when, and the last error."""

    failed: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    error: str | None = None  #: of the last worker that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claimed job: which worker holds it, the state of its lease, and whether it can run again once it is taken back."""

    worker_id: WorkerId
    expired: bool  #: the lease has run out
    extended: bool = False  #: the lease was extended once already, so the job is taken back when it runs out
    capability: str = ""
    comes_back: bool = True  #: False: once taken back it cannot run, because it is then poisoned or has no handler


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """The state of a pool, its workers and its queue at one moment; ``now`` is the time of the store's clock."""

    pool_id: PoolId
    now: datetime
    looking_since: datetime
    paused_until: datetime | None
    thresholds: Thresholds
    policy: PoolPolicy
    workers: tuple[Worker, ...]  #: live workers, and ended ones that are not reaped yet
    instances: tuple[ListedInstance, ...]
    demand: Mapping[str, int]  #: number of ready jobs, up to a limit, by the capability they need ('': none)
    unhandled: Mapping[str, int] = field(default_factory=dict)  #: number of ready jobs by type, for types without a handler
    not_loaded: Mapping[str, str] = field(default_factory=dict)  #: types whose handler workers cannot load, with the cause
    claims: tuple[Claim, ...] = ()  #: claimed jobs, up to a limit
    more_claims: bool = False  #: ``claims`` may be incomplete: the limit was reached
    next_number: int = 0  #: number in the name of the next worker, above those of all past workers
    streak: FailureStreak = FailureStreak()
    is_scaled: bool = False  #: a fleet starts and ends the pool's workers, not the checker
    watched_since: datetime | None = None  #: since when controllers watch the pool without a gap
    spared: tuple[WorkerId, ...] = ()  #: silent workers that are not lost yet, because no process watched the pool before
    engine: str = ""  #: the engine that starts the pool's workers, or several as ``a,b``; empty: not known

    @property
    def snapshot(self) -> PoolSnapshot:
        return PoolSnapshot(
            now=self.now,
            looking_since=self.looking_since,
            thresholds=self.thresholds,
            workers=self.workers,
            instances=self.instances,
            spared=self.spared,
        )


def worker_name(pool_id: PoolId, number: int) -> WorkerId:
    """Return the name of a worker. It is unique in the store, because jobs of a lost worker are released by its name."""
    return WorkerId(f"{pool_id}-worker-{number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnJobWorker:
    """Action: start a worker with this name. Because the name is fixed, repeating the action starts no second worker."""

    TYPE: ClassVar[str] = "Spawn"

    worker_id: WorkerId
    slot: int
    group_count: int
    reason: str
    capabilities: tuple[str, ...] = ()
    is_new: bool = True  #: False: the worker's row exists already, only its instance is missing
    at: datetime | None = None  #: when it was decided; the actions of one decision have the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBackJobs:
    """Action: take back the jobs that an ended worker still holds. A job that lost its worker too often is not retried."""

    TYPE: ClassVar[str] = "ReleaseJobs"

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireLeases:
    """Action: take back all jobs with an expired lease."""

    reason: str


Action = Recovery | TakeBackJobs | ExpireLeases | SpawnJobWorker
