"""Connections to databases under test, and answers to HTTP requests by idempotency key, in memory."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from drumbeat.core.answer import RequestAnswer, StoredAnswer
from drumbeat.core.connection import StoredConnection
from drumbeat.core.errors import AlreadyExists, NotFound
from drumbeat.store.memory.state import MemoryTable, operation


class MemoryConnections(MemoryTable):
    @operation
    def create(self, connection: StoredConnection) -> StoredConnection:
        if connection.name in self.state.connections:
            raise AlreadyExists(f"connection {connection.name!r} already exists; change it, or choose another name")
        now = self.state.now()
        return self._put(replace(connection, is_default=False, created_at=now, updated_at=now))

    @operation
    def get(self, name: str) -> StoredConnection:
        return self._find(name)

    @operation
    def list(self) -> Sequence[StoredConnection]:
        return [self.state.connections[name] for name in sorted(self.state.connections)]

    @operation
    def save(self, connection: StoredConnection) -> StoredConnection:
        row = self._find(connection.name)
        changed = replace(row, url=connection.url, secret=connection.secret, description=connection.description)
        return self._put(replace(changed, updated_at=self.state.now()))

    @operation
    def set_default(self, name: str) -> StoredConnection:
        self._find(name)
        for each in tuple(self.state.connections.values()):
            self._put(replace(each, is_default=each.name == name))
        return self._find(name)

    @operation
    def delete(self, name: str) -> None:
        self.state.connections.pop(name, None)

    def _find(self, name: str) -> StoredConnection:
        if name not in self.state.connections:
            raise NotFound(f"there is no connection {name!r}; see: drumbeat connection list")
        return self.state.connections[name]

    def _put(self, row: StoredConnection) -> StoredConnection:
        self.state.connections[row.name] = row
        return row


class MemoryAnswers(MemoryTable):
    @operation
    def hold(self, key: str, fingerprint: str, within: timedelta) -> StoredAnswer | None:
        now, answers = self.state.now(), self.state.answers
        for old in [each for each in answers.values() if each.expires_at <= now]:
            del answers[old.key]
        if key in answers:
            return answers[key]
        answers[key] = StoredAnswer(key=key, fingerprint=fingerprint, expires_at=now + within)
        return None

    @operation
    def give(self, key: str, answer: RequestAnswer, kept_for: timedelta) -> None:
        if key in self.state.answers:
            row = self.state.answers[key]
            self.state.answers[key] = replace(row, answer=answer, expires_at=self.state.now() + kept_for)

    @operation
    def forget(self, key: str) -> None:
        self.state.answers.pop(key, None)
