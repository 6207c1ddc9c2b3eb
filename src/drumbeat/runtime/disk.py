"""Measures the free space of a worker's volume, for its heartbeat."""

import logging
import shutil
from collections.abc import Mapping
from datetime import timedelta
from threading import Thread
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.spawn.interface import VOLUME_ID, VOLUME_PATH

log = logging.getLogger(__name__)

READ_EVERY = timedelta(minutes=1)
_GIGABYTE = 1e9


class DiskProbe:
    """Measures a mounted volume once a minute, in a thread: a hanging mount must not block the heartbeat."""

    def __init__(self, path: str, volume: str | None, clock: Clock) -> None:
        self._path = path
        self._labels: Mapping[str, Any] = {"path": path} if volume is None else {"path": path, "volume": volume}
        self._clock = clock
        self._due = clock.elapsed()
        self._thread: Thread | None = None
        self._reading: Mapping[str, Any] | None = None

    def read(self) -> Mapping[str, Any] | None:
        """Return the last measurement; None before the first one, or if the volume could not be read."""
        now = self._clock.elapsed()
        if now >= self._due and (self._thread is None or not self._thread.is_alive()):
            self._due = now + READ_EVERY
            self._thread = Thread(target=self._measure, name="disk", daemon=True)
            self._thread.start()
        return self._reading

    def _measure(self) -> None:
        try:
            usage = shutil.disk_usage(self._path)
        except OSError as exc:
            log.debug("failed to measure the volume at %s: %s", self._path, exc)
            self._reading = None
            return
        self._reading = {**self._labels, "total_gb": _gigabytes(usage.total), "free_gb": _gigabytes(usage.free)}


def _gigabytes(number: int) -> float:
    return round(number / _GIGABYTE, 3)


def find_disk(environment: Mapping[str, str], clock: Clock) -> DiskProbe | None:
    """Return a DiskProbe for the volume whose path is in the environment variables; None if no volume is named there."""
    path = environment.get(VOLUME_PATH)
    return DiskProbe(path, environment.get(VOLUME_ID) or None, clock) if path else None
