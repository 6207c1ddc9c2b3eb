"""A store is copied whole, between SQLite and PostgreSQL in both directions, whatever interrupts the copy."""

import asyncio
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import InvalidInput, InvalidSettings, Refused, StoreNotReady, StoreUnavailable
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId
from drumbeat.runtime.store_id import find_store_id
from drumbeat.store import open_store
from drumbeat.store.contract.given import W1, joined, taken
from drumbeat.store.contract.given_jobs import claimed, holder, pushed, verdict
from drumbeat.store.copy import copy_store
from drumbeat.store.interface import CopyOptions, CopyReport
from drumbeat.store.sql import copying
from drumbeat.store.sql.checksum import Checksum, canonical_json
from drumbeat.store.sql.queries import json_columns, migration_texts
from drumbeat.store.sql.upkeep import TABLES
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer
from store.copied import Silent, as_copied, dump, furnished, sql_of

LIVE = CopyOptions(live=True)
DIRECTIONS = ["sqlite-postgres", "postgres-sqlite"]

#: Copies again and again, each time in a process that is killed (-9) a moment later than the last: before a transaction
#: commits or after it, or (``random``) after some milliseconds. Ends when a copy ends by itself; prints how many were killed.
KILLED = """
import asyncio, os, random, signal, sys, time
from drumbeat.core.errors import Refused
from drumbeat.store.copy import copy_store
from drumbeat.store.interface import CopyOptions
from drumbeat.store.sql import copying, postgres, sqlite
from store.copied import Silent

source, target, way = sys.argv[1:]
copying.CHUNK_ROWS = 5
moments = 0

def reach(moment):
    global moments
    moments += 1
    if moments > moment:
        os.kill(os.getpid(), signal.SIGKILL)

def deadly(transact, moment):
    def dying(script):
        result = yield from script
        reach(moment)
        return result
    async def run(self, script):
        result = await transact(self, dying(script))
        reach(moment)
        return result
    return run

def copy(moment):
    for kind in (sqlite.SqliteDatabase, postgres.PostgresDatabase):
        kind.transact = deadly(kind.transact, moment)
    try:
        report = asyncio.run(copy_store(source, target, CopyOptions(live=True), Silent()))
    except Refused:  # the last one had finished, and was killed before it ended
        report = asyncio.run(copy_store(source, target, CopyOptions(verify_only=True), Silent()))
    os._exit(1 if report.different else 0)

kills = 0
while True:
    child = os.fork()
    if child == 0:
        try:
            copy(min(kills, 12) if way == "moments" else 10**9)
        finally:
            os._exit(3)
    if way == "random":
        time.sleep(random.uniform(0.01, 0.05 * (kills + 2)))
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != -signal.SIGKILL:
        print(kills, status)
        sys.exit(status)
    kills += 1
"""


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/drumbeat.db"


@dataclass(frozen=True, slots=True)
class Originals:
    """Furnished stores, one of each kind, that are copied for each test."""

    file: Path
    database: str


@pytest.fixture(scope="module")
async def originals(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Originals:
    file = tmp_path_factory.mktemp("originals") / "drumbeat.db"
    made = Originals(file, await furnished(postgres.new_database()))
    await furnished(f"sqlite:///{file}")
    return made


@pytest.fixture(params=DIRECTIONS)
def urls(request: pytest.FixtureRequest, sqlite_url: str, postgres_url: str) -> tuple[str, str]:
    """Where to copy from, and where to; there is nothing yet."""
    return (sqlite_url, postgres_url) if request.param == "sqlite-postgres" else (postgres_url, sqlite_url)


@pytest.fixture
def full_sqlite(tmp_path: Path, originals: Originals) -> str:
    return f"sqlite:///{shutil.copy(originals.file, tmp_path / 'full.db')}"


@pytest.fixture
def full_postgres(postgres: PostgresServer, originals: Originals) -> Iterator[str]:
    url = postgres.new_database(template=originals.database.rpartition("/")[2])
    yield url
    postgres.drop_database(url)


@pytest.fixture(params=DIRECTIONS)
def full(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Where to copy from, with something in every table, and where to."""
    source, target = request.param.split("-")
    return request.getfixturevalue(f"full_{source}"), request.getfixturevalue(f"{target}_url")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "CHUNK_ROWS", 4)


class Interrupted(Exception):
    pass


async def copied(source: str, target: str, options: CopyOptions = LIVE, on_progress: Any = None) -> CopyReport:
    return await copy_store(source, target, options, Silent(on_progress))


async def interrupted(source: str, target: str, after: int) -> None:
    """Copy until so many rows are there."""

    def interrupt(verb: str, rows: int) -> None:
        if verb == "copied" and rows >= after:
            raise Interrupted

    with pytest.raises(Interrupted):
        await copied(source, target, on_progress=interrupt)


def elsewhere(work: Coroutine[Any, Any, Any]) -> None:
    """Do something to its end while this thread's loop stands still."""
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    thread.join()


async def changed(url: str, *statements: str) -> None:
    sql = await sql_of(url)
    for statement in statements:
        await sql.run(statement)
    await sql.close()


async def test_every_table_is_copied_with_every_row_and_value(full: tuple[str, str]) -> None:
    source, target = full

    report = await copied(source, target)

    expected = as_copied(await dump(source))
    assert {name for name, rows in expected.items() if not rows} == set(), "a table without rows proves nothing: furnish it"
    assert {table.table: table.rows for table in report.tables} == {name: len(rows) for name, rows in expected.items()}
    assert await dump(target) == expected
    assert (report.different, report.changed, report.kept_rows, report.restarted) == ([], False, 0, ())


async def test_a_store_copied_there_and_back_is_the_first_again(
    tmp_path: Path, full_sqlite: str, new_database: Callable[[], str]
) -> None:
    path = [full_sqlite, new_database(), new_database(), f"sqlite:///{tmp_path}/back.db", f"sqlite:///{tmp_path}/again.db"]

    for source, target in pairwise(path):
        await copied(source, target)

    assert await dump(path[-1]) == as_copied(await dump(full_sqlite))
    same = await copied(full_sqlite, path[-1], CopyOptions(verify_only=True))
    assert same.different == []


async def test_equal_worker_ids_of_three_pools_stay_apart(urls: tuple[str, str]) -> None:
    source, target = urls
    async with open_store(source, create=True) as store:
        for name in ("a", "b", "c"):
            await joined(store, await store.pools.create(pool(name, PoolKind.FLEET, of=name)), WorkerId("worker-0"))

    await copied(source, target)

    async with open_store(target) as store:
        assert [(each.pool_id, each.policy["of"]) for each in await store.pools.list()] == [("a", "a"), ("b", "b"), ("c", "c")]
        for name in ("a", "b", "c"):
            [worker] = await store.workers.list(PoolId(name))
            assert (worker.pool_id, worker.worker_id, worker.host) == (name, "worker-0", "host-1")


async def test_a_copied_store_works(full: tuple[str, str]) -> None:
    """Jobs held in the source are taken back, controllers take their leases, and new jobs get numbers of their own."""
    source, target = full
    await copied(source, target)

    async with open_store(source) as first, open_store(target) as store:
        home = await store.pools.get(PoolId("a"))
        old = {job.job_id: job for job in await first.jobs.list(home.pool_id, limit=100)}
        assert old.keys() == {job.job_id for job in await store.jobs.list(home.pool_id, limit=100)}
        assert [run.run_id for run in await store.runs.list()] == ["r1"]
        assert await store.runs.get((await first.runs.list())[0].run_id) == (await first.runs.list())[0]
        lease, epoch = await taken(store, "a", "new controller"), (await first.leases.find("a"))
        assert epoch is not None
        assert lease.epoch == epoch.epoch + 1
        assert await store.leases.acquire("webhook/t/1", "server", timedelta(hours=1)) is None
        assert len(await store.queue.expire(100)) == 3 + 1  # one of each pool, one of the run
        assert JobStatus.CLAIMED not in {job.status for job in await store.jobs.list(home.pool_id, limit=100)}
        [new] = await pushed(store, home, "new", priority=99)
        assert new not in old
        job = await claimed(store, home)
        assert (job.job_id, job.payload) == (new, "new")
        await store.queue.settle(holder(home), [verdict(job)])
        before, after = await first.jobs.counts(home.pool_id), await store.jobs.counts(home.pool_id)
        assert after.done == before.done + 1


async def test_a_copy_has_a_store_id_of_its_own(urls: tuple[str, str]) -> None:
    """Else the engines would take the workers of one store for those of the other, and end them."""
    source, target = urls
    async with open_store(source, create=True) as store:
        first = await find_store_id(store)
    assert not (await copy_store(source, target, LIVE, Silent())).different

    async with open_store(source) as store, open_store(target) as copy:
        assert await find_store_id(store) == first
        second = await find_store_id(copy)
        assert (await find_store_id(copy), second.value == first.value) == (second, False)


async def test_the_number_of_a_pruned_job_is_not_used_again(urls: tuple[str, str]) -> None:
    source, target = urls
    async with open_store(source, create=True) as store:
        home = await store.pools.create(pool("p", PoolKind.JOBS))
        old = await pushed(store, home, *range(5))
        await store.queue.settle(holder(home), [verdict(await claimed(store, home))])
    await changed(source, f"DELETE FROM {'drumbeat.' if source.startswith('postgres') else ''}jobs")

    await copied(source, target)

    async with open_store(target) as store:
        [new] = await pushed(store, home, "new")
        assert new > max(old)


async def test_a_store_that_never_had_a_job_numbers_its_first_one(urls: tuple[str, str]) -> None:
    source, target = urls
    async with open_store(source, create=True) as store:
        home = await store.pools.create(pool("p", PoolKind.JOBS))

    await copied(source, target)

    async with open_store(target) as store:
        [first] = await pushed(store, home, "new")
        assert (first == "j000000000001") is target.startswith("postgres")


@pytest.mark.parametrize(
    ("full", "way"), [(DIRECTIONS[0], "moments"), (DIRECTIONS[1], "random")], indirect=["full"], ids=["moments", "random"]
)
async def test_a_copy_killed_at_any_moment_is_continued(full: tuple[str, str], way: str) -> None:
    source, target = full

    command = [sys.executable, "-c", KILLED, source, target, way]
    environment = {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    kills, _ = map(int, done.stdout.split())
    assert kills >= (20 if way == "moments" else 1)
    assert await dump(target) == as_copied(await dump(source))
    async with open_store(target) as store:
        assert (await store.upkeep.check()).problems == []


@pytest.mark.usefixtures("small_chunks")
async def test_an_interrupted_copy_goes_on_where_it_stopped(full: tuple[str, str]) -> None:
    source, target = full
    await interrupted(source, target, 30)
    written = list[int]()
    observer = Silent(lambda verb, rows: written.append(rows) if verb == "copied" else None)

    report = await copy_store(source, target, LIVE, observer)

    whole = sum(table.rows for table in report.tables)
    assert 30 <= report.kept_rows < whole
    assert observer.lines == [f"continuing an interrupted copy: {report.kept_rows} rows are in the target already"]
    assert 0 < len(written) <= (whole - report.kept_rows) // 4 + len(report.tables)
    assert await dump(target) == as_copied(await dump(source))


CHANGES = [
    "UPDATE workers SET host = 'elsewhere' WHERE pool_id = 'a' AND worker_id = 'w1'",
    "UPDATE workers SET pool_id = ' first' WHERE pool_id = 'b c'",
    "DELETE FROM workers WHERE pool_id <> 'a'",
    "DELETE FROM workers",
]


@pytest.mark.usefixtures("small_chunks")
async def test_a_table_that_changed_since_the_interruption_is_copied_again(full: tuple[str, str]) -> None:
    await _copies_again(*full, CHANGES[0])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("change", CHANGES)
async def test_whatever_changed_since_the_interruption_is_seen(full_sqlite: str, sqlite_url: str, change: str) -> None:
    await _copies_again(full_sqlite, sqlite_url, change)


async def _copies_again(source: str, target: str, change: str) -> None:
    await interrupted(source, target, 30)
    await changed(source, change)
    observer = Silent()

    report = await copy_store(source, target, LIVE, observer)

    assert report.restarted == ("workers",)
    assert observer.lines[1:] == ["the source has changed since the interrupted copy: copying its table workers again"]
    assert await dump(target) == as_copied(await dump(source))


@pytest.mark.usefixtures("small_chunks")
async def test_rows_added_since_the_interruption_are_copied_too(full: tuple[str, str]) -> None:
    source, target = full
    await interrupted(source, target, 80)
    async with open_store(source) as store:
        await pushed(store, await store.pools.get(PoolId("a")), *range(9))

    assert (await copied(source, target)).restarted == ()
    assert await dump(target) == as_copied(await dump(source))


@pytest.mark.usefixtures("small_chunks")
async def test_what_changes_while_it_is_copied_is_not_in_the_copy(full: tuple[str, str]) -> None:
    source, target = full
    before, changes = as_copied(await dump(source)), [True]

    def change(verb: str, rows: int) -> None:
        if verb == "copied" and changes and changes.pop():
            elsewhere(_change_all(source))

    report = await copied(source, target, on_progress=change)

    assert (report.changed, report.different) == (True, [])
    assert await dump(target) == before
    assert (await copied(source, target, CopyOptions(verify_only=True))).different == ["workers", "events", "jobs", "notes"]


async def _change_all(url: str) -> None:
    async with open_store(url) as store:
        home = await store.pools.get(PoolId("a"))
        await pushed(store, home, "new")
        await store.notes.put("prices", {"new": 1})
    await changed(url, "DELETE FROM events", "UPDATE workers SET host = 'elsewhere'")


async def test_a_store_that_holds_anything_is_not_copied_to(full: tuple[str, str]) -> None:
    source, target = full
    async with open_store(target, create=True) as store:
        await store.notes.put("mine", {})
    before = await dump(target)

    with pytest.raises(
        Refused, match=r"expected an empty store at .*, found rows in its table notes; copy to an empty database"
    ):
        await copied(source, target)

    assert await dump(target) == before
    async with open_store(target) as store:
        assert (await store.upkeep.check()).problems == []


async def test_an_empty_store_is_copied_to(sqlite_url: str, postgres_url: str) -> None:
    source, target = sqlite_url, postgres_url
    for url in (source, target):
        async with open_store(url, create=True):
            pass

    assert (await copied(source, target)).different == []


@pytest.mark.usefixtures("small_chunks")
async def test_an_unfinished_copy_is_used_by_nothing_and_by_no_other_copy(tmp_path: Path, full: tuple[str, str]) -> None:
    source, target = full
    other = f"sqlite:///{tmp_path}/other.db"
    async with open_store(other, create=True):
        pass
    await interrupted(source, target, 30)

    with pytest.raises(StoreNotReady, match="holds an unfinished copy of another store; finish it with the same command"):
        async with open_store(target, create=True):
            pass
    async with open_store(target, check_version=False) as store:
        with pytest.raises(StoreNotReady, match="unfinished copy"):
            await store.upkeep.migrate()
        assert "a copy into this store is unfinished" in (await store.upkeep.check()).problems[0]
    with pytest.raises(Refused, match=f"found an unfinished copy of {source.partition(':')[0]}:.*; finish that copy"):
        await copied(other, target)
    with pytest.raises(StoreNotReady, match="unfinished copy"):
        await copied(target, other)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("is_whole", [True, False])
async def test_of_two_copies_at_once_the_later_goes_on_and_the_earlier_ends(
    full_sqlite: str, postgres_url: str, is_whole: bool
) -> None:
    """The later one ends whole, or is interrupted itself and leaves an unfinished copy."""
    source, target = full_sqlite, postgres_url
    later = [copied(source, target) if is_whole else interrupted(source, target, 50)]

    def overtake(verb: str, rows: int) -> None:
        if rows >= 30 and later:
            elsewhere(later.pop())

    with pytest.raises(Refused, match="another process has continued this copy"):
        await copied(source, target, on_progress=overtake)

    assert (await copied(source, target, CopyOptions(verify_only=is_whole, live=True))).different == []
    assert await dump(target) == as_copied(await dump(source))


async def test_a_store_in_use_is_copied_only_if_asked_to(urls: tuple[str, str]) -> None:
    source, target = urls
    async with open_store(source, create=True) as store:
        home = await store.pools.create(pool("p", PoolKind.FLEET))
        await joined(store, home, W1)
        with pytest.raises(Refused, match=r"is in use by 1 worker \(p/w1\); .* --live"):
            await copied(source, target, CopyOptions())
        await taken(store, "p")
        with pytest.raises(Refused, match=r"is in use by 1 worker \(p/w1\) and 1 controller \(p\)"):
            await copied(source, target, CopyOptions())
        assert (await copied(source, target)).different == []
    assert [worker["worker_id"] for worker in (await dump(target))["workers"]] == ["w1"]


async def test_a_store_whose_workers_are_dead_is_not_in_use(sqlite_url: str, tmp_path: Path) -> None:
    source, target = sqlite_url, f"sqlite:///{tmp_path}/copy.db"
    async with open_store(source, create=True) as store:
        home = await store.pools.create(pool("p", PoolKind.FLEET))
        await joined(store, home, W1)
        await taken(store, "webhook/x")
    await changed(source, "UPDATE workers SET heartbeat_at = heartbeat_at - 600000000")

    assert (await copied(source, target, CopyOptions())).different == []


async def test_a_copy_that_differs_in_anything_is_told(full: tuple[str, str]) -> None:
    source, target = full
    await copied(source, target)
    differences = {
        "samples": "UPDATE samples SET p50_ms = p50_ms * 1.0000001 WHERE n = 1",
        "runs": 'UPDATE runs SET config = \'{"table_name": "order"}\'',
        "logs": "DELETE FROM logs WHERE log_id = 2",
        "jobs": "UPDATE jobs SET priority = priority + 1 WHERE seq = (SELECT MAX(seq) FROM jobs)",
        "notes": "INSERT INTO notes (name, value, updated_at) VALUES ('x', '{}', 0)",
    }

    for n, change in enumerate(differences.values(), start=1):
        await changed(target, change)
        found = (await copied(source, target, CopyOptions(verify_only=True))).different
        assert sorted(found) == sorted([*differences][:n])


async def test_a_copy_that_was_changed_before_it_was_verified_stays_unfinished_and_is_repaired(
    full: tuple[str, str],
) -> None:
    source, target = full
    spoiled = [True]

    def spoil(verb: str, rows: int) -> None:
        if rows >= 80 and spoiled and spoiled.pop():
            elsewhere(changed(target, "UPDATE pools SET next_log = 77"))

    assert (await copied(source, target, on_progress=spoil)).different == ["pools"]
    with pytest.raises(StoreNotReady, match="unfinished copy"):
        async with open_store(target):
            pass
    assert ((await copied(source, target)).restarted, await dump(target)) == (("pools",), as_copied(await dump(source)))


async def test_a_row_postgresql_cannot_keep_is_named_and_once_it_is_changed_the_copy_goes_on(
    full_sqlite: str, postgres_url: str
) -> None:
    worker = "WHERE worker_id = 'w2' AND pool_id = 'a'"
    rows = [
        (f"UPDATE workers SET slot = 3000000000 {worker}", f"UPDATE workers SET slot = 1 {worker}"),
        (f"UPDATE workers SET slot = 'none' {worker}", f"UPDATE workers SET slot = 1 {worker}"),
        (
            "UPDATE events SET payload = '{broken' WHERE sequence_id = 3",
            "UPDATE events SET payload = '{}' WHERE sequence_id = 3",
        ),
        ("UPDATE logs SET message = 'a' || char(0) WHERE log_id = 2", "UPDATE logs SET message = 'a' WHERE log_id = 2"),
    ]
    named = ["workers with pool_id 'a', worker_id 'w2'", "workers with pool_id 'a', worker_id 'w2'"]
    named += ["events with pool_id 'r1', sequence_id 3", "logs with pool_id 'r1', log_id 2"]

    for (spoil, mend), row in zip(rows, named, strict=True):
        await changed(full_sqlite, spoil)
        with pytest.raises(
            InvalidInput, match=f"(?s)cannot copy the row of table {row}: .*; change or delete this row in the source"
        ):
            await copied(full_sqlite, postgres_url)
        await changed(full_sqlite, mend)

    assert (await copied(full_sqlite, postgres_url)).kept_rows > 0
    assert await dump(postgres_url) == as_copied(await dump(full_sqlite))


async def test_a_store_is_copied_through_a_connection_pooler(
    full_sqlite: str, postgres_url: str, pgbouncer: PgBouncer, tmp_path: Path
) -> None:
    await copied(full_sqlite, pgbouncer.url(postgres_url))
    await copied(pgbouncer.url(postgres_url), f"sqlite:///{tmp_path}/back.db")

    assert await dump(f"sqlite:///{tmp_path}/back.db") == as_copied(await dump(full_sqlite))


async def test_a_schema_of_another_name_is_copied_to(full_sqlite: str, postgres_url: str, tmp_path: Path) -> None:
    await copied(full_sqlite, f"{postgres_url}?schema=other")
    await copied(f"{postgres_url}?schema=other", f"sqlite:///{tmp_path}/back.db")

    assert await dump(f"sqlite:///{tmp_path}/back.db") == as_copied(await dump(full_sqlite))


@pytest.mark.parametrize(
    ("source", "target", "error", "said"),
    [
        (
            "redis://u:secret@h",
            "sqlite:///x.db",
            InvalidInput,
            "a SQLite, PostgreSQL or Snowflake store, got a Redis store",
        ),
        ("sqlite:///x.db", "memory:", InvalidInput, "got a memory store"),
        ("sqlite:///x.db", "x.db", InvalidSettings, "expected sqlite:///FILE, postgresql://"),
        ("sqlite:///none.db", "sqlite:///x.db", StoreUnavailable, "there is no store at none.db"),
        ("sqlite:///x.db", "sqlite:///x.db", Refused, "expected two stores, got sqlite:///x.db twice"),
        ("postgresql://u:secret@127.0.0.1:1/db", "sqlite:///y.db", StoreUnavailable, "127.0.0.1:1"),
        ("sqlite:///x.db", "postgresql://u:secret@127.0.0.1:1/db", StoreUnavailable, "127.0.0.1:1"),
    ],
)
async def test_a_wrong_url_is_said_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str, error: type[Exception], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///x.db", create=True):
        pass

    with pytest.raises(error, match=said) as caught:
        await copied(source, target)

    assert "secret" not in str(caught.value)
    assert not (tmp_path / "y.db").exists()


async def test_stores_of_another_version_are_refused(tmp_path: Path, sqlite_url: str) -> None:
    old = f"sqlite:///{tmp_path}/old.db"
    for url in (sqlite_url, old):
        async with open_store(url, create=True):
            pass
    await changed(old, "DELETE FROM schema_version WHERE version = (SELECT MAX(version) FROM schema_version)")

    for source, target in ((old, sqlite_url), (sqlite_url, old)):
        with pytest.raises(StoreNotReady, match="run: drumbeat store migrate"):
            await copied(source, target)
    await changed(old, "CREATE TABLE unfinished_copy (source, runner, rows_copied)")
    with pytest.raises(StoreNotReady, match="unfinished copy of schema version"):
        await copied(sqlite_url, old)
    with pytest.raises(StoreUnavailable, match="there is no store at"):
        await copied(sqlite_url, f"sqlite:///{tmp_path}/none.db", CopyOptions(verify_only=True))


async def test_tables_of_other_columns_are_refused(tmp_path: Path, sqlite_url: str) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    for url in (sqlite_url, other):
        async with open_store(url, create=True):
            pass
    await changed(other, "ALTER TABLE notes ADD COLUMN mine TEXT")

    with pytest.raises(Exception, match="expected the same columns of table notes in both stores"):
        await copied(sqlite_url, other)


async def test_the_tables_and_json_columns_are_those_that_the_migrations_create(full_postgres: str) -> None:
    sql = await sql_of(full_postgres)
    rows = await sql.rows(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE data_type = 'jsonb' AND table_schema = 'drumbeat' AND table_name IN (SELECT tablename FROM pg_tables)"
    )
    await sql.close()

    assert sorted(json_columns()) == sorted(TABLES)
    assert {(table, column) for table, columns in json_columns().items() for column in columns} == {
        (row["table_name"], row["column_name"]) for row in rows
    }


async def test_somebody_elses_tables_in_the_same_file_are_left_alone(full_sqlite: str, tmp_path: Path) -> None:
    await changed(full_sqlite, "CREATE TABLE theirs (x)", "INSERT INTO theirs VALUES (1)")

    await copied(full_sqlite, f"sqlite:///{tmp_path}/copy.db")

    connection = sqlite3.connect(tmp_path / "copy.db")
    assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'theirs'").fetchall() == []
    connection.close()


def test_jobs_are_the_only_rows_that_postgresql_numbers() -> None:
    """Another table with numbers of its own would need them set after a copy, as ``set_last_number`` does for jobs."""
    assert re.findall(r"(\w+)\s+@numbered", "".join(migration_texts().values())) == ["seq"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":[]}', '{"b": [], "a": 1}'),
        ("1e2", "100"),
        ("1e16", "10000000000000000"),
        ("-0.0", "0"),
        ("0.10", "1e-1"),
        ("1.50", "1.5"),
        ('"\\u00fc"', '"ü"'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ("{broken", "{broken"),
    ],
)
def test_json_of_the_same_value_is_the_same(one: str, other: str) -> None:
    assert canonical_json(one) == canonical_json(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "2"),
        ("1.5", "15"),
        ("1", '"1"'),
        ("1.5", '"15e-1"'),
        ("-1.5", "1.5"),
        ("1152921504606846977", "1152921504606846976"),
        ("[]", "{}"),
    ],
)
def test_json_of_another_value_differs(one: str, other: str) -> None:
    assert canonical_json(one) != canonical_json(other)


def test_a_checksum_depends_on_the_rows_and_not_on_their_order() -> None:
    def of(*rows: tuple[Any, ...]) -> Checksum:
        checksum = Checksum()
        for row in rows:
            checksum.add(row, ())
        return checksum

    assert of((1, "a"), (2, "b")) == of((2, "b"), (1, "a"))
    others: list[list[tuple[Any, ...]]] = [[], [(1,)], [("1",)], [(1,), (1,)], [(1.5,)], [(b"1",)], [(None,)]]
    assert len({str(of(*rows)) for rows in others}) == 7
