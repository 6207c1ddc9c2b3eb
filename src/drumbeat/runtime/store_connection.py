"""Calls the store for a worker: a failed call is retried with growing pauses, until the outage has lasted too long."""

import logging
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.pool import Thresholds
from drumbeat.runtime.timeouts import with_timeout

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
_CALL_TIMEOUT = (timedelta(seconds=1), timedelta(seconds=10))  #: shortest and longest timeout of a call


class StoreConnection:
    """Calls the store, and measures how long it has not answered.

    Pauses between retries double from 1 s to 30 s; the last pause is shortened, so that one more try is made at the deadline.
    The time without an answer counts from when the last answered call was *sent*. The controller counts from when that call
    reached the store, which is later, so the worker gives up before the controller marks the worker lost.
    """

    def __init__(self, clock: Clock, thresholds: Thresholds) -> None:
        self._clock = clock
        self._give_up_after = thresholds.give_up_after
        #: timeout of one call, so short that three fit between giving up and being marked lost
        self.call_timeout = min(max((thresholds.lost_after - thresholds.give_up_after) / 3, _CALL_TIMEOUT[0]), _CALL_TIMEOUT[1])
        self._last_answer = clock.elapsed()
        self._in_contact_since = self._last_answer
        self._pause: timedelta | None = None
        self._retry_at = self._last_answer

    @property
    def silence(self) -> timedelta:
        return self._clock.elapsed() - self._last_answer

    @property
    def is_silent(self) -> bool:
        """Whether the store did not answer the last call."""
        return self._pause is not None

    @property
    def lost(self) -> bool:
        """Whether the store has been silent for ``give_up_after`` or longer."""
        return self.silence >= self._give_up_after

    @property
    def in_contact(self) -> timedelta:
        """Return for how long the store has answered every call; zero if the last one was not answered."""
        return timedelta() if self.is_silent else self._clock.elapsed() - self._in_contact_since

    @property
    def retry_in(self) -> timedelta:
        """Return how long to wait before the next call; zero while the store answers."""
        return max(self._retry_at - self._clock.elapsed(), timedelta())

    async def ask(self, call: Coroutine[Any, Any, T]) -> T:
        """Make one store call. Raises StoreUnavailable, also if there is no answer in time."""
        sent = self._clock.elapsed()
        try:
            answer = await with_timeout(self._clock, self.call_timeout, call)
        except StoreUnavailable:
            self._note_silence()
            raise
        self._note_answer(sent)
        return answer

    async def ask_until_answered(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeat a store call until it is answered. Raises StoreUnavailable once the store has been silent for too long."""
        while True:
            try:
                return await self.ask(call())
            except StoreUnavailable as exc:
                if self.lost:
                    raise
                log.warning("the store did not answer: %s; retrying in %.0f s", exc, self.retry_in.total_seconds())
            await self._clock.sleep(self.retry_in)

    def _note_answer(self, sent: timedelta) -> None:
        if self.is_silent:
            log.info("the store answers again, after %.0f s without an answer", self.silence.total_seconds())
            self._in_contact_since = sent
        self._last_answer = sent
        self._pause = None

    def _note_silence(self) -> None:
        now = self._clock.elapsed()
        self._pause = FIRST_PAUSE if self._pause is None else min(self._pause * 2, LONGEST_PAUSE)
        self._retry_at = min(now + self._pause, max(self._last_answer + self._give_up_after, now))
