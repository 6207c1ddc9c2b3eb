"""Converts jobs to and from Redis: the pushed job is one JSON document, the fields that change are another one."""

import logging
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, TypeGuard

import msgspec

from drumbeat.core.errors import InvalidInput, StoreCorrupt
from drumbeat.core.job import (
    Attempt,
    AttemptOutcome,
    Backoff,
    IfFailed,
    Job,
    JobId,
    JobOutcome,
    JobStatus,
    JobsWithTemplate,
    NewJob,
    RateLimit,
)
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store.interface import ClaimRequest
from drumbeat.store.job_ids import check_keys, job_id_of
from drumbeat.store.redis.database import Argument
from drumbeat.store.redis.rows import at_us, instant, to_us

log = logging.getLogger(__name__)

_DECODE_ERRORS = (msgspec.DecodeError, ValueError, OverflowError, InvalidInput)
_NUMBER = re.compile(rb'\{"n":(\d+)')
_DEFAULT_BACKOFF = Backoff()
_MOST_PLAIN = 10_000  #: most jobs of a push by the faster script (see ``are_plain``): each job is one argument of the script
_extra_options = attrgetter("job_id", "unique_key", "run_at", "delay", "max_attempts", "max_crashes", "after", "workflow_id")
_NO_EXTRA_OPTIONS = _extra_options(NewJob(payload=None))


class _Document(msgspec.Struct, omit_defaults=True, frozen=True):
    """The fields of a job that never change, as stored. Fields with default values are omitted."""

    payload: Any = None
    type: str = ""
    priority: int = 0
    max_attempts: int = 3
    max_crashes: int = 3
    backoff: tuple[int, float, int, float] | None = None
    timeout: int | None = None
    unique_key: str | None = None
    group: str | None = None
    group_limit: int | None = None
    group_rate: tuple[int, int] | None = None
    capability: str | None = None


class _Row(msgspec.Struct, frozen=True):
    """A job as the Lua scripts return it; times are in microseconds."""

    n: int
    doc: _Document
    pool: str
    status: JobStatus
    created: int
    id: str | None = None
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    suspicions: int = 0
    epoch: int = 0
    owner: tuple[str, str, str] | None = None  #: pool, worker and process
    until: int | None = None
    extended: int = 0
    not_before: int | None = None
    claimed: int | None = None
    begun: int | None = None
    finished: int | None = None
    cancel: bool = False
    progress: float | None = None
    note: str | None = None
    result: Any = None
    last_error: str | None = None
    waits: int = 0
    any: int = 0
    iff: IfFailed | None = None
    kids: int = 0
    steps: int = 0
    events: int = 0
    wf: str | None = None
    pri: int | None = None  #: the priority, which may differ from that of the pushed document


class _Try(msgspec.Struct, frozen=True):
    """An ended attempt as the Lua scripts store it; times are in microseconds."""

    n: int
    worker: str
    pool: str
    started: int
    ended: int
    outcome: AttemptOutcome
    error: str | None


_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_read_row = msgspec.json.Decoder(_Row).decode
_read_rows = msgspec.json.Decoder(list[_Row]).decode
_read_tries = msgspec.json.Decoder(list[_Try]).decode


def as_json(value: Any, what: str) -> str:
    """Encode a value as JSON. Returns str, since Redis' MessagePack does not support bytes. Raises InvalidInput."""
    return _encoded(value, what).decode()


def _encoded(value: Any, what: str) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError) as exc:
        raise InvalidInput(f"expected a job's {what} to be plain JSON, got {type(value).__name__}: {exc}") from exc


def push_arguments(jobs: Sequence[NewJob]) -> bytes:
    return _pack([_push_row(job) for job in jobs])


def _push_row(job: NewJob) -> tuple[Any, ...]:
    check_keys(job)
    return (
        _document(job),
        _lane(job),
        job.priority,
        at_us(job.run_at),
        to_us(job.delay) if job.delay else 0,
        job.max_attempts,
        job.max_crashes,
        job.unique_key,
        job.job_id,
        job.after or None,
        job.after_any,
        str(job.if_failed),
        job.workflow_id,
    )


def _document(job: NewJob) -> str:
    return as_json(_Document(job.payload, *_common(job)), "payload")


def _common(job: NewJob) -> tuple[Any, ...]:
    """Return a job's stored fields except the payload, in the order of ``_Document``."""
    backoff, rate = job.backoff, job.group_rate
    return (
        job.type,
        job.priority,
        job.max_attempts,
        job.max_crashes,
        None if backoff == _DEFAULT_BACKOFF else (to_us(backoff.first), backoff.factor, to_us(backoff.most), backoff.jitter),
        None if job.timeout is None else to_us(job.timeout),
        job.unique_key,
        job.group,
        job.group_limit,
        None if rate is None else (rate.count, to_us(rate.per)),
        job.capability,
    )


def are_plain(jobs: Sequence[NewJob]) -> TypeGuard[JobsWithTemplate]:
    """Whether a faster script can push these jobs: they differ only in payload, set no id, unique key, delay, start time,
    max_attempts, max_crashes, parents or workflow, and are at most ``_MOST_PLAIN``."""
    return isinstance(jobs, JobsWithTemplate) and len(jobs) <= _MOST_PLAIN and _extra_options(jobs.like) == _NO_EXTRA_OPTIONS


def plain_arguments(jobs: JobsWithTemplate) -> Sequence[Argument]:
    """Return the script arguments to push jobs that differ only in payload: lane, priority, and each job as JSON."""
    check_keys(jobs.like)
    common = _common(jobs.like)
    return _lane(jobs.like), jobs.like.priority, *(_encoded(_Document(each, *common), "payload") for each in jobs.payloads)


def _lane(job: NewJob) -> str:
    """Return the name of the job's lane: a queue of jobs with the same capability, type, group and group limits."""
    if job.capability is None and job.group is None and not job.type:
        return ""
    rate = (None, None) if job.group_rate is None else (job.group_rate.count, to_us(job.group_rate.per))
    limits = (job.group_limit, *rate) if job.group is not None else (None, None, None)
    return _encode((job.capability, job.type, job.group, *limits)).decode()


def claiming_arguments(claiming: ClaimRequest) -> tuple[Argument, ...]:
    """Return the script arguments of a claim: the fields of the ClaimRequest, in the order that the scripts expect."""
    return (
        claiming.pool_id,
        holder_argument(claiming.holder),
        to_us(claiming.lease),
        claiming.limit,
        _pack(claiming.capabilities),
        _pack(claiming.types),
        int(claiming.ahead),
        int(claiming.alone),
        _pack(claiming.without),
    )


def type_arguments(types: Sequence[str], without: Sequence[str]) -> tuple[Argument, ...]:
    """Return the script arguments that select job types: only those in ``types`` (empty: every type), none in ``without``."""
    return _pack(types), _pack(without)


def holder_argument(holder: Holder) -> str:
    """Encode the holder of a claim (pool, worker, process) as text; the scripts compare these texts."""
    return _encode((holder.pool_id, holder.worker_id, holder.instance)).decode()


def verdict_arguments(verdicts: Sequence[JobOutcome]) -> bytes:
    return _pack([_verdict_row(verdict) for verdict in verdicts])


def _verdict_row(verdict: JobOutcome) -> tuple[Any, ...]:
    return (
        verdict.token.job_id,
        verdict.token.epoch,
        verdict.outcome.value,
        None if verdict.result is None else as_json(verdict.result, "result"),
        verdict.error,
        to_us(verdict.retry_in) if verdict.retry_in else 0,
        verdict.fatal,
        verdict.seen_events,
    )


def token_arguments(tokens: Sequence[Any]) -> bytes:
    return _pack([(token.job_id, token.epoch) for token in tokens])


def jobs_of(text: bytes) -> list[Job]:
    """Decode a list of jobs. A row that cannot be read is logged and left out; it stays in the store."""
    try:
        return [_job(row) for row in _read_rows(text)]
    except _DECODE_ERRORS:
        found = [_job_or_none(each) for each in text[1:-1].split(b",\n")]
        return [job for job in found if job is not None]


def job_of(text: bytes) -> Job:
    """Decode one job. Raises StoreCorrupt if its row cannot be read."""
    try:
        return _job(_read_row(text))
    except _DECODE_ERRORS as exc:
        raise StoreCorrupt(
            f"{_named(text)} has a row that cannot be read: {exc}; correct its fields with redis-cli, or delete its pool"
        ) from exc


def _job_or_none(text: bytes) -> Job | None:
    try:
        return job_of(text)
    except StoreCorrupt as exc:
        log.error("skipped a job while reading jobs from Redis: %s", exc)
        return None


def _named(text: bytes) -> str:
    number = _NUMBER.match(text)
    return f"job {job_id_of(int(number[1]))}" if number else "a job"


def _job(row: _Row) -> Job:
    doc = row.doc
    fields = {
        "job_id": JobId(row.id) if row.id is not None else job_id_of(row.n),
        "pool_id": PoolId(row.pool),
        "payload": doc.payload,
        "type": doc.type,
        "status": row.status,
        "priority": doc.priority if row.pri is None else row.pri,
        "attempts": row.attempts,
        "failures": row.failures,
        "crashes": row.crashes,
        "suspicions": row.suspicions,
        "max_attempts": doc.max_attempts,
        "max_crashes": doc.max_crashes,
        "backoff": _DEFAULT_BACKOFF if doc.backoff is None else _backoff(*doc.backoff),
        "timeout": None if doc.timeout is None else timedelta(microseconds=doc.timeout),
        "unique_key": doc.unique_key,
        "group": doc.group,
        "group_limit": doc.group_limit,
        "group_rate": None if doc.group_rate is None else _rate(*doc.group_rate),
        "capability": doc.capability,
        "lease_owner": None if row.owner is None else WorkerId(row.owner[1]),
        "lease_pool": None if row.owner is None else PoolId(row.owner[0]),
        "lease_instance": None if row.owner is None else row.owner[2],
        "lease_epoch": row.epoch,
        "lease_until": _moment(row.until),
        "lease_extended": row.extended != 0,
        "not_before": _moment(row.not_before),
        "cancel_requested": row.cancel,
        "progress": row.progress,
        "progress_note": row.note,
        "result": row.result,
        "last_error": row.last_error,
        "created_at": instant(row.created),
        "claimed_at": _moment(row.claimed),
        "begun_at": _moment(row.begun),
        "finished_at": _moment(row.finished),
        "workflow_id": row.wf,
        "waits_for": row.waits,
        "after_any": row.any != 0,
        "if_failed": row.iff,
        "has_children": row.kids != 0,
        "has_steps": row.steps != 0,
        "events_sent": row.events,
    }
    return Job.from_fields(fields)


def _backoff(first: int, factor: float, most: int, jitter: float) -> Backoff:
    return Backoff(first=timedelta(microseconds=first), factor=factor, most=timedelta(microseconds=most), jitter=jitter)


def _rate(count: int, per: int) -> RateLimit:
    return RateLimit(count=count, per=timedelta(microseconds=per))


def _moment(us: int | None) -> datetime | None:
    return None if us is None else instant(us)


def attempts_of(job_text: bytes, tries_text: bytes) -> list[Attempt]:
    """List a job's attempts: the running or successful one from the job's own row, all others from the JSON ``tries_text``."""
    job = job_of(job_text)
    attempts = [_attempt(job.job_id, each) for each in _read_tries(tries_text)]
    is_listed = bool(attempts) and attempts[-1].n == job.lease_epoch
    if is_listed or job.lease_owner is None or job.claimed_at is None:
        return attempts
    done = job.status is JobStatus.DONE
    last = Attempt(
        job_id=job.job_id,
        n=job.lease_epoch,
        worker_id=job.lease_owner,
        worker_pool=job.lease_pool or job.pool_id,
        started_at=job.begun_at or job.claimed_at,
        ended_at=job.finished_at if done else None,
        outcome=AttemptOutcome.DONE if done else None,
    )
    return [*attempts, last]


def _attempt(job_id: JobId, closed: _Try) -> Attempt:
    return Attempt(
        job_id=job_id,
        n=closed.n,
        worker_id=WorkerId(closed.worker),
        worker_pool=PoolId(closed.pool),
        started_at=instant(closed.started),
        ended_at=instant(closed.ended),
        outcome=closed.outcome,
        error=closed.error,
    )
