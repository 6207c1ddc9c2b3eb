"""A thread of SQLite answers every caller, ends in time, and begins nothing in a transaction that is not over."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.pool import PoolKind, pool
from drumbeat.store import open_store
from drumbeat.store.sql import sqlite_thread
from drumbeat.store.sql.sqlite import SqliteDatabase
from drumbeat.store.sql.sqlite_thread import DatabaseThread
from drumbeat.store.sql.store import SqlStore

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"
WITHIN = 60.0  #: seconds after which a test fails instead of waiting for ever


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    made = open_store(f"sqlite:///{tmp_path}/drumbeat.db", create=True)
    assert isinstance(made, SqlStore)
    async with asyncio.timeout(WITHIN), made:
        yield made


def database_of(store: SqlStore) -> SqliteDatabase:
    assert isinstance(store.database, SqliteDatabase)
    return store.database


def threads_of(store: SqlStore) -> dict[str, DatabaseThread]:
    return {"reader": database_of(store)._reader, "writer": database_of(store)._writer}


async def running(group: asyncio.TaskGroup, thread: DatabaseThread) -> "asyncio.Task[Any]":
    """Start a statement that never ends by itself; returns once it runs."""
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(connection: sqlite3.Connection) -> Any:
        loop.call_soon_threadsafe(began.set)
        return connection.execute(ENDLESS).fetchall()

    task = group.create_task(refused(thread, work))
    await began.wait()
    await asyncio.sleep(0.05)
    return task


async def refused(thread: DatabaseThread, work: Callable[[sqlite3.Connection], Any]) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        await thread.submit(work)
    return str(caught.value)


@pytest.mark.parametrize("name", ["reader", "writer"])
async def test_closing_interrupts_a_statement_that_runs_for_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sqlite_thread, "_CLOSE_WITHIN", 0.05)
    url = f"sqlite:///{tmp_path}/drumbeat.db"
    async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as group, open_store(url, create=True) as store:
        assert isinstance(store, SqlStore)
        thread = threads_of(store)[name]
        endless = await running(group, thread)
        queued = [group.create_task(refused(thread, lambda connection: None)) for _ in range(200)]
        await asyncio.sleep(0)

    assert "interrupted" in endless.result()
    assert {task.result() for task in queued} == {"this store was closed before the operation could run"}
    assert not [each for each in threading.enumerate() if each.name.startswith("sqlite-")]


async def test_closing_finishes_what_was_asked_for_before(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/drumbeat.db"
    async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as group, open_store(url, create=True) as store:
        made = [group.create_task(store.pools.create(pool(f"p{n}", PoolKind.FLEET))) for n in range(300)]
        await asyncio.sleep(0)
    async with open_store(url) as store:
        assert len(await store.pools.list()) == len(made)


async def test_a_closing_that_is_cancelled_ends_the_threads_all_the_same(store: SqlStore) -> None:
    async with asyncio.TaskGroup() as group:
        endless = await running(group, database_of(store)._reader)
        closing = group.create_task(store.database.close())
        await asyncio.sleep(0.01)
        closing.cancel()

    assert "interrupted" in endless.result()
    await store.database.close()
    await store.database.open()
    assert await store.pools.list() == []


async def test_what_is_asked_for_while_the_store_closes_is_refused(store: SqlStore) -> None:
    async with asyncio.TaskGroup() as group:
        endless = await running(group, database_of(store)._writer)
        closing = group.create_task(store.database.close())
        await asyncio.sleep(0.01)
        with pytest.raises(StoreUnavailable, match="this store is closed"):
            await store.pools.create(pool("p", PoolKind.FLEET))
        closing.cancel()

    assert endless.done()
    await store.database.open()


class Stuck(sqlite3.Connection):
    """A connection that fails to roll back, or to begin, as often as it is told."""

    failures: dict[str, int]

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if self.failures.get(sql):
            self.failures[sql] -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *values)


@pytest.mark.parametrize("together", [1, 5])
async def test_a_transaction_that_cannot_be_rolled_back_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Its changes would be committed with the next write, or every later write would fail to begin."""
    Stuck.failures = {}
    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *words, **named: plain(*words, **named, factory=Stuck))
    async with asyncio.timeout(WITHIN), open_store(f"sqlite:///{tmp_path}/drumbeat.db", create=True) as store:
        assert isinstance(store, SqlStore)

        def half(connection: sqlite3.Connection) -> None:
            connection.execute("CREATE TABLE half (x)")
            raise ValueError("the other half is missing")

        Stuck.failures = {"ROLLBACK": 1, "COMMIT": 1} if together > 1 else {"ROLLBACK": 1}
        writer = database_of(store)._writer
        failed = await asyncio.gather(*(writer.submit(half) for _ in range(together)), return_exceptions=True)
        await store.pools.create(pool("p", PoolKind.FLEET))

        assert [type(each) for each in failed] == [StoreUnavailable if together > 1 else ValueError] * together
        tables = await writer.submit(lambda connection: connection.execute("SELECT name FROM sqlite_master").fetchall())
        assert "half" not in {row["name"] for row in tables}
        assert len(await store.pools.list()) == 1


async def test_an_error_that_nobody_foresaw_reaches_its_callers_and_ends_no_thread(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = database_of(store)._writer

    def fail(*words: object) -> None:
        raise RuntimeError("unforeseen")

    with monkeypatch.context() as broken:
        broken.setattr(writer, "_perform", fail)
        with pytest.raises(RuntimeError, match="unforeseen"):
            await store.pools.create(pool("p", PoolKind.FLEET))

    await store.pools.create(pool("p", PoolKind.FLEET))
