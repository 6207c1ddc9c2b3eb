"""Middleware and large values with pushes and completions in a transaction of the caller."""

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import aiosqlite
import pytest

import drumbeat
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import AttemptOutcome, JobStatus
from drumbeat.pool.envelope import MARK

BIG = "x" * 5000
LOOKS_LIKE_AN_ENVELOPE = {MARK: {"headers": {}}, "value": 1}


class Stamp:
    """Adds a header to each job, and writes down what else it sees."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def before_push(self, push: drumbeat.PushCall) -> None:
        for job in push.jobs:
            job.headers["stamp"] = "pushed"

    def after_push(self, push: drumbeat.PushCall) -> None:
        pushed = [job.job_id for job in push.jobs]
        self.seen.append(f"failed: {push.error}" if push.error else f"pushed {len(pushed)}, known {None not in pushed}")

    def on_retry(self, attempt: drumbeat.AttemptCall) -> None:
        self.seen.append("on_retry")

    def after_attempt(self, attempt: drumbeat.AttemptCall) -> None:
        self.seen.append(f"after_attempt {attempt.outcome.outcome if attempt.outcome else None}")


class AsyncStamp:
    async def before_push(self, push: drumbeat.PushCall) -> None:
        for job in push.jobs:
            job.headers["async"] = "yes"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@asynccontextmanager
async def opened(file: Path, *middleware: object) -> AsyncIterator[tuple[drumbeat.Connection, drumbeat.Pool]]:
    async with drumbeat.connect(f"sqlite:///{file}", middleware=middleware) as db:
        pool = db.pool("papers")
        await pool.create()
        yield db, pool


async def headers_in(db: drumbeat.Connection) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []

    def work(context: drumbeat.JobContext) -> None:
        found.append(dict(context.headers))

    await db.work("papers", work)
    return found


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRUMBEAT_LARGE", f"file://{tmp_path}/large")
    monkeypatch.setenv("DRUMBEAT_MAX_INLINE", "1KB")
    return tmp_path / "large"


async def test_a_push_on_a_blocking_connection_has_the_headers_of_plain_hooks(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stamp = Stamp()
    async with opened(file, stamp, AsyncStamp()) as (db, pool):
        with caplog.at_level(logging.WARNING), closing(sqlite3.connect(file)) as connection, connection:
            pool.push_on(connection, 1)
            pool.push_many_on(connection, [2, 3])

        assert await headers_in(db) == [{"stamp": "pushed"}] * 3
    assert stamp.seen[:2] == ["pushed 1, known True", "pushed 2, known True"]
    assert [each.getMessage() for each in caplog.records if "AsyncStamp.before_push skipped" in each.getMessage()] != []
    assert len([each for each in caplog.records if "skipped" in each.getMessage()]) == 1


async def test_a_push_on_an_asynchronous_connection_has_the_headers_of_all_hooks(file: Path) -> None:
    async with opened(file, Stamp(), AsyncStamp()) as (db, pool):
        async with aiosqlite.connect(file) as connection:
            await pool.push_on(connection, 1)
            await pool.push_many_on(connection, [2])
            await connection.commit()

        assert await headers_in(db) == [{"stamp": "pushed", "async": "yes"}] * 2


async def test_a_hook_sees_that_a_push_on_a_connection_failed(file: Path) -> None:
    stamp = Stamp()
    async with opened(file, stamp) as (_, pool):
        with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(InvalidInput, match="to a database in memory"):
            pool.push_on(connection, 1)

    assert "failed: connection: expected a connection to the store's own database" in stamp.seen[0]


async def test_values_that_look_like_an_envelope_come_back_as_they_were(file: Path) -> None:
    async with opened(file) as (db, pool):
        with closing(sqlite3.connect(file)) as connection, connection:
            ids = [pool.push_on(connection, LOOKS_LIKE_AN_ENVELOPE), *pool.push_many_on(connection, [LOOKS_LIKE_AN_ENVELOPE])]
        job = await pool.claim()
        assert job is not None
        assert job.payload == LOOKS_LIKE_AN_ENVELOPE
        with closing(sqlite3.connect(file)) as connection, connection:
            pool.complete_on(connection, job, job.payload)

        def work(context: drumbeat.JobContext) -> None:
            with closing(sqlite3.connect(file)) as connection, connection:
                context.complete_on(connection, context.payload)

        await db.work("papers", work)

        assert [await pool.result(each) for each in ids] == [LOOKS_LIKE_AN_ENVELOPE] * 2


async def test_large_values_go_to_their_place_on_an_asynchronous_connection(file: Path, large: Path) -> None:
    async with opened(file) as (_, pool):
        async with aiosqlite.connect(file) as connection:
            job_id = await pool.push_on(connection, BIG)
            await connection.commit()
        job = await pool.claim()
        assert job is not None
        assert job.payload == BIG
        async with aiosqlite.connect(file) as connection:
            await pool.complete_on(connection, job, BIG.upper())
            await connection.commit()

        assert await pool.result(job_id) == BIG.upper()
    assert len(list(large.rglob("*.json"))) == 2


async def test_the_first_large_value_of_a_store_does_not_wait_for_the_callers_own_writes(file: Path, large: Path) -> None:
    async with opened(file) as (_, pool), aiosqlite.connect(file) as connection:
        await connection.execute("CREATE TABLE orders (number INTEGER)")
        await connection.execute("INSERT INTO orders VALUES (1)")
        job_id = await pool.push_on(connection, BIG)
        await connection.commit()

        assert (await pool.job(job_id)).payload == BIG
    assert len(list(large.rglob("*.json"))) == 1


async def test_large_values_stay_in_the_store_on_a_blocking_connection(file: Path, large: Path) -> None:
    async with opened(file) as (_, pool):
        with closing(sqlite3.connect(file)) as connection, connection:
            job_id = pool.push_on(connection, BIG)
            with pytest.raises(InvalidInput, match="payload"):
                pool.push_on(connection, "x" * 2_000_000)
        job = await pool.claim()
        assert job is not None
        with closing(sqlite3.connect(file)) as connection, connection:
            with pytest.raises(InvalidInput, match="result"):
                pool.complete_on(connection, job, "x" * 2_000_000)
            pool.complete_on(connection, job, BIG.upper())

        assert await pool.result(job_id) == BIG.upper()
    assert list(large.rglob("*.json")) == []


@pytest.mark.parametrize("commit", [True, False])
async def test_hooks_see_whether_the_transaction_of_a_handler_was_committed(file: Path, commit: bool) -> None:
    stamp = Stamp()
    async with opened(file, stamp) as (db, pool):
        job_id = await pool.push(1, max_attempts=2)
        stamp.seen.clear()

        def work(context: drumbeat.JobContext) -> str:
            with closing(sqlite3.connect(file)) as connection:
                context.complete_on(connection)
                if commit:
                    connection.commit()
            return "ignored"

        await db.work("papers", work, mode="once")

        status = (await pool.job(job_id)).status
    if commit:
        assert (stamp.seen, status) == ([f"after_attempt {AttemptOutcome.DONE}"], JobStatus.DONE)
    else:
        assert (stamp.seen, status) == (["on_retry", f"after_attempt {AttemptOutcome.FAILED}"], JobStatus.PENDING)
