"""SQL table ``notes``: small JSON documents, each under a unique name."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from drumbeat.core.note import Note
from drumbeat.store.sql.database import Database, Row
from drumbeat.store.sql.rows import dump, instant, load


class SqlNotes:
    """Writes, finds, lists and deletes notes (small JSON documents) by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, name: str, value: Mapping[str, Any]) -> Note:
        return _note((await self._database.write("put_note", {"name": name, "value": dump(value)}))[0])

    async def find(self, name: str) -> Note | None:
        rows = await self._database.read("find_note", {"name": name})
        return _note(rows[0]) if rows else None

    async def list(self, prefix: str = "") -> Sequence[Note]:
        return sorted(
            (_note(row) for row in await self._database.read("list_notes", {"prefix": prefix})), key=attrgetter("name")
        )

    async def delete(self, name: str) -> None:
        await self._database.write("delete_note", {"name": name})


def _note(row: Row) -> Note:
    return Note(name=row["name"], value=load(row["value"]), updated_at=instant(row["updated_at"]))
