"""Checks whether a handler that completes its job in a transaction of its own has committed that transaction."""

import asyncio
import logging
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import AttemptOutcome, JobOutcome, JobStatus, retry_delay
from drumbeat.pool.own_transaction import transactions_at
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.in_flight import InFlightJob

log = logging.getLogger(__name__)

_PAUSE = timedelta(seconds=1)
_NOT_COMMITTED = "the handler called complete_on, but its transaction was not committed; commit it before the handler returns"


async def confirm_outcome(claims: Claims, clock: Clock, held: InFlightJob, outcome: JobOutcome) -> JobOutcome:
    """Return the outcome of a handler that called ``complete_on`` and has ended. If it has committed, the job is done, and
    ``is_settled`` is set: there is no outcome to write. A handler that returned without a commit has failed.

    Waits until the store answers and the handler's transaction has ended: a handler in a thread cannot be stopped at its time
    limit, so it can keep the transaction open for longer."""
    try:
        is_done = await _wait(claims, clock, held)
    except asyncio.CancelledError:
        if held.stop_outcome is None:
            raise
        return JobOutcome(token=held.token, outcome=held.stop_outcome)
    if is_done and outcome.outcome is not AttemptOutcome.DONE:
        log.warning(
            "job %s stays done: its handler had committed its completion before the attempt ended as %s",
            held.job.job_id,
            outcome.outcome,
        )
    if is_done:
        held.is_settled = True
        return JobOutcome(token=held.token, outcome=AttemptOutcome.DONE)
    if outcome.outcome is not AttemptOutcome.DONE:
        return outcome
    wait = retry_delay(held.job.backoff, held.job.failures + 1, 0.5)
    return outcome._replace(outcome=AttemptOutcome.FAILED, result=None, error=_NOT_COMMITTED, retry_in=wait)


async def _wait(claims: Claims, clock: Clock, held: InFlightJob) -> bool:
    """Wait until the handler's transaction has ended. Returns whether it was committed."""
    job_id, has_warned = held.job.job_id, False
    while True:
        try:
            is_done = await _is_done(claims, held)
            if is_done or not await _is_locked(held):
                return is_done or await _is_done(claims, held)
            if not has_warned:
                log.warning("the handler of job %s has ended, but its transaction is still open; waiting for its end", job_id)
            has_warned = True
        except StoreUnavailable as exc:
            log.warning("failed to read whether job %s was completed: %s; retrying", job_id, exc)
        await clock.sleep(_PAUSE)


async def _is_done(claims: Claims, held: InFlightJob) -> bool:
    job = await claims.find(held.job.job_id)
    return job is None or (job.status is JobStatus.DONE and job.token == held.token)


async def _is_locked(held: InFlightJob) -> bool:
    return await transactions_at(held.store_url, "complete_on").is_being_completed(held.token)
