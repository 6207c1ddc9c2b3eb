"""Tasks that are pushed in a transaction of the caller."""

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest

from drumbeat import connect_blocking, task
from drumbeat.core.errors import NotFound
from drumbeat.core.job import JobStatus
from drumbeat.core.note import Note
from drumbeat.core.pool import PoolId, PoolKind, pool as pool_row
from drumbeat.settings import STORE_VARIABLE
from drumbeat.store import open_store
from drumbeat.store.sql.notes import SqlNotes
from drumbeat.tasks.queue import StoreQueue
from drumbeat.testing import immediate


@task(pool="papers", unique="{first}", priority=3)
def add(first: int, second: int = 2) -> int:
    return first + second


@task(pool="papers")
def shout(text: str) -> str:
    return text.upper()


async def _create_pool(queue: StoreQueue) -> None:
    await queue.loop.run_async(queue.pool("papers").create())


async def _pending(queue: StoreQueue) -> list[tuple[object, int, str | None]]:
    jobs = await queue.loop.run_async(queue.pool("papers").list(statuses=[JobStatus.PENDING]))
    return [(job.payload, job.priority, job.unique_key) for job in jobs]


async def test_a_task_is_pushed_by_the_commit_of_the_callers_transaction(sqlite: StoreQueue, tmp_path: Path) -> None:
    await _create_pool(sqlite)
    expected = [await (await add.apush(1)).ajob()]
    await sqlite.acancel("papers", expected[0].job_id)

    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        with connection:
            pushed = add.push_on(connection, 1)
        add.push_on(connection, 5)
        connection.rollback()

    job = await pushed.ajob()
    assert (job.payload, job.type, job.priority, job.unique_key) == (
        expected[0].payload,
        expected[0].type,
        3,
        expected[0].unique_key,
    )
    assert await _pending(sqlite) == [(job.payload, 3, job.unique_key)]


async def test_a_task_is_pushed_on_an_asynchronous_connection(sqlite: StoreQueue, tmp_path: Path) -> None:
    await _create_pool(sqlite)
    async with aiosqlite.connect(tmp_path / "jobs.db") as connection:
        kept = await add.push_on(connection, 1, second=4)
        await connection.commit()
        await add.push_on(connection, 5)
        await connection.rollback()

    assert [payload for payload, _, _ in await _pending(sqlite)] == [(await kept.ajob()).payload]


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRUMBEAT_LARGE", f"file://{tmp_path}/large")
    monkeypatch.setenv("DRUMBEAT_MAX_INLINE", "1KB")
    return tmp_path / "large"


@pytest.fixture
def note_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that read notes of a SQL store."""
    threads: list[str] = []
    find = SqlNotes.find

    async def noted(notes: SqlNotes, name: str) -> Note | None:
        threads.append(threading.current_thread().name)
        return await find(notes, name)

    monkeypatch.setattr(SqlNotes, "find", noted)
    return threads


async def test_a_large_argument_is_stored_outside_without_using_the_store_on_another_event_loop(
    large: Path, sqlite: StoreQueue, tmp_path: Path, note_threads: list[str]
) -> None:
    await _create_pool(sqlite)
    async with aiosqlite.connect(tmp_path / "jobs.db") as connection:
        pushed = await shout.push_on(connection, "x" * 5000)
        await connection.commit()

    assert note_threads == ["drumbeat"]
    assert len(list(large.rglob("*.json"))) == 1
    assert (await pushed.ajob()).payload == (await (await shout.apush("x" * 5000)).ajob()).payload


async def test_a_blocking_connection_pushes_and_completes_large_values_on_an_asynchronous_connection(
    large: Path, tmp_path: Path, note_threads: list[str]
) -> None:
    with connect_blocking(f"sqlite:///{tmp_path}/jobs.db") as db:
        pool: Any = db.pool("papers")
        pool.create()
        async with aiosqlite.connect(tmp_path / "jobs.db") as connection:
            await pool.push_on(connection, "x" * 5000)
            await connection.commit()
            job = pool.claim()
            await pool.complete_on(connection, job, "y" * 5000)
            await connection.commit()

        assert job.payload == "x" * 5000
        assert pool.job(job.job_id).result == "y" * 5000
    assert note_threads == ["drumbeat"]
    assert len(list(large.rglob("*.json"))) == 2


@pytest.mark.parametrize("every_store", ["postgres"], indirect=True)
async def test_a_task_is_pushed_on_a_connection_to_postgres(every_store: StoreQueue) -> None:
    await _create_pool(every_store)
    with psycopg.connect(os.environ[STORE_VARIABLE]) as connection:
        kept = add.push_on(connection, 1)
        connection.commit()
        add.push_on(connection, 5)
        connection.rollback()

    assert [payload for payload, _, _ in await _pending(every_store)] == [(await kept.ajob()).payload]


def test_a_task_is_not_pushed_to_a_missing_pool(sqlite: StoreQueue, tmp_path: Path) -> None:
    sqlite.loop.run(sqlite.connection.pool("another").create())

    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, pytest.raises(NotFound, match="papers"):
        add.push_on(connection, 1)


@pytest.mark.parametrize("every_store", ["sqlite", "postgres"], indirect=True)
async def test_a_task_is_not_pushed_to_a_pool_without_a_queue(every_store: StoreQueue, tmp_path: Path) -> None:
    url = os.environ[STORE_VARIABLE]
    async with open_store(url, create=True) as store:
        await store.pools.create(pool_row(PoolId("papers"), PoolKind.FLEET))

    connect = psycopg.connect if url.startswith("postgres") else sqlite3.connect
    with closing(connect(url.removeprefix("sqlite:///"))) as connection:
        with pytest.raises(NotFound, match="there is no pool of jobs 'papers'"):
            add.push_on(connection, 1)
        with pytest.raises(NotFound, match="there is no pool of jobs 'papers'"):
            shout.push_on(connection, "plain")


async def test_in_immediate_mode_a_task_runs_before_the_commit(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "own.db") as asynchronous:
        with immediate() as queue, closing(sqlite3.connect(tmp_path / "own.db")) as connection:
            assert add.push_on(connection, 1).result() == 3
            assert (await add.push_on(asynchronous, 2)).result() == 4

    assert len(queue.jobs) == 2
