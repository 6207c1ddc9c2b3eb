"""SQL tables ``connections`` (databases under test) and ``answers`` (responses stored by idempotency key)."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from drumbeat.core.answer import RequestAnswer, StoredAnswer
from drumbeat.core.connection import EncryptedSecret, StoredConnection
from drumbeat.core.errors import AlreadyExists, NotFound
from drumbeat.store.sql.database import Database, Row, Rows, Script
from drumbeat.store.sql.rows import instant, moment, to_us


class SqlConnections:
    """Reads and writes the table ``connections``: saved databases under test, each with a unique name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, connection: StoredConnection) -> StoredConnection:
        rows = await self._database.write("add_connection", _values(connection))
        if not rows:
            raise AlreadyExists(f"connection {connection.name!r} already exists; change it, or choose another name")
        return _connection(rows[0])

    async def get(self, name: str) -> StoredConnection:
        return _found(name, await self._database.read("find_connection", {"name": name}))

    async def list(self) -> Sequence[StoredConnection]:
        return [_connection(row) for row in await self._database.read("list_connections")]

    async def save(self, connection: StoredConnection) -> StoredConnection:
        return _found(connection.name, await self._database.write("save_connection", _values(connection)))

    async def set_default(self, name: str) -> StoredConnection:
        return await self._database.transact(_set_default(name))

    async def delete(self, name: str) -> None:
        await self._database.write("delete_connection", {"name": name})


class SqlAnswers:
    """Reads and writes the table ``answers``: the response to each request, by its idempotency key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def hold(self, key: str, fingerprint: str, within: timedelta) -> StoredAnswer | None:
        return await self._database.transact(_hold(key, fingerprint, within))

    async def give(self, key: str, answer: RequestAnswer, kept_for: timedelta) -> None:
        given = {"status": answer.status, "body": answer.body, "location": answer.location}
        await self._database.write("give_answer", {"key": key, "kept_for": to_us(kept_for), **given})

    async def forget(self, key: str) -> None:
        await self._database.write("forget_answer", {"key": key})


def _set_default(name: str) -> Script[StoredConnection]:
    rows = yield "lock_connections", {}
    if name not in {row["name"] for row in rows}:
        raise _no_connection(name)
    yield "set_default_connection", {"name": name}
    return _found(name, (yield "find_connection", {"name": name}))


def _hold(key: str, fingerprint: str, within: timedelta) -> Script[StoredAnswer | None]:
    yield "forget_expired_answers", {}
    if (yield "hold_answer", {"key": key, "fingerprint": fingerprint, "within": to_us(within)}):
        return None
    rows = yield "find_answer", {"key": key}
    return _answer(rows[0]) if rows else None


def _values(connection: StoredConnection) -> dict[str, Any]:
    return {
        "name": connection.name,
        "url": connection.url,
        "description": connection.description,
        "key_id": connection.secret.key_id if connection.secret else None,
        "secret": connection.secret.text if connection.secret else None,
    }


def _found(name: str, rows: Rows) -> StoredConnection:
    if not rows:
        raise _no_connection(name)
    return _connection(rows[0])


def _no_connection(name: str) -> NotFound:
    return NotFound(f"there is no connection {name!r}; see: drumbeat connection list")


def _connection(row: Row) -> StoredConnection:
    return StoredConnection(
        name=row["name"],
        url=row["url"],
        description=row["description"],
        secret=None if row["secret"] is None else EncryptedSecret(key_id=row["key_id"], text=row["secret"]),
        is_default=bool(row["is_default"]),
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
    )


def _answer(row: Row) -> StoredAnswer:
    given = None if row["status"] is None else RequestAnswer(status=row["status"], body=row["body"], location=row["location"])
    expires_at = instant(row["expires_at"])
    return StoredAnswer(key=row["request_key"], fingerprint=row["fingerprint"], expires_at=expires_at, answer=given)
