"""Background loops of a worker: renew leases, poll for cancelled jobs and for the order to exit, send progress."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, StoreUnavailable
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.in_flight import InFlight, InFlightJob
from drumbeat.runtime.timeouts import describe

log = logging.getLogger(__name__)

_POLL_EVERY = timedelta(seconds=1)  #: how often to poll for cancelled jobs and for the order to exit
_PROGRESS_EVERY = timedelta(milliseconds=500)


class LeaseKeeper:
    """A worker's loops, which survive store errors: renew leases, stop cancelled jobs, notice orders to exit, send progress."""

    def __init__(self, in_flight: InFlight, claims: Claims, clock: Clock, changed: Callable[[], None]) -> None:
        """``changed`` is called after jobs in flight might have been stopped or lost."""
        self._in_flight = in_flight
        self._claims = claims
        self._clock = clock
        self._changed = changed
        self.unsent = asyncio.Event()  #: there is progress to send
        self.in_doubt = asyncio.Event()  #: set if a wait for notifications brought no job: there may be an order to exit
        self.beat: Callable[[], None] = lambda: None  #: sends a heartbeat at once, which also reads the worker's orders

    async def keep(self) -> None:
        """Three times per lease duration: renew leases, stop lost and cancelled jobs, take back jobs of silent workers."""
        while True:
            await self._clock.sleep(self._claims.lease / 3)
            await _try(self._renew(), "failed to renew leases")
            await _try(self._claims.expire(), "failed to take back jobs of silent workers")
            await _try(self._look_for_turn(), "failed to look for jobs that must run alone")

    async def _renew(self) -> None:
        tokens = self._in_flight.renewable()
        if not tokens:
            return
        renewed = await self._claims.renew(tokens)
        self._in_flight.renewed([token for token in tokens if token not in renewed.locked])
        for token in renewed.stale:
            if self._in_flight.forget(token):
                log.warning("job %s was taken from this worker; stopping its handler", token.job_id)
        self._in_flight.cancel(renewed.cancelled)
        self._changed()

    async def _look_for_turn(self) -> None:
        """If a ready job must run alone, and this worker gets the lease to claim it, claim no other jobs until the current jobs
        are finished, then that job."""
        if self._in_flight.held_count and await self._claims.acquire_alone_lease():
            log.info("a waiting job must run alone; this worker finishes its other jobs, then claims it")
            self._in_flight.next_is_alone = True

    async def poll_cancelled(self) -> None:
        """Poll for cancelled jobs, but only while a job has been running for longer than the polling interval."""
        while True:
            await self._clock.sleep(_POLL_EVERY)
            if self._in_flight.has_run_since(self._clock.elapsed() - _POLL_EVERY) and not await self._stop_cancelled():
                await self._clock.sleep(self._claims.lease / 3)

    async def _stop_cancelled(self) -> bool:
        """Stop jobs that a user has cancelled. Returns False after an unexpected error, so that the caller waits longer."""
        try:
            cancelled = await self._claims.to_stop()
        except StoreUnavailable as exc:
            log.debug("could not poll for cancelled jobs: %s; retrying", exc)
            return True
        except Exception:
            log.exception("could not poll for cancelled jobs; retrying later")
            return False
        if cancelled:
            self._in_flight.cancel(cancelled)
            self._changed()
        return True

    async def poll_orders(self) -> None:
        """When the event ``in_doubt`` is set, read whether this worker was ordered to exit, at most once per second. If so,
        send a heartbeat at once; its reply makes the worker exit."""
        while True:
            await self.in_doubt.wait()
            self.in_doubt.clear()
            await _try(self._check_orders(), "failed to read whether this worker must exit")
            await self._clock.sleep(_POLL_EVERY)

    async def _check_orders(self) -> None:
        if await self._claims.must_leave():
            self.beat()

    async def report(self) -> None:
        """Send the latest progress of each job, at most twice a second."""
        while True:
            await self.unsent.wait()
            self.unsent.clear()
            for held, (share, note) in self._in_flight.take_progress():
                await self._send(held, share, note)
            await self._clock.sleep(_PROGRESS_EVERY)

    async def _send(self, held: InFlightJob, share: float, note: str | None) -> None:
        try:
            await self._claims.tell_progress(held.token, share, note)
        except Exception as exc:
            cause = None if isinstance(exc, DrumbeatError) else exc
            log.warning("failed to record the progress of job %s: %s", held.job.job_id, describe(exc), exc_info=cause)


async def _try(call: Coroutine[Any, Any, object], failure: str) -> None:
    try:
        await call
    except StoreUnavailable as exc:
        log.warning("%s: %s; retrying later", failure, exc)
    except Exception:
        log.exception("%s; retrying later", failure)
