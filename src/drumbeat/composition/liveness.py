"""A file whose modification time says until when a controller counts as alive; a probe compares it with the clock."""

import logging
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote

from drumbeat.core.clock import Clock
from drumbeat.core.pool import PoolId
from drumbeat.spawn.private import write_private

log = logging.getLogger(__name__)

_BEATS: Final = 10  #: a controller counts as hung after this many intervals without a beat, but not before ``_LEAST``
_LEAST: Final = timedelta(minutes=15)  #: longer than a beat takes if an engine does not answer


class LivenessFile:
    """The file ``controller-POOL`` in the state folder; its modification time is when the controller will count as hung."""

    def __init__(self, state_dir: Path, pool_id: PoolId, every: timedelta, clock: Clock) -> None:
        self._path = state_dir / f"controller-{quote(pool_id, safe='')}"
        self._within = max(every * _BEATS, _LEAST)
        self._clock = clock

    def renew(self) -> None:
        """Record that the controller has run a beat, whether it leads or stands by. A failure is only logged."""
        until = (self._clock.now() + self._within).timestamp()
        try:
            write_private(self._path, b"")
            os.utime(self._path, (until, until))
        except OSError as exc:
            log.debug("could not write %s: %s", self._path, exc)

    def remove(self) -> None:
        """Delete the file, because the controller stops."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
