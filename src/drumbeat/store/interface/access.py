"""Store interfaces for connections to databases under test, HTTP responses by idempotency key, and notes."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from drumbeat.core.answer import RequestAnswer, StoredAnswer
from drumbeat.core.connection import StoredConnection
from drumbeat.core.note import Note


class Connections(Protocol):
    """Saved connections to databases under test, by name. Secrets arrive encrypted; the store cannot decrypt them."""

    async def create(self, connection: StoredConnection) -> StoredConnection:
        """Add a connection. A new connection is never the default: ``is_default`` is ignored. Raises AlreadyExists."""
        ...

    async def get(self, name: str) -> StoredConnection:
        """Return the connection with this name. Raises NotFound."""
        ...

    async def list(self) -> Sequence[StoredConnection]:
        """Return all connections, sorted by name."""
        ...

    async def save(self, connection: StoredConnection) -> StoredConnection:
        """Replace the URL, secret and description of a connection. Raises NotFound."""
        ...

    async def set_default(self, name: str) -> StoredConnection:
        """Make this connection the only default. Raises NotFound."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a connection. Does nothing if it does not exist."""
        ...


class Answers(Protocol):
    """Responses to HTTP requests and webhook deliveries, by key. A request reserves its key while it is processed; then its
    response is stored until it expires."""

    async def hold(self, key: str, fingerprint: str, within: timedelta) -> StoredAnswer | None:
        """Reserve an idempotency key for the time ``within``. Returns None if the key was free and is now reserved for the
        caller; otherwise the row stored under the key, with the ``fingerprint`` of the request that reserved it."""
        ...

    async def give(self, key: str, answer: RequestAnswer, kept_for: timedelta) -> None:
        """Store the response to the HTTP request that reserved this idempotency key. Does nothing if the key does not exist."""
        ...

    async def forget(self, key: str) -> None:
        """Release the idempotency key of an HTTP request that failed. Does nothing if the key does not exist."""
        ...


class Notes(Protocol):
    """Small JSON documents by name, which outlive the process: for example usual prices, or when a trigger last fired."""

    async def put(self, name: str, value: Mapping[str, Any]) -> Note:
        """Write a note. Replaces an earlier note with the same name."""
        ...

    async def find(self, name: str) -> Note | None: ...

    async def list(self, prefix: str = "") -> Sequence[Note]:
        """Return the notes with names that start with ``prefix``, sorted by name."""
        ...

    async def delete(self, name: str) -> None:
        """Delete the note (a small JSON document) with this name. Does nothing if there is none."""
        ...
