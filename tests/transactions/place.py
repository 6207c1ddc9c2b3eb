"""A store with a table of the user's own beside it, in PostgreSQL or SQLite."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg

import drumbeat

TABLE = "CREATE TABLE effects (n integer NOT NULL)"
WRITE = "INSERT INTO effects (n) VALUES (1)"


class Place:
    """A store, and its database for everything else. Each pool is new, and the table is empty when it is made."""

    def __init__(self, url: str, db: drumbeat.Connection, execute: Callable[[str], Awaitable[Any]]) -> None:
        self.url = url  #: of the database
        self.db = db
        self.execute = execute  #: runs a statement on a connection of its own
        self._made = 0

    async def pool(self) -> drumbeat.Pool:
        self._made += 1
        found = self.db.pool(f"papers-{self._made}")
        await found.create()
        await self.execute("DELETE FROM effects")
        return found

    async def effects(self) -> int:
        return int((await self.execute("SELECT COUNT(*) AS n FROM effects"))[0][0])


@asynccontextmanager
async def place_in_postgres(url: str) -> AsyncIterator[Place]:
    connection = await asyncpg.connect(url)
    await connection.execute(TABLE)
    async with drumbeat.connect(f"{url}?schema=jobs_of_ours") as db:
        yield Place(url, db, connection.fetch)
    await connection.close()


@asynccontextmanager
async def place_in_sqlite(folder: Path) -> AsyncIterator[Place]:
    file = folder / "jobs.db"
    async with drumbeat.connect(f"sqlite:///{file}?synchronous=normal") as db:
        await db.pool("first").create()
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:

            async def execute(statement: str) -> Any:
                return connection.execute(statement).fetchall()

            await execute(TABLE)
            yield Place(f"sqlite:///{file}", db, execute)
