"""Notes (small JSON documents by name) in Redis: all in one hash."""

from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.core.note import Note
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.rows import dump, instant, load


class RedisNotes:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def put(self, name: str, value: Mapping[str, Any]) -> Note:
        body = dump(value)
        return _note(name, await self._database.run("note_put", name, body), body)

    async def find(self, name: str) -> Note | None:
        found = await self._database.run("note_find", name)
        return None if found is None else _note(name, *found)

    async def list(self, prefix: str = "") -> Sequence[Note]:
        found = [_note(name.decode(), at, body) for name, at, body in await self._database.run("note_list")]
        return sorted((note for note in found if note.name.startswith(prefix)), key=lambda note: note.name)

    async def delete(self, name: str) -> None:
        await self._database.run("note_delete", name)


def _note(name: str, at: bytes, body: bytes) -> Note:
    return Note(name=name, value=load(body), updated_at=instant(at))
