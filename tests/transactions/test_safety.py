"""What must hold around a transaction of the caller: locks, wake-ups, several pools, restarts, and which database it is."""

import asyncio
import sqlite3
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import psycopg
import pytest
from psycopg import sql

import drumbeat
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput, NotFound, StoreUnavailable
from drumbeat.core.job import Job, JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.worker.in_flight import InFlight
from drumbeat.pool.worker.lease_keeper import LeaseKeeper
from drumbeat.pool.worker.options import WorkPlan
from drumbeat.store import open_store
from drumbeat.store.interface import RenewResult, Store
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer
from transactions.drivers import POSTGRES, SQLITE
from transactions.place import WRITE, Place

MOMENT = timedelta(milliseconds=1)


async def test_a_job_that_is_being_completed_cannot_be_taken_over(in_postgres: Place) -> None:
    pool = await in_postgres.pool()
    await pool.push_many([1, 2])
    completed, other = await pool.claim_many(2, lease=MOMENT)
    taken: set[str] = set()

    with psycopg.connect(in_postgres.url) as connection:
        pool.complete_on(connection, completed)
        async with open_store(f"{in_postgres.url}?schema=jobs_of_ours") as store, asyncio.timeout(60):
            while other.job_id not in taken:  # the first look extends an expired lease, a later one takes the job back
                taken |= {job.job_id for job in await store.queue.expire()}
            taken |= {job.job_id for job in await store.queue.expire()}

    assert completed.job_id not in taken
    assert (await pool.job(completed.job_id)).status is JobStatus.DONE


async def test_whoever_releases_a_workers_jobs_waits_for_the_commit(in_postgres: Place) -> None:
    pool = await in_postgres.pool()
    await pool.push(1)
    job = await pool.claim()
    assert job is not None
    assert job.holder is not None

    async with open_store(f"{in_postgres.url}?schema=jobs_of_ours") as store, asyncio.TaskGroup() as group:
        with psycopg.connect(in_postgres.url) as connection:
            pool.complete_on(connection, job)
            releasing = group.create_task(store.queue.release(job.holder, "its worker was lost"))
            async with asyncio.timeout(60):
                while not await in_postgres.execute("SELECT 1 FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)

    assert (releasing.result(), (await pool.job(job.job_id)).status) == ([], JobStatus.DONE)


async def test_other_leases_are_renewed_while_a_transaction_adds_a_child_to_a_running_job(in_postgres: Place) -> None:
    pool = await in_postgres.pool()
    await pool.push_many([1, 2, 3])
    parent, other, lost = await pool.claim_many(3, lease=timedelta(minutes=1))
    assert parent.holder is not None
    tokens = [parent.token, other.token, lost.token]
    await pool.release(lost)

    async with open_store(f"{in_postgres.url}?schema=jobs_of_ours") as store:
        with psycopg.connect(in_postgres.url) as connection:
            pool.push_on(connection, 4, after=[parent.job_id])
            first = await store.queue.renew(parent.holder, tokens, timedelta(hours=1))
            with pytest.raises(StoreUnavailable, match="is locked by an open transaction, so its lease was not"):
                await pool.renew(parent)
        second = await store.queue.renew(parent.holder, tokens, timedelta(hours=1))

    assert first == RenewResult(stale=(lost.token,), cancelled=(), locked=(parent.token,))
    assert second == RenewResult(stale=(lost.token,), cancelled=())


async def test_a_worker_does_not_count_on_a_lease_that_was_not_renewed() -> None:
    clock = ManualClock()
    in_flight = InFlight(WorkPlan(concurrency=2), clock, timedelta(minutes=1))
    jobs = [Job(job_id=JobId(name), pool_id=PoolId("p"), payload=1, lease_epoch=1) for name in ("a", "b")]
    in_flight.add(jobs, asyncio.Event())
    claims: Any = SimpleNamespace(
        lease=timedelta(seconds=90),
        renew=AsyncMock(return_value=RenewResult(stale=(), cancelled=(), locked=(jobs[0].token,))),
        expire=AsyncMock(),
        acquire_alone_lease=AsyncMock(return_value=False),
    )

    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(LeaseKeeper(in_flight, claims, clock, lambda: None).keep())
        await clock.advance(timedelta(seconds=70))
        keeping.cancel()

    begun = in_flight.next(0, clock.elapsed())
    assert begun is not None
    assert (begun.token, [outcome.token for outcome in in_flight.verdicts]) == (jobs[1].token, [jobs[0].token])


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
async def test_a_transaction_that_cannot_see_a_new_child_cannot_end_its_parent(
    in_postgres: Place, level: psycopg.IsolationLevel
) -> None:
    pool = await in_postgres.pool()
    parent = await pool.push(1)
    children = [await pool.push(2, after=[parent])]
    job = await pool.claim()
    assert job is not None

    with psycopg.connect(in_postgres.url) as connection:
        connection.isolation_level = level
        connection.execute("SELECT 1 FROM effects")
        children.append(await pool.push(3, after=[parent]))
        with pytest.raises(psycopg.errors.SerializationFailure):
            pool.complete_on(connection, job)
        connection.rollback()
        pool.complete_on(connection, job)

    assert [(await pool.job(child)).status for child in children] == [JobStatus.PENDING] * 2


async def test_the_lease_of_a_locked_job_is_not_renewed() -> None:
    """A renewal would wait for the handler's transaction, and the leases of the worker's other jobs would run out."""
    in_flight = InFlight(WorkPlan(concurrency=2), ManualClock(), timedelta(minutes=1))
    jobs = [Job(job_id=JobId(name), pool_id=PoolId("p"), payload=1, lease_epoch=1) for name in ("a", "b")]
    in_flight.add(jobs, asyncio.Event())
    first, second = (in_flight.next(0, timedelta()) for _ in range(2))
    assert first is not None
    assert second is not None
    first.context.progress(0.5)

    first.context.note_lock(True)

    assert (in_flight.renewable(), in_flight.take_progress()) == ([second.token], [])
    assert set(in_flight.tokens()) == {first.token, second.token}


async def test_a_waiting_worker_is_woken_by_a_push_in_a_transaction(in_sqlite: Place, tmp_path: Path) -> None:
    file = Path(in_sqlite.url.removeprefix("sqlite:///"))
    pool = await in_sqlite.pool()
    async with open_store(in_sqlite.url) as store, asyncio.TaskGroup() as group:
        waiting = group.create_task(store.queue.wait(pool.pool_id, timedelta(seconds=9)))  # it polls every ten seconds
        async with asyncio.timeout(60):
            while not [*file.with_name(f"{file.name}-wake").glob("*")]:
                await asyncio.sleep(0.01)
        with closing(sqlite3.connect(file)) as connection:
            job_id = pool.push_on(connection, 1)
            claiming = group.create_task(_claim_once_woken(waiting, store, pool))
            assert await waiting
            connection.commit()

    assert [job.job_id for job in claiming.result()] == [job_id]


async def _claim_once_woken(waiting: "asyncio.Task[bool]", store: Store, pool: drumbeat.Pool) -> Any:
    from drumbeat.store.interface import ClaimRequest

    await waiting
    holder = Holder(pool_id=pool.pool_id, worker_id=WorkerId("w"))
    return await store.queue.claim(ClaimRequest(pool_id=pool.pool_id, holder=holder, lease=timedelta(minutes=1)))


@pytest.mark.parametrize("commit", [True, False])
async def test_jobs_of_three_pools_change_in_one_transaction(place: Place, commit: bool) -> None:
    first, second, third = [await place.pool() for _ in range(3)]
    await first.push(1)
    job = await first.claim()
    assert job is not None
    name = "psycopg" if place.url.startswith("postgres") else "sqlite3"

    async with {**POSTGRES, **SQLITE}[name](place.url) as caller:
        await caller.work(WRITE)
        first.complete_on(caller.given, job)
        ids = [second.push_on(caller.given, 2), third.push_on(caller.given, 3)]
        await caller.end(commit=commit)

    assert (await first.job(job.job_id)).status is (JobStatus.DONE if commit else JobStatus.CLAIMED)
    assert (await second.size(), await third.size(), await place.effects()) == ((1, 1, 1) if commit else (0, 0, 0))
    if commit:
        assert [(await second.job(ids[0])).payload, (await third.job(ids[1])).payload] == [2, 3]


async def test_a_job_id_of_another_pool_and_an_unknown_pool_are_refused(place: Place) -> None:
    pool = await place.pool()
    other = place.db.pool("none-such")
    name = "psycopg" if place.url.startswith("postgres") else "sqlite3"

    async with {**POSTGRES, **SQLITE}[name](place.url) as caller:
        with pytest.raises(NotFound, match="none-such"):
            other.push_on(caller.given, 1, job_id="x")
        with pytest.raises(InvalidInput, match="job id"):
            pool.push_on(caller.given, 1, job_id="j000000000001")
        with pytest.raises(InvalidInput, match="unknown option 'colour'"):
            pool.push_on(caller.given, 1, colour="red")
        await caller.end(commit=True)

    assert await pool.size() == 0


def test_code_without_an_event_loop_pushes_and_completes(tmp_path: Path) -> None:
    with (
        drumbeat.connect_blocking(f"sqlite:///{tmp_path}/jobs.db") as db,
        closing(sqlite3.connect(tmp_path / "jobs.db")) as connection,
    ):
        papers = db.pool("papers")
        papers.create()
        with connection:
            job_id = papers.push_on(connection, 1)
        job = papers.claim()
        assert job is not None
        with connection:
            papers.complete_on(connection, job, 2)

        assert papers.result(job_id) == 2


def test_code_without_an_event_loop_pushes_to_postgresql(postgres_url: str) -> None:
    with drumbeat.connect_blocking(postgres_url) as db, psycopg.connect(postgres_url) as connection:
        papers = db.pool("papers")
        papers.create()
        papers.push_on(connection, 1)
        connection.commit()

        assert papers.size() == 1


async def test_a_file_is_the_same_by_another_name_but_not_a_copy_of_it(in_sqlite: Place, tmp_path: Path) -> None:
    file = Path(in_sqlite.url.removeprefix("sqlite:///"))
    (tmp_path / "link.db").symlink_to(file)
    pool = await in_sqlite.pool()

    with closing(sqlite3.connect(tmp_path / "link.db")) as connection, connection:
        pool.push_on(connection, 1)
    for other in (tmp_path / "copy.db", ":memory:"):
        with closing(sqlite3.connect(other)) as connection, pytest.raises(InvalidInput, match="got one to") as refused:
            pool.push_on(connection, 1)
        assert ("a database in memory" if other == ":memory:" else str(other)) in str(refused.value)

    assert await pool.size() == 1


async def test_another_server_is_refused_and_a_server_that_has_restarted_is_not(
    postgres_url: str, private_postgres: PostgresServer
) -> None:
    name = postgres_url.rpartition("/")[2]
    url = f"{private_postgres.new_database().rpartition('/')[0]}/{name}"
    with (
        psycopg.connect(url.replace(f"/{name}", "/postgres"), autocommit=True) as admin,
        suppress(psycopg.errors.DuplicateDatabase),
    ):
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        await papers.create()
        with psycopg.connect(postgres_url) as other, pytest.raises(InvalidInput, match="got one of another server"):
            papers.push_on(other, 1)
        with psycopg.connect(url) as connection:
            papers.push_on(connection, 1)

        private_postgres.kill()
        private_postgres.start()

        with psycopg.connect(url) as connection:
            papers.push_on(connection, 2)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT COUNT(*) FROM drumbeat.jobs").fetchone() == (2,)


async def test_a_transaction_that_failed_says_what_its_driver_says(in_postgres: Place) -> None:
    pool = await in_postgres.pool()

    with psycopg.connect(in_postgres.url) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM missing")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            pool.push_on(connection, 1)


async def test_a_sqlalchemy_session_that_rolls_back_to_a_savepoint_keeps_what_came_before(in_postgres: Place) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    pool = await in_postgres.pool()
    engine = create_engine(f"postgresql+psycopg://{in_postgres.url.partition('://')[2]}")
    with Session(engine) as session:
        kept = pool.push_on(session, 1)
        savepoint = session.begin_nested()
        pool.push_on(session, 2)
        savepoint.rollback()
        session.commit()
    engine.dispose()

    assert [job.job_id for job in await pool.list()] == [kept]


async def test_a_connection_through_a_pooler_is_to_the_same_database(in_postgres: Place, pgbouncer: PgBouncer) -> None:
    pool = await in_postgres.pool()

    with psycopg.connect(pgbouncer.url(in_postgres.url), prepare_threshold=None) as connection:
        pool.push_on(connection, 1, unique_key="k")

    assert await pool.size() == 1
