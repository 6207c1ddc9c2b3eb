"""What callers leave with the store: connections to databases under test, answers that are given once, and notes."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from drumbeat.core.answer import RequestAnswer, StoredAnswer
from drumbeat.core.connection import StoredConnection
from drumbeat.core.note import Note


class Connections(Protocol):
    """Databases under test by name. Secrets come sealed, and the store cannot open them."""

    async def create(self, connection: StoredConnection) -> StoredConnection:
        """Keep a new connection; it is not the default, whatever it says. Raises AlreadyExists."""
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
        """Have this one offered first, and no other. Raises NotFound."""
        ...

    async def delete(self, name: str) -> None:
        """Harmless when it is gone already."""
        ...


class Answers(Protocol):
    """Answers by idempotency key. A key is held while its request is worked on, then keeps the answer until it expires."""

    async def hold(self, key: str, fingerprint: str, within: timedelta) -> StoredAnswer | None:
        """Take a key nobody holds, for so long. None: it is yours; else what is kept under it, by the same request or not."""
        ...

    async def give(self, key: str, answer: RequestAnswer, kept_for: timedelta) -> None:
        """Keep the answer to a request whose key is held. Harmless when the key is gone."""
        ...

    async def forget(self, key: str) -> None:
        """Let go of a key whose request came to nothing. Harmless when it is gone."""
        ...


class Notes(Protocol):
    """Small documents by name that outlive whoever wrote them: usual prices, when a trigger last fired."""

    async def put(self, name: str, value: Mapping[str, Any]) -> Note:
        """Keep a note, in place of an earlier one of its name."""
        ...

    async def find(self, name: str) -> Note | None: ...

    async def list(self, prefix: str = "") -> Sequence[Note]:
        """Notes whose names begin so, by name."""
        ...

    async def delete(self, name: str) -> None:
        """Harmless when it is gone already."""
        ...
