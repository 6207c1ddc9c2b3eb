"""Stores in small files which requests RunPod refused, so that later processes know: cron can run each beat as a new process.

If a file cannot be used, RunPod only gets a few more requests that it refuses. RunPod's messages are not stored, because they
can contain secrets.
"""

import hashlib
import logging
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from drumbeat.core.clock import Clock
from drumbeat.spawn.private import write_private
from drumbeat.spawn.runpod.settings import RunPodSettings

log = logging.getLogger(__name__)

MOST = 500  #: how many records a file has at most; the oldest are dropped

R = TypeVar("R", bound=msgspec.Struct)


class RefusalFile(Generic[R]):
    """A file of RunPod's refusals to create a pod, shared by all processes with the same state folder, API key and settings."""

    def __init__(
        self, folder: Path, name: str, kind: type[R], settings: RunPodSettings, clock: Clock, asked_with: str = ""
    ) -> None:
        """``asked_with``, a hash of API key and settings, selects the file; other keys or settings have other files."""
        account = hashlib.sha256(f"{settings.base_url} {settings.prefix} {asked_with}".encode()).hexdigest()[:16]
        self._path = folder / "runpod" / f"{name}-{account}.json"
        self._decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self._clock = clock

    def read(self) -> Sequence[R]:
        """Return the refusals (or failed creations of pods) recorded in the file; an empty list if it cannot be read."""
        try:
            return self._decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as exc:
            log.warning("failed to read from %s which pods RunPod refused: %s; they may be requested again", self._path, exc)
            return []

    def write(self, records: Sequence[R]) -> None:
        """Replace all recorded refusals in the file in one step, so that a reader never sees a mix of old and new ones."""
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            write_private(draft, msgspec.json.encode(records[-MOST:]))
            draft.replace(self._path)
        except OSError as exc:
            log.warning("failed to store in %s which pods RunPod refused: %s; they may be requested again", self._path, exc)

    def moment(self, elapsed: timedelta) -> datetime:
        """Convert a reading of ``Clock.elapsed`` to the time of the wall clock."""
        return self._clock.now() + (elapsed - self._clock.elapsed())

    def elapsed(self, moment: datetime) -> timedelta:
        """Convert a time of the wall clock to the reading of ``Clock.elapsed`` at that time."""
        return self._clock.elapsed() + (moment - self._clock.now())
