"""Checks whether a handler that completes its job in a transaction of its own has committed that transaction."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome, JobStatus, retry_delay
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.in_flight import InFlightJob

log = logging.getLogger(__name__)

_PAUSE = timedelta(seconds=1)
_NOT_COMMITTED = "the handler called complete_on, but its transaction was not committed; commit it before the handler returns"


async def outcome_to_write(claims: Claims, clock: Clock, held: InFlightJob, outcome: JobOutcome) -> JobOutcome | None:
    """Return the outcome to write after a handler has ended that called ``complete_on``; None if it has committed, so that the
    job is done. A handler that returned without a commit has failed. Waits until the store answers."""
    try:
        job = await _read(claims, clock, held.job.job_id)
    except asyncio.CancelledError:
        if held.stop_outcome is None:
            raise
        return JobOutcome(token=held.token, outcome=held.stop_outcome)
    if job is None or (job.status is JobStatus.DONE and job.token == held.token):
        if outcome.outcome is not AttemptOutcome.DONE:
            log.warning("job %s is done, although its handler then ended as %s", held.job.job_id, outcome.outcome)
        return None
    if outcome.outcome is not AttemptOutcome.DONE:
        return outcome
    wait = retry_delay(held.job.backoff, held.job.failures + 1, 0.5)
    return replace(outcome, outcome=AttemptOutcome.FAILED, result=None, error=_NOT_COMMITTED, retry_in=wait)


async def _read(claims: Claims, clock: Clock, job_id: JobId) -> Job | None:
    while True:
        try:
            return await claims.find(job_id)
        except StoreUnavailable as exc:
            log.warning("failed to read whether job %s was completed: %s; retrying", job_id, exc)
            await clock.sleep(_PAUSE)
