"""Converts jobs to SQL rows and back. Every push and claim calls these functions, so they are written for speed."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import (
    USUAL_BACKOFF,
    Attempt,
    AttemptOutcome,
    Backoff,
    IfFailed,
    Job,
    JobId,
    JobStatus,
    JobsWithTemplate,
    NewJob,
    RateLimit,
    Token,
)
from drumbeat.core.worker import Holder
from drumbeat.store.job_ids import job_id_of
from drumbeat.store.sql.database import Row
from drumbeat.store.sql.rows import at_us, instant, moment, to_us

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()
_BACKOFF = USUAL_BACKOFF
_STATUS = {str(status): status for status in JobStatus}
_IF_FAILED = {None: None} | {str(policy): policy for policy in IfFailed}
_SECOND = timedelta(seconds=1)
_moment = lru_cache(maxsize=4096)(moment)  #: cached, since the jobs of one claim share most of their timestamps

_PRIORITY = 7
_rare = attrgetter(*(name for name in NewJob.__dataclass_fields__ if name not in ("payload", "type", "priority")))
_NOTHING_RARE = _rare(NewJob(payload=None))
COLUMNS = 48  #: number of columns that ``job_of`` reads from a row of ``jobs``; their order is that of the migrations


def json_text(value: Any, what: str) -> str:
    """Return a value as JSON text. Raises InvalidInput (with ``what`` in its message) if JSON cannot represent the value."""
    try:
        return _ENCODER.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidInput(f"expected a job's {what} to be plain JSON, got {type(value).__name__}: {exc}") from exc


def json_list(values: Sequence[Any], what: str) -> str:
    """Return values as the text of one JSON list. Raises InvalidInput for the first value that JSON cannot represent."""
    try:
        return json_text(values, what)
    except InvalidInput:
        for value in values:
            json_text(value, what)
        raise


def result_text(result: Any) -> str | None:
    return None if result is None else json_text(result, "result")


def row_id(row: Row) -> JobId:
    given: str | None = row["given_id"]
    return job_id_of(row["seq"]) if given is None else JobId(given)


def job_of(record: Row) -> Job:
    """Build a Job from a full row. Reads columns by position, since reading them by name would take most of a claim's time."""
    row = record[:COLUMNS]
    own = {
        "job_id": row[2] or job_id_of(row[0]),
        "pool_id": row[1],
        "type": row[3],
        "payload": _DECODER.decode(row[4]),
        "result": None if row[28] is None else _DECODER.decode(row[28]),
        "unique_key": row[15],
        "last_error": row[29],
        "created_at": _moment(row[30]),
    }
    return Job.from_fields(_shared_fields(row[5:15], row[16:28], row[31:]) | own)


@lru_cache(maxsize=512)
def _shared_fields(first: tuple[Any, ...], middle: tuple[Any, ...], last: tuple[Any, ...]) -> dict[str, Any]:
    """Return the fields of a Job in the columns 5 to 14, 16 to 27 and 31 to 47 of its row. Cached, since the jobs of one claim
    mostly have the same values in these columns."""
    return {
        "status": _STATUS[first[0]],
        "priority": first[2],
        "attempts": first[3],
        "failures": first[4],
        "crashes": first[5],
        "max_attempts": first[6],
        "max_crashes": first[7],
        "backoff": _BACKOFF if first[8] is None else _backoff_of(first[8]),
        "timeout": None if first[9] is None else timedelta(microseconds=first[9]),
        "group": middle[0],
        "group_limit": middle[1],
        "group_rate": None if middle[2] is None else RateLimit(count=middle[2], per=timedelta(microseconds=middle[3])),
        "capability": middle[4],
        "lease_owner": middle[5],
        "lease_epoch": middle[6],
        "lease_until": moment(middle[7]),
        "not_before": moment(middle[8]),
        "cancel_requested": middle[9] != 0,
        "progress": middle[10],
        "progress_note": middle[11],
        "claimed_at": moment(last[0]),
        "finished_at": moment(last[1]),
        "lease_pool": last[2],
        "lease_instance": last[3],
        "begun_at": moment(last[4]),
        "suspicions": last[5],
        "lease_extended": last[9] != 0,
        "workflow_id": last[10],
        "waits_for": last[11],
        "after_any": last[12] != 0,
        "if_failed": _IF_FAILED[last[13]],
        "has_children": last[14] != 0,
        "has_steps": last[15] != 0,
        "events_sent": last[16],
    }


def in_order_of_claiming(rows: Iterable[Row]) -> list[Job]:
    return [job_of(row) for row in sorted(rows, key=_claim_order)]


def _claim_order(row: Row) -> tuple[int, int]:
    return -row[_PRIORITY], row[0]


def is_plain(job: NewJob) -> bool:
    """Whether a new job sets only payload, type and priority, that is, leaves all other options at their defaults."""
    return _rare(job) == _NOTHING_RARE


def are_plain(jobs: Sequence[NewJob]) -> bool:
    return is_plain(jobs.like) if isinstance(jobs, JobsWithTemplate) else all(map(is_plain, jobs))


def new_job_values(job: NewJob, children: int = 0) -> dict[str, Any]:
    """Return the query values that insert a job with all its options. ``children``: how many jobs of the push wait for it."""
    rate = job.group_rate
    return {
        "given_id": job.job_id,
        "type": job.type,
        "payload": json_text(job.payload, "payload"),
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "max_crashes": job.max_crashes,
        "backoff": None if job.backoff == _BACKOFF else _backoff_text(job.backoff),
        "timeout_us": None if job.timeout is None else to_us(job.timeout),
        "unique_key": job.unique_key,
        "group_key": job.group,
        "group_limit": job.group_limit,
        "rate_count": None if rate is None else rate.count,
        "rate_us": None if rate is None else to_us(rate.per),
        "capability": job.capability,
        "run_at": at_us(job.run_at),
        "delay": to_us(job.delay),
        "status": "waiting" if job.after else "pending",
        "workflow_id": job.workflow_id,
        "waits_for": inserted_waits(job),
        "after_any": int(job.after_any),
        "if_failed": str(job.if_failed) if job.after else None,
        "has_children": children,
    }


def inserted_waits(job: NewJob) -> int:
    """Return for how many parents a new job waits as long as none of them has ended."""
    return 1 if job.after and job.after_any else len(dict.fromkeys(job.after))


def job_row(job: Job, number: int, now: int) -> dict[str, Any]:
    """Return the columns of a job's row that change when an attempt ends, with their new values."""
    due = at_us(job.not_before)
    return {
        "seq": number,
        "status": str(job.status),
        "delayed": int(job.status is JobStatus.PENDING and due is not None and due > now),
        "attempts": job.attempts,
        "failures": job.failures,
        "crashes": job.crashes,
        "suspicions": job.suspicions,
        "alone": int(job.must_run_alone),
        "begun_at": at_us(job.begun_at),
        "result": None if job.result is None else json_text(job.result, "result"),
        "lease_owner": job.lease_owner,
        "lease_pool": job.lease_pool,
        "lease_instance": job.lease_instance,
        "not_before": due,
        "last_error": text(job.last_error),
        "finished_at": at_us(job.finished_at),
    }


def attempt_row(job: Job, number: int, outcome: AttemptOutcome, error: str | None, now: int) -> dict[str, Any]:
    """Return the row of ``job_attempts`` for an attempt that has ended."""
    return {
        "seq": number,
        "n": job.lease_epoch,
        "worker_id": job.lease_owner,
        "worker_pool": job.lease_pool,
        "started_at": at_us(job.begun_at or job.claimed_at),
        "ended_at": now,
        "outcome": str(outcome),
        "error": text(error),
    }


def attempts_of(job: Job, rows: Sequence[Row]) -> list[Attempt]:
    """List a job's attempts: the running or successful one from the job itself, all others from rows of ``job_attempts``."""
    ended = [
        Attempt(
            job_id=job.job_id,
            n=row["n"],
            worker_id=row["worker_id"],
            worker_pool=row["worker_pool"] or job.pool_id,
            started_at=instant(row["started_at"]),
            ended_at=instant(row["ended_at"]),
            outcome=AttemptOutcome(row["outcome"]),
            error=row["error"],
        )
        for row in rows
    ]
    if job.lease_owner is None or job.claimed_at is None:
        return ended
    current = Attempt(
        job_id=job.job_id,
        n=job.lease_epoch,
        worker_id=job.lease_owner,
        worker_pool=job.lease_pool or job.pool_id,
        started_at=job.begun_at or job.claimed_at,
        ended_at=job.finished_at,
        outcome=AttemptOutcome.DONE if job.status is JobStatus.DONE else None,
    )
    return [*ended, current]


def text(value: str | None) -> str | None:
    """Replace NUL characters, which PostgreSQL cannot store, with the Unicode replacement character U+FFFD."""
    return value if value is None else value.replace("\x00", "\ufffd")


def holder_values(holder: Holder) -> dict[str, Any]:
    """Return the query values that identify the holder of a job: pool, worker id and process."""
    return {"holder_pool": holder.pool_id, "worker_id": holder.worker_id, "instance": holder.instance}


def tokens_json(tokens: Iterable[Token], numbers: Mapping[JobId, int]) -> str:
    known = [{"seq": numbers[token.job_id], "epoch": token.epoch} for token in tokens if token.job_id in numbers]
    return _ENCODER.encode(known).decode()


def rows_json(rows: Sequence[Mapping[str, Any] | tuple[Any, ...]]) -> str:
    return _ENCODER.encode(rows).decode()


def _backoff_text(backoff: Backoff) -> str:
    values = {
        "first": backoff.first / _SECOND,
        "factor": backoff.factor,
        "most": backoff.most / _SECOND,
        "jitter": backoff.jitter,
    }
    return _ENCODER.encode(values).decode()


def _backoff_of(document: str) -> Backoff:
    known = _DECODER.decode(document)
    return Backoff(
        first=timedelta(seconds=known["first"]),
        factor=known["factor"],
        most=timedelta(seconds=known["most"]),
        jitter=known["jitter"],
    )
