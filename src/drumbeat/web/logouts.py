"""Keeps logouts in the store until their sessions expire, so that they hold after a restart and on other servers too."""

import asyncio
import logging
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreError
from drumbeat.core.note import Note
from drumbeat.store.interface import Notes
from drumbeat.web.sessions import LoginSession, Sessions

PREFIX = "logout/"  #: names of the notes: this, and the id of the session
EVERY = timedelta(seconds=5)  #: how often logouts are read from the store while requests come with a session

log = logging.getLogger(__name__)


class Logouts:
    """Ends sessions, stores that they ended, and reads which sessions other servers have ended."""

    def __init__(self, sessions: Sessions, notes: Notes, clock: Clock) -> None:
        self._sessions = sessions
        self._notes = notes
        self._clock = clock
        self._unsaved: dict[str, LoginSession] = {}  #: logouts that could not be stored yet
        self._read_at: timedelta | None = None  #: when the logouts were read last; None: never
        self._reading = asyncio.Lock()

    async def end(self, cookie: str) -> None:
        """Log out. If the store fails, the logout holds in this process, and is stored when the store answers again."""
        session = self._sessions.end(cookie)
        if session is None:
            return
        self._unsaved[session.session_id] = session
        try:
            await self._save()
        except StoreError as exc:
            log.warning("failed to store a logout: %s; until it is stored, it holds only in this process; retrying", exc)

    async def refresh(self) -> None:
        """Read which sessions have ended, unless they were read a moment ago. Raises StoreError if they were never read: until
        then any session might have been logged out. A later failure is only logged."""
        if self._is_fresh() or (self._reading.locked() and self._read_at is not None):
            return
        async with self._reading:
            if self._is_fresh():
                return
            try:
                await self._read()
            except StoreError as exc:
                if self._read_at is None:
                    raise
                log.warning("failed to read which sessions were logged out: %s; retrying", exc)
            self._read_at = self._clock.elapsed()

    def _is_fresh(self) -> bool:
        return self._read_at is not None and self._clock.elapsed() - self._read_at < EVERY

    async def _read(self) -> None:
        await self._save()
        now = self._clock.now()
        notes = await self._notes.list(PREFIX)
        self._sessions.note_ended({note.name.removeprefix(PREFIX): _until(note) for note in notes}, now)
        for note in notes:
            if _until(note) <= now.timestamp():
                await self._notes.delete(note.name)

    async def _save(self) -> None:
        for session in tuple(self._unsaved.values()):
            await self._notes.put(f"{PREFIX}{session.session_id}", {"until": session.until})
            self._unsaved.pop(session.session_id, None)


def _until(note: Note) -> float:
    return float(note.value["until"])
