"""Slows down a worker whose notifications bring no job, such as one of many workers that wait for the same few jobs."""

from datetime import timedelta

from drumbeat.core.clock import Clock

SHORTEST, _LONGEST = timedelta(milliseconds=5), timedelta(seconds=1)


class NotificationPause:
    """Sleeps after a notification: the more notifications in a row brought no job, the longer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._empty_claims = 0  #: claims in a row that brought no job

    def note_claim(self, got_jobs: bool) -> None:
        self._empty_claims = 0 if got_jobs else self._empty_claims + 1

    async def sleep(self, began: timedelta, *, notified: bool) -> None:
        """Sleep after a wait that began at ``began`` (by the clock's ``elapsed``), if a notification ended the wait and two or
        more claims in a row brought no job."""
        if notified and self._empty_claims > 1:
            least = min(SHORTEST * 2 ** min(self._empty_claims, 20), _LONGEST)
            await self._clock.sleep(max(began + least - self._clock.elapsed(), timedelta()))
        self._empty_claims = self._empty_claims if notified else 0
