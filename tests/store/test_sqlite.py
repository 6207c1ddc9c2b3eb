"""SQLite keeps the store's promises, and some of its own."""

import asyncio
import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.errors import StoreCorrupt, StoreNotReady, StoreTooNew, StoreUnavailable
from drumbeat.core.event import NewEvent
from drumbeat.core.job import AttemptOutcome, JobOutcome, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store import Store, open_store
from drumbeat.store.contract import Elapse, PoolContract, StoreContract
from drumbeat.store.contract.job_steps import JobStepsContract
from drumbeat.store.contract.workflows import WorkflowContract
from drumbeat.store.interface import ClaimRequest
from drumbeat.store.sql.sqlite_notify import SqliteNotify
from store.timeshift import shift_statements


@pytest.fixture
def database_file(tmp_path: Path) -> Path:
    return tmp_path / "drumbeat.db"


@pytest.fixture
def url(database_file: Path) -> str:
    return f"sqlite:///{database_file}"


@pytest.fixture(scope="module")
async def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with tables and no rows."""
    file = tmp_path_factory.mktemp("empty") / "drumbeat.db"
    async with open_store(f"sqlite:///{file}", create=True):
        pass
    return file


@pytest.fixture
async def store(url: str, empty: Path, database_file: Path) -> AsyncIterator[Store]:
    shutil.copy(empty, database_file)
    async with open_store(f"{url}?synchronous=normal") as store:
        yield store


@pytest.fixture
def elapse(database_file: Path, store: Store) -> Elapse:
    async def pass_time(passed: timedelta) -> None:
        connection = sqlite3.connect(database_file, timeout=10)
        with connection:
            for statement in shift_statements(passed):
                connection.execute(statement)
        connection.close()

    return pass_time


class TestSqliteStore(StoreContract):
    """Every promise, in a file of its own."""


class TestSqlitePool(PoolContract):
    """Every promise about jobs."""


class TestSqliteWorkflows(WorkflowContract):
    """Every promise about jobs that wait for other jobs."""


class TestSqliteJobSteps(JobStepsContract):
    """Every promise about the steps of jobs."""


async def test_a_refused_write_leaves_its_neighbours_in_the_same_commit_alone(url: str) -> None:
    async with open_store(url, create=True) as store:
        made = await asyncio.gather(
            *(store.pools.create(pool(f"p{n % 5}", PoolKind.FLEET)) for n in range(10)), return_exceptions=True
        )

        assert sorted(each.pool_id for each in await store.pools.list()) == ["p0", "p1", "p2", "p3", "p4"]
        assert sum(isinstance(each, Exception) for each in made) == 5


async def test_a_store_locked_by_another_process_is_waited_for(url: str, database_file: Path) -> None:
    async with open_store(url, create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
        other = sqlite3.connect(database_file, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.3, other.execute, ("COMMIT",)).start()

        appended = await store.events.append(PoolId("p"), [NewEvent(type="X")])

        assert [event.sequence_id for event in appended] == [1]
        other.close()


async def test_a_store_locked_for_too_long_is_unavailable_and_recovers(url: str, database_file: Path) -> None:
    async with open_store(f"{url}?busy_timeout=0.1", create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
        other = sqlite3.connect(database_file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreUnavailable, match=r"locked by another connection .*of your own, push in it with push_on"):
            await store.events.append(PoolId("p"), [NewEvent(type="X")])
        other.execute("COMMIT")
        other.close()

        assert (await store.events.append(PoolId("p"), [NewEvent(type="X")]))[0].sequence_id == 1


async def test_a_missing_file_is_not_made_unless_asked(url: str, database_file: Path) -> None:
    with pytest.raises(StoreUnavailable, match="drumbeat store init"):
        async with open_store(url):
            pass
    assert not database_file.exists()


async def test_a_file_that_is_no_database_is_left_as_it_is(url: str, database_file: Path) -> None:
    database_file.write_bytes(b"this is a poem, not a database, and long enough to be looked at" * 100)
    before = database_file.read_bytes()

    with pytest.raises(StoreCorrupt, match="expected a SQLite database"):
        async with open_store(url, create=True):
            pass
    assert database_file.read_bytes() == before


async def test_a_database_of_somebody_else_needs_init_first(url: str, database_file: Path) -> None:
    connection = sqlite3.connect(database_file)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()

    with pytest.raises(StoreNotReady, match="drumbeat store init"):
        async with open_store(url):
            pass


async def test_a_store_from_a_newer_version_is_refused(url: str, database_file: Path) -> None:
    async with open_store(url, create=True):
        pass
    connection = sqlite3.connect(database_file)
    with connection:
        connection.execute("INSERT INTO schema_version VALUES (99, 0)")
    connection.close()

    with pytest.raises(StoreTooNew, match="upgrade Drumbeat"):
        async with open_store(url, create=True):
            pass


async def test_a_full_disk_is_said_and_nothing_is_half_written(url: str, database_file: Path) -> None:
    async with open_store(url, create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
        await store.database._writer.submit(lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchall())  # type: ignore[attr-defined]

        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await store.events.append(PoolId("p"), [NewEvent(type="X", payload={"big": "x" * 1000}) for _ in range(2000)])

        assert await store.events.read(PoolId("p"), 0) == []


async def test_a_bell_leaves_alone_what_it_cannot_ring(tmp_path: Path) -> None:
    folder = tmp_path / "jobs.db-wake"
    (folder / "no-pipe").mkdir(parents=True)
    os.mkfifo(folder / "nobody-reads")

    await SqliteNotify(tmp_path / "jobs.db").notify(PoolId("p"))

    assert [each.name for each in folder.iterdir()] == ["no-pipe"]


async def test_a_file_gives_the_space_of_pruned_rows_back_a_little_at_a_time(url: str, database_file: Path) -> None:
    async with open_store(f"{url}?synchronous=normal", create=True) as store:
        home = await store.pools.create(pool("p", PoolKind.JOBS))
        assert not await store.upkeep.give_back()
        me = Holder(pool_id=home.pool_id, worker_id=WorkerId("w"))
        await store.queue.push(home.pool_id, [NewJob(payload="x" * 1_000_000) for _ in range(12)])
        jobs = await store.queue.claim(ClaimRequest(pool_id=home.pool_id, holder=me, lease=timedelta(minutes=1), limit=12))
        await store.queue.settle(me, [JobOutcome(token=job.token, outcome=AttemptOutcome.DONE) for job in jobs])
        await store.jobs.prune(timedelta(microseconds=-1))
        steps = 0
        while await store.upkeep.give_back():
            steps += 1
    size = database_file.stat().st_size

    assert steps > 5
    assert size < 6_000_000
    async with open_store(url) as store:
        assert (await store.upkeep.check()).problems == []


async def test_a_file_that_is_deleted_or_replaced_while_it_is_open_is_not_used_any_more(url: str, database_file: Path) -> None:
    async with open_store(url, create=True) as store:
        home = await store.pools.create(pool("p", PoolKind.JOBS))
        aside = database_file.with_name("aside.db")
        database_file.rename(aside)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="was deleted or replaced while it was open"):
                await store.queue.push(home.pool_id, [NewJob(payload=1)])
            with pytest.raises(StoreUnavailable, match="was deleted or replaced while it was open"):
                await store.pools.get(home.pool_id)
            shutil.copy(aside, database_file)

        aside.rename(database_file)
        await store.queue.push(home.pool_id, [NewJob(payload=2)])
        assert [job.payload for job in await store.jobs.list(home.pool_id)] == [2]
