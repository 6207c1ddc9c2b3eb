"""How full the volume is that a worker was given, told with its heartbeat."""

import logging
import shutil
from collections.abc import Mapping
from datetime import timedelta
from threading import Thread
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.spawn.interface import VOLUME_ID, VOLUME_PATH

log = logging.getLogger(__name__)

LOOK_EVERY = timedelta(minutes=1)
_GIGABYTE = 1e9


class DiskProbe:
    """Looks at a mounted volume now and then, in a thread of its own: a mount that hangs must not silence its worker."""

    def __init__(self, path: str, volume: str | None, clock: Clock) -> None:
        self._path = path
        self._named: Mapping[str, Any] = {"path": path} if volume is None else {"path": path, "volume": volume}
        self._clock = clock
        self._due = clock.elapsed()
        self._looking: Thread | None = None
        self._told: Mapping[str, Any] | None = None

    def read(self) -> Mapping[str, Any] | None:
        """What the last look found; None before the first, and when the volume could not be read."""
        now = self._clock.elapsed()
        if now >= self._due and (self._looking is None or not self._looking.is_alive()):
            self._due = now + LOOK_EVERY
            self._looking = Thread(target=self._look, name="disk", daemon=True)
            self._looking.start()
        return self._told

    def _look(self) -> None:
        try:
            usage = shutil.disk_usage(self._path)
        except OSError as exc:
            log.debug("the volume at %s could not be read: %s", self._path, exc)
            self._told = None
            return
        self._told = {**self._named, "total_gb": _gigabytes(usage.total), "free_gb": _gigabytes(usage.free)}


def _gigabytes(number: int) -> float:
    return round(number / _GIGABYTE, 3)


def find_disk(environment: Mapping[str, str], clock: Clock) -> DiskProbe | None:
    """The volume this worker was told of; None: none was."""
    path = environment.get(VOLUME_PATH)
    return DiskProbe(path, environment.get(VOLUME_ID) or None, clock) if path else None
