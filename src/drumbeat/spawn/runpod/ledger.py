"""Remembers the provider's refusals for the next process, in small files in the state folder.

Each beat that cron starts is a new process, and reads what the previous one wrote. A file that cannot be read or written only
costs a few more refused requests. The provider's messages are not stored, only their meaning, so no secret can be in a file.
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

MOST = 500  #: most records in one file; the newest are kept

R = TypeVar("R", bound=msgspec.Struct)


class RefusalFile(Generic[R]):
    """A file of records of one kind, shared by the processes with the same state folder, API key and settings."""

    def __init__(
        self, folder: Path, name: str, kind: type[R], settings: RunPodSettings, clock: Clock, asked_with: str = ""
    ) -> None:
        """``asked_with`` identifies key and settings: refusals under others do not count."""
        account = hashlib.sha256(f"{settings.base_url} {settings.prefix} {asked_with}".encode()).hexdigest()[:16]
        self._path = folder / "runpod" / f"{name}-{account}.json"
        self._decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self._clock = clock

    def read(self) -> Sequence[R]:
        """The records written last, by any process."""
        try:
            return self._decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as exc:
            log.warning("failed to read earlier refusals from %s: %s", self._path, exc)
            return []

    def write(self, records: Sequence[R]) -> None:
        """Replace the records; a reader sees the old or the new ones, never a mix."""
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            write_private(draft, msgspec.json.encode(records[-MOST:]))
            draft.replace(self._path)
        except OSError as exc:
            log.warning("failed to store refusals: %s", exc)

    def moment(self, elapsed: timedelta) -> datetime:
        """Convert from this process's elapsed time to the wall clock."""
        return self._clock.now() + (elapsed - self._clock.elapsed())

    def elapsed(self, moment: datetime) -> timedelta:
        """Convert from the wall clock to this process's elapsed time."""
        return self._clock.elapsed() + (moment - self._clock.now())
