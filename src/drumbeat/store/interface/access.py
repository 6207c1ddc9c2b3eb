"""Connections to databases under test, answers by idempotency key, and notes."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from drumbeat.core.answer import RequestAnswer, StoredAnswer
from drumbeat.core.connection import StoredConnection
from drumbeat.core.note import Note


class Connections(Protocol):
    """Databases under test, by name. Secrets are encrypted before they come here; the store cannot decrypt them."""

    async def create(self, connection: StoredConnection) -> StoredConnection:
        """Add a connection. It is never the default at first; ``is_default`` is ignored. Raises AlreadyExists."""
        ...

    async def get(self, name: str) -> StoredConnection:
        """Raises NotFound."""
        ...

    async def list(self) -> Sequence[StoredConnection]:
        """All connections, by name."""
        ...

    async def save(self, connection: StoredConnection) -> StoredConnection:
        """Replace URL, secret and description. Raises NotFound."""
        ...

    async def set_default(self, name: str) -> StoredConnection:
        """Make this connection the only default. Raises NotFound."""
        ...

    async def delete(self, name: str) -> None:
        """Harmless when it does not exist."""
        ...


class Answers(Protocol):
    """Answers by idempotency key. A key is held while its request is worked on, then keeps the answer until it expires."""

    async def hold(self, key: str, fingerprint: str, within: timedelta) -> StoredAnswer | None:
        """Take a free key for this long. Returns None if the caller now holds it, else what is stored under the key, which may
        belong to a different request."""
        ...

    async def give(self, key: str, answer: RequestAnswer, kept_for: timedelta) -> None:
        """Store the answer to a request whose key is held. Harmless when the key is gone."""
        ...

    async def forget(self, key: str) -> None:
        """Release the key of a request that failed. Harmless when it is gone."""
        ...


class Notes(Protocol):
    """Small documents by name that outlive the process that wrote them: usual prices, when a trigger last fired."""

    async def put(self, name: str, value: Mapping[str, Any]) -> Note:
        """Write a note; replaces an earlier note of the same name."""
        ...

    async def find(self, name: str) -> Note | None: ...

    async def list(self, prefix: str = "") -> Sequence[Note]:
        """Notes whose name starts with ``prefix``, by name."""
        ...

    async def delete(self, name: str) -> None:
        """Harmless when it does not exist."""
        ...
