"""What the next process shall know of what was refused: small files in the state folder, with moments and names alone.

A beat from cron is a process of its own. What it noted is read by the next; what cannot be read or written is not known there,
which costs a few more refusals and nothing else. Nothing a provider said is kept, only what it meant: no secret can be in it.
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

MOST = 500  #: records in one file: the newest are kept

R = TypeVar("R", bound=msgspec.Struct)


class RefusalFile(Generic[R]):
    """A file of records of one kind, shared by the processes of one folder that ask for the same pods in the same way."""

    def __init__(
        self, folder: Path, name: str, kind: type[R], settings: RunPodSettings, clock: Clock, asked_with: str = ""
    ) -> None:
        """``asked_with``: what was refused to another key, or by other settings, does not count."""
        account = hashlib.sha256(f"{settings.base_url} {settings.prefix} {asked_with}".encode()).hexdigest()[:16]
        self._path = folder / "runpod" / f"{name}-{account}.json"
        self._decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self._clock = clock

    def read(self) -> Sequence[R]:
        """What was written last, by whomever."""
        try:
            return self._decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as exc:
            log.warning("what was refused before is not known: %s: %s", self._path, exc)
            return []

    def write(self, records: Sequence[R]) -> None:
        """Instead of what was there; a reader sees the one or the other, never half of it."""
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            write_private(draft, msgspec.json.encode(records[-MOST:]))
            draft.replace(self._path)
        except OSError as exc:
            log.warning("what was refused is not written down: %s", exc)

    def moment(self, elapsed: timedelta) -> datetime:
        """A moment of this process's own time, by the wall clock."""
        return self._clock.now() + (elapsed - self._clock.elapsed())

    def elapsed(self, moment: datetime) -> timedelta:
        """A moment of the wall clock, by this process's own time."""
        return self._clock.elapsed() + (moment - self._clock.now())
