"""Rules that every store follows when an attempt at a job ends, as pure functions: retry, poison, cancel or finish it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.errors import Refused
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome, JobStatus

_NO_HOLDER: Mapping[str, Any] = {
    "lease_owner": None,
    "lease_pool": None,
    "lease_instance": None,
    "lease_until": None,
    "lease_extended": False,
    "begun_at": None,
}


def apply_outcome(job: Job, verdict: JobOutcome, now: datetime) -> Job:
    """Return the job after its worker reported an outcome. A job with a cancel request is cancelled, not tried again."""
    match verdict.outcome:
        case AttemptOutcome.DONE:
            return replace(job, status=JobStatus.DONE, result=verdict.result, lease_until=None, finished_at=now)
        case AttemptOutcome.FAILED | AttemptOutcome.TIMED_OUT:
            failed = replace(job, failures=job.failures + 1, last_error=verdict.error)
            if verdict.fatal or failed.failures >= job.max_attempts:
                return _ended(failed, JobStatus.POISONED, now)
            return _given_back(failed, now + verdict.retry_in, now)
        case AttemptOutcome.CRASHED:
            return apply_worker_loss(job, verdict.error, now, in_company=False)
        case AttemptOutcome.RELEASED:
            return _given_back(_uncounted(job), now, now)
        case AttemptOutcome.SUSPENDED:
            return _suspended(job, verdict, now)
        case AttemptOutcome.CANCELLED:
            return _ended(replace(job, last_error=verdict.error or job.last_error), JobStatus.CANCELLED, now)


def _suspended(job: Job, verdict: JobOutcome, now: datetime) -> Job:
    """Return a job that sleeps or waits for an event. If an event was sent that the attempt did not see, the job is due now."""
    has_missed = verdict.seen_events is not None and job.events_sent > verdict.seen_events
    wait = timedelta() if has_missed else verdict.retry_in
    return _given_back(_uncounted(job), now + wait, now)


def _uncounted(job: Job) -> Job:
    """Return the job without its current attempt in the count of attempts."""
    return replace(job, attempts=job.attempts - (job.begun_at is not None))


def apply_worker_loss(job: Job, error: str | None, now: datetime, *, in_company: bool, charge: bool = True) -> Job:
    """Return the job after its worker ended. ``in_company``: whether other jobs had also begun on that worker. ``charge``:
    whether the job may be the cause; if not, the attempt does not count."""
    if job.begun_at is None or not charge:
        return _given_back(_uncounted(job), now, now)
    if in_company:
        return _given_back(replace(job, suspicions=job.suspicions + 1, last_error=error), now, now)
    fallen = replace(job, crashes=job.crashes + 1, last_error=error)
    if fallen.crashes + fallen.suspicions >= job.max_crashes:
        return _ended(fallen, JobStatus.POISONED, now)
    return _given_back(fallen, now, now)


def lost_attempt_outcome(job: Job, error: str, others: int, *, charge: bool = True) -> tuple[AttemptOutcome, str]:
    """Return outcome and error of an attempt that lost its worker. ``others``: how many other jobs had begun on that worker.
    ``charge``: whether the job may be the cause."""
    if job.begun_at is None:
        return AttemptOutcome.RELEASED, f"{error}; the job had not begun"
    if not charge:
        return AttemptOutcome.RELEASED, error
    if others:
        also = "another job" if others == 1 else f"{others} other jobs"
        return (
            AttemptOutcome.CRASHED,
            f"{error}; {also} may have run on this worker too, so it is unknown which job was the cause",
        )
    return AttemptOutcome.CRASHED, error


def ended_job(job_id: JobId, status: JobStatus) -> Refused:
    return Refused(f"expected a job that has not ended, got job {job_id}, which is {status}; it receives no events any more")


def _given_back(job: Job, due: datetime, now: datetime) -> Job:
    if job.cancel_requested:
        return _ended(job, JobStatus.CANCELLED, now)
    return replace(job, status=JobStatus.PENDING, not_before=due, **_NO_HOLDER)


def _ended(job: Job, status: JobStatus, now: datetime) -> Job:
    return replace(job, status=status, finished_at=now, **_NO_HOLDER)
