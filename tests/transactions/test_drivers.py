"""Jobs that are pushed and completed in a transaction of the caller, with every driver on real databases."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import drumbeat
from drumbeat.core.errors import InvalidInput, NotFound, StaleWrite, StoreNotReady
from drumbeat.core.job import JobStatus
from transactions.drivers import POSTGRES, SQLITE, Opened, done
from transactions.place import WRITE, Place


@pytest.fixture(scope="module", autouse=True)
def django_in_an_event_loop() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        yield


@pytest.fixture(params=[*POSTGRES, *SQLITE])
async def opened(request: pytest.FixtureRequest, in_postgres: Place, in_sqlite: Place) -> AsyncIterator[tuple[Place, Opened]]:
    name: str = request.param
    place = in_postgres if name in POSTGRES else in_sqlite
    async with {**POSTGRES, **SQLITE}[name](place.url) as connection:
        yield place, connection


async def test_a_push_and_a_write_of_the_caller_are_committed_together(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = await place.pool()

    await caller.work(WRITE)
    job_id = await done(pool.push_on(caller.given, {"path": "ä%s'\"", "n": 2**40}, priority=2))
    before = await pool.size()
    await caller.end(commit=True)

    job = await pool.job(job_id)
    assert (before, await pool.size(), await place.effects()) == (0, 1, 1)
    assert (job.payload, job.priority) == ({"path": "ä%s'\"", "n": 2**40}, 2)


@pytest.mark.parametrize("opened", list(POSTGRES), indirect=True)
async def test_a_database_without_the_stores_tables_is_named(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = drumbeat.connect(f"{place.url}?schema=not_made_yet").pool("papers")

    await caller.work(WRITE)
    with pytest.raises(StoreNotReady, match="run: drumbeat store init"):
        await done(pool.push_on(caller.given, 1))


def test_a_file_without_the_stores_tables_is_named(tmp_path: Path) -> None:
    pool = drumbeat.connect(f"sqlite:///{tmp_path}/own.db").pool("papers")
    with closing(sqlite3.connect(tmp_path / "own.db", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        with pytest.raises(StoreNotReady, match="run: drumbeat store init"):
            pool.push_on(connection, 1)


async def test_a_push_is_gone_if_the_caller_rolls_back(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = await place.pool()

    await caller.work(WRITE)
    job_id = await done(pool.push_on(caller.given, 1))
    await caller.end(commit=False)

    with pytest.raises(NotFound):
        await pool.job(job_id)
    assert await place.effects() == 0


@pytest.mark.parametrize("opened", [each for each in [*POSTGRES, *SQLITE] if "sqlalchemy" in each], indirect=True)
async def test_a_push_that_is_the_only_statement_of_its_transaction_is_committed(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = await place.pool()

    await done(caller.begin())
    await done(pool.push_on(caller.given, 1))
    await caller.end(commit=True)

    assert await pool.size() == 1


@pytest.mark.parametrize("opened", ["asyncpg", "psycopg", "psycopg-async", "sqlite3", "aiosqlite"], indirect=True)
async def test_a_push_has_every_option_of_an_ordinary_push(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = await place.pool()
    options: dict[str, Any] = {"type": "mail", "group": "g", "group_limit": 1, "delay": 3600, "timeout": 5, "max_attempts": 7}
    held = await pool.push(0, unique_key="k")

    await done(caller.begin())
    first = await done(pool.push_on(caller.given, 1, unique_key="k"))
    named = await done(pool.push_on(caller.given, 2, job_id=f"own-{pool.pool_id}", **options))
    again = await done(pool.push_on(caller.given, 3, job_id=f"own-{pool.pool_id}"))
    await caller.end(commit=True)

    job = await pool.job(named)
    assert (first, again, named) == (held, named, f"own-{pool.pool_id}")
    assert (job.type, job.group, job.group_limit, job.max_attempts) == ("mail", "g", 1, 7)
    assert job.not_before is not None
    assert (await pool.status()).counts.delayed == 1


async def test_nothing_is_pushed_after_a_job_that_does_not_exist(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = await place.pool()
    parent = await pool.push(0, job_id=f"parent-of-{pool.pool_id}")

    await caller.work(WRITE)
    for gone in ("gone", "j999999999999"):
        with pytest.raises(NotFound, match=f"there is no job '{gone}' to wait for"):
            await done(pool.push_on(caller.given, 1, after=[parent, gone]))
    child = await done(pool.push_on(caller.given, 2, after=[parent]))
    await caller.end(commit=True)

    assert ([job.job_id for job in await pool.list()], await place.effects()) == ([parent, child], 1)


@pytest.mark.parametrize("opened", ["asyncpg", "psycopg", "sqlite3"], indirect=True)
async def test_a_push_again_finds_its_job_although_the_job_to_wait_for_is_gone(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = await place.pool()
    names: list[dict[str, Any]] = [{"unique_key": "k"}, {"job_id": f"own-{pool.pool_id}"}]
    ids = [await pool.push(0, **name) for name in names]

    await done(caller.begin())
    again = [await done(pool.push_on(caller.given, 1, after=["gone"], **name)) for name in names]
    await caller.end(commit=True)

    assert (again, await pool.size()) == (ids, 2)


@pytest.mark.parametrize("name", ["asyncpg", "psycopg", "sqlite3"])
@pytest.mark.parametrize("options", [{}, {"group": "g"}], ids=["plain", "grouped"])
async def test_many_jobs_are_pushed_together(name: str, options: dict[str, Any], in_postgres: Place, in_sqlite: Place) -> None:
    place = in_postgres if name in POSTGRES else in_sqlite
    pool = await place.pool()

    async with {**POSTGRES, **SQLITE}[name](place.url) as caller:
        await done(caller.begin())
        ids = await done(pool.push_many_on(caller.given, range(3), **options))
        none = await done(pool.push_many_on(caller.given, [], **options))
        await caller.end(commit=True)

    assert ([(job.job_id, job.payload) for job in await pool.list()], none) == ([*zip(ids, range(3), strict=True)], [])


async def test_a_job_is_done_when_the_caller_commits_and_not_before(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = await place.pool()
    await pool.push(1, job_id=f"named-{pool.pool_id}")
    job = await pool.claim()
    assert job is not None

    await caller.work(WRITE)
    await done(pool.complete_on(caller.given, job, {"ok": [1, None]}))
    before = (await pool.job(job.job_id)).status
    await caller.end(commit=True)

    after = await pool.job(job.job_id)
    assert (before, after.status, after.result) == (JobStatus.CLAIMED, JobStatus.DONE, {"ok": [1, None]})
    assert ((await pool.status()).counts.done, await place.effects()) == (1, 1)


async def test_a_job_stays_claimed_if_the_caller_rolls_back(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = await place.pool()
    await pool.push(1)
    job = await pool.claim()
    assert job is not None

    await caller.work(WRITE)
    await done(pool.complete_on(caller.given, job))
    await caller.end(commit=False)

    assert (await pool.job(job.job_id)).status is JobStatus.CLAIMED
    assert (await place.effects(), (await pool.status()).counts.done) == (0, 0)
    await pool.complete(job)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
async def test_a_job_that_waits_becomes_ready_when_the_caller_commits_and_not_before(
    opened: tuple[Place, Opened], commit: bool
) -> None:
    place, caller = opened
    pool = await place.pool()
    parent = await pool.push('"ä', backoff={"first": 2})
    child = await pool.push(2, after=[parent])
    job = await pool.claim()
    assert job is not None

    await caller.work(WRITE)
    await done(pool.complete_on(caller.given, job, {"ok": [1, None]}))
    before = (await pool.job(child)).status
    await caller.end(commit=commit)

    after = (await pool.job(child)).status
    assert (before, after) == (JobStatus.WAITING, JobStatus.PENDING if commit else JobStatus.WAITING)
    if not commit:
        await pool.complete(job, {"ok": [1, None]})
    ended = await pool.job(parent)
    assert (ended.payload, ended.result, (await pool.job(child)).status) == ('"ä', {"ok": [1, None]}, JobStatus.PENDING)


async def test_a_lost_claim_cannot_complete_its_job(opened: tuple[Place, Opened]) -> None:
    place, caller = opened
    pool = await place.pool()
    await pool.push(1)
    lost = await pool.claim()
    assert lost is not None
    await pool.release(lost)
    held = await pool.claim()
    assert held is not None

    await caller.work(WRITE)
    with pytest.raises(StaleWrite, match=r"is no longer held by claim 1; discard its result"):
        await done(pool.complete_on(caller.given, lost))
    await caller.end(commit=False)

    assert (await pool.job(held.job_id)).lease_epoch == 2
    await pool.complete(held)


async def test_only_the_current_holder_completes_a_job(opened: tuple[Place, Opened]) -> None:
    """A completion is refused if its worker, pool, process or claim differs from the holder's, or if the job has ended."""
    place, caller = opened
    pool = await place.pool()
    await pool.push(1)
    job = await pool.claim()
    assert job is not None
    others: list[dict[str, Any]] = [
        {"lease_owner": "w2"},
        {"lease_pool": "another"},
        {"lease_instance": "another"},
        {"lease_epoch": 2},
    ]

    await caller.work(WRITE)
    for other in others:
        with pytest.raises(StaleWrite):
            await done(pool.complete_on(caller.given, replace(job, **other), "wrong"))
    await done(pool.complete_on(caller.given, job, "right"))
    with pytest.raises(StaleWrite):
        await done(pool.complete_on(caller.given, job, "again"))
    await caller.end(commit=True)

    assert (await pool.job(job.job_id)).result == "right"


@pytest.mark.parametrize("name", ["asyncpg", "psycopg-rows-as-objects", "django", "sqlite3-begun-by-hand", "django-sqlite"])
async def test_a_connection_that_commits_every_statement_by_itself_is_refused(
    name: str, in_postgres: Place, in_sqlite: Place
) -> None:
    place = in_postgres if name in POSTGRES else in_sqlite
    pool = await place.pool()
    await pool.push(1)
    job = await pool.claim()
    assert job is not None

    async with {**POSTGRES, **SQLITE}[name](place.url) as caller:
        with pytest.raises(InvalidInput, match="expected an open transaction"):
            await done(pool.push_on(caller.given, 1))
        with pytest.raises(InvalidInput, match="expected an open transaction"):
            await done(pool.complete_on(caller.given, job))

    assert (await pool.size(), (await pool.job(job.job_id)).status) == (0, JobStatus.CLAIMED)


@pytest.mark.parametrize("name", ["psycopg", "sqlalchemy-core-asyncpg", "sqlite3", "aiosqlite"])
async def test_a_connection_to_another_database_is_refused(
    name: str, in_postgres: Place, in_sqlite: Place, new_database: Any, tmp_path: Path
) -> None:
    place, other = (in_postgres, new_database()) if name in POSTGRES else (in_sqlite, f"sqlite:///{tmp_path}/other.db")
    pool = await place.pool()

    async with {**POSTGRES, **SQLITE}[name](other) as caller:
        await done(caller.begin())
        with pytest.raises(InvalidInput, match=r"a connection to the store's own database .*, got one to") as refused:
            await done(pool.push_on(caller.given, 1))

    assert "\n" not in str(refused.value)
    assert await pool.size() == 0


@pytest.mark.parametrize("given", [object(), "postgresql://", None])
async def test_what_is_no_connection_is_refused(given: object, in_postgres: Place) -> None:
    pool = await in_postgres.pool()

    with pytest.raises(InvalidInput, match=r"connection: expected a connection of asyncpg, psycopg 3, .*, got builtins\."):
        pool.push_on(given, 1)


async def test_a_pool_of_connections_is_refused(in_postgres: Place) -> None:
    import asyncpg

    pool = await in_postgres.pool()

    async with asyncpg.create_pool(in_postgres.url, min_size=1) as connections:
        with pytest.raises(InvalidInput, match=r"got asyncpg\.pool\.Pool"):
            await pool.push_on(connections, 1)
