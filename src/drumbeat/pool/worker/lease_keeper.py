"""What a worker does beside its jobs: renew what it holds, hear which are to be stopped, or itself to leave, send progress."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, StoreUnavailable
from drumbeat.pool.worker.attempt import InFlightJob
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.in_flight import InFlight
from drumbeat.runtime.timeouts import describe

log = logging.getLogger(__name__)

_HEED_EVERY = timedelta(seconds=1)  #: how soon a job that runs hears that it is cancelled, an idle worker that it shall leave
_PROGRESS_EVERY = timedelta(milliseconds=500)


class LeaseKeeper:
    """Four loops of one worker. None of them ends for what the store says: a row that cannot be read is not ours alone."""

    def __init__(self, hand: InFlight, claims: Claims, clock: Clock, changed: Callable[[], None]) -> None:
        """``changed`` is called when something in hand may have been stopped or lost."""
        self._hand = hand
        self._claims = claims
        self._clock = clock
        self._changed = changed
        self.unsent = asyncio.Event()  #: progress was told
        self.in_doubt = asyncio.Event()  #: a wait brought no work: perhaps news of this worker
        self.beat: Callable[[], None] = lambda: None  #: has the worker's orders brought at once

    async def keep(self) -> None:
        """Renew what is held, hear which are gone or to be stopped, and take back what silent workers held."""
        while True:
            await self._clock.sleep(self._claims.lease / 3)
            await _tried(self._renew(), "leases could not be renewed")
            await _tried(self._take_back(), "what silent workers held could not be taken back")
            await _tried(self._look_for_turn(), "jobs that must run alone are looked for later")

    async def _renew(self) -> None:
        tokens = self._hand.tokens()
        if not tokens:
            return
        renewed = await self._claims.renew(tokens)
        self._hand.renewed(tokens)
        for token in renewed.stale:
            if self._hand.forget(token):
                log.warning("job %s is no longer this worker's; its handler is stopped", token.job_id)
        self._hand.cancel(renewed.cancelled)
        self._changed()

    async def _take_back(self) -> None:
        await self._claims.expire()

    async def _look_for_turn(self) -> None:
        """Make a busy worker finish what it holds when jobs wait to be tried alone; an idle one takes them anyway."""
        if self._hand.held_count and await self._claims.take_turn_alone():
            log.info("jobs wait to be tried alone; this worker finishes what it holds, then takes one of them")
            self._hand.next_is_alone = True

    async def heed(self) -> None:
        """Hear soon which jobs somebody wants stopped; asked only while one has run for longer than that takes."""
        while True:
            await self._clock.sleep(_HEED_EVERY)
            if self._hand.runs_since(self._clock.elapsed() - _HEED_EVERY) and not await self._hear():
                await self._clock.sleep(self._claims.lease / 3)

    async def _hear(self) -> bool:
        """Stop what is to be stopped; False when the store's answer makes no sense."""
        try:
            unwanted = await self._claims.to_stop()
        except StoreUnavailable as exc:
            log.debug("%s; cancelled jobs are heard of later", exc)
            return True
        except Exception:
            log.exception("which jobs are cancelled cannot be heard")
            return False
        if unwanted:
            self._hand.cancel(unwanted)
            self._changed()
        return True

    async def expect_orders(self) -> None:
        """Hear soon that this worker shall leave; asked only in doubt, and not more often than once in a while."""
        while True:
            await self.in_doubt.wait()
            self.in_doubt.clear()
            await _tried(self._look_at_row(), "whether this worker shall leave is heard of later")
            await self._clock.sleep(_HEED_EVERY)

    async def _look_at_row(self) -> None:
        if await self._claims.must_leave():
            self.beat()

    async def report(self) -> None:
        """Send progress, the latest of each job, not too often."""
        while True:
            await self.unsent.wait()
            self.unsent.clear()
            for held, (share, note) in self._hand.take_progress():
                await self._send(held, share, note)
            await self._clock.sleep(_PROGRESS_EVERY)

    async def _send(self, held: InFlightJob, share: float, note: str | None) -> None:
        try:
            await self._claims.tell_progress(held.token, share, note)
        except Exception as exc:
            cause = None if isinstance(exc, DrumbeatError) else exc
            log.warning("the progress of job %s could not be kept: %s", held.job.job_id, describe(exc), exc_info=cause)


async def _tried(call: Coroutine[Any, Any, None], otherwise: str) -> None:
    try:
        await call
    except StoreUnavailable as exc:
        log.warning("%s; %s", exc, otherwise)
    except Exception:
        log.exception("%s", otherwise)
