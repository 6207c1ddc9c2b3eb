"""PostgreSQL keeps the store's promises, and some of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from drumbeat.core.errors import InvalidInput, InvalidSettings, StoreNotReady, StoreTooNew, StoreUnavailable
from drumbeat.core.event import NewEvent
from drumbeat.core.job import RateLimit
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.store import Store, open_store
from drumbeat.store.contract import Elapse, PoolContract, StoreContract
from drumbeat.store.contract.given import W1, W2, taken
from drumbeat.store.contract.given_jobs import claiming, pushed
from drumbeat.store.contract.job_steps import JobStepsContract
from drumbeat.store.contract.workflows import WorkflowContract
from drumbeat.store.sql.migrate import LATEST
from drumbeat.store.sql.postgres import _SETTINGS, PostgresDatabase
from drumbeat.store.sql.postgres_dialect import dialect
from drumbeat.store.sql.queries import load_queries
from servers.postgres import PostgresServer
from store.timeshift import elapse_through


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture(scope="module")
async def store(database: str) -> AsyncIterator[Store]:
    async with open_store(f"{database}?connections=8", create=True) as store:
        yield store


@pytest.fixture
def elapse(database: str) -> Elapse:
    return elapse_through(database)


class TestPostgresStore(StoreContract):
    """Every promise, on a server of its own."""


class TestPostgresPool(PoolContract):
    """Every promise about jobs."""


class TestPostgresWorkflows(WorkflowContract):
    """Every promise about jobs that wait for other jobs."""


class TestPostgresJobSteps(JobStepsContract):
    """Every promise about the steps of jobs."""


async def test_eight_processes_worth_of_migrations_at_once_apply_each_one_once(postgres_url: str) -> None:
    async with open_store(postgres_url, check_version=False) as first, open_store(postgres_url, check_version=False) as second:
        applied = await asyncio.gather(*(store.upkeep.migrate() for store in [first, second] * 4))

    assert sorted(applied, key=len)[:-1] == [[]] * 7
    assert max(applied, key=len) == list(range(1, LATEST + 1))


async def test_a_lease_is_not_taken_between_a_fences_check_and_its_write(postgres_url: str) -> None:
    """The write waits for its pool's row, its fence checked already; the lease's row must be held meanwhile."""
    rival = await asyncpg.connect(postgres_url)
    async with open_store(postgres_url, create=True) as store, asyncio.TaskGroup() as group:
        await store.pools.create(pool("p", PoolKind.FLEET))
        lease = await taken(store, "p")
        async with rival.transaction():
            await rival.execute("SELECT 1 FROM drumbeat.pools FOR UPDATE")
            write = group.create_task(store.events.append(PoolId("p"), [NewEvent(type="X")], fence=lease.fence))
            while not await rival.fetch("SELECT 1 FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0)
            with pytest.raises(asyncpg.LockNotAvailableError):
                async with rival.transaction():
                    await rival.execute("SELECT 1 FROM drumbeat.leases FOR UPDATE NOWAIT")

        assert [event.sequence_id for event in await write] == [1]
    await rival.close()


async def test_claims_of_a_limited_group_come_one_after_the_other(postgres_url: str) -> None:
    """The first has its job and waits to note it, which a rival notes too; the second must not miss what the first holds."""
    rival = await asyncpg.connect(postgres_url)
    limits: dict[str, Any] = {"group": "g", "group_limit": 1, "group_rate": RateLimit(count=9, per=timedelta(hours=1))}
    columns = "INSERT INTO drumbeat.group_claims (pool_id, group_key, seq, n, at, until)"
    async with open_store(f"{postgres_url}?connections=4", create=True) as store, asyncio.TaskGroup() as group:
        made = await store.pools.create(pool("p", PoolKind.JOBS))
        await pushed(store, made, "first", **limits)
        rivals = rival.transaction()
        await rivals.start()
        await rival.execute(f"{columns} SELECT 'p', 'g', seq, 1, 0, 1 FROM drumbeat.jobs")
        first = group.create_task(store.queue.claim(claiming(made, W1)))
        await _waiting(rival, 1)
        await pushed(store, made, "urgent", priority=9, **limits)
        second = group.create_task(store.queue.claim(claiming(made, W2)))
        await _waiting(rival, 2, second)
        await rivals.rollback()

    assert [[job.payload for job in task.result()] for task in (first, second)] == [["first"], []]
    await rival.close()


async def _waiting(connection: asyncpg.Connection, many: int, unless: asyncio.Task[Any] | None = None) -> None:
    """Return once so many wait for a lock, or the other is done."""
    while not (unless and unless.done()):
        if len(await connection.fetch("SELECT DISTINCT pid FROM pg_locks WHERE NOT granted")) >= many:
            return


async def test_two_schemas_in_one_database_do_not_see_each_other(postgres_url: str) -> None:
    async with (
        open_store(f"{postgres_url}?schema=one", create=True) as one,
        open_store(f"{postgres_url}?schema=two", create=True) as two,
    ):
        await one.pools.create(pool("p", PoolKind.FLEET))

        assert [each.pool_id for each in await one.pools.list()] == ["p"]
        assert await two.pools.list() == []


async def test_a_store_carries_on_after_its_server_came_back(private_postgres: PostgresServer) -> None:
    url = private_postgres.new_database()
    async with open_store(f"{url}?command_timeout=2", create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
        private_postgres.stop()
        with pytest.raises(StoreUnavailable):
            await store.events.append(PoolId("p"), [NewEvent(type="X")])
        private_postgres.start()

        appended = await store.events.append(PoolId("p"), [NewEvent(type="X")])

        assert [event.sequence_id for event in appended] == [1]


async def test_a_server_that_does_not_answer_is_unavailable(private_postgres: PostgresServer) -> None:
    url = private_postgres.new_database()
    async with open_store(url, create=True):
        pass
    async with open_store(f"{url}?command_timeout=3&connect_timeout=60") as store:
        with private_postgres.paused(), pytest.raises(StoreUnavailable):
            await store.now()


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        ("postgresql://u:secret@127.0.0.1:1/db", StoreUnavailable, "127.0.0.1:1"),
        ("postgresql://u:secret@127.0.0.1:1/db?schema=Bad-Name", InvalidSettings, "schema"),
        ("postgresql://u:secret@127.0.0.1:1/db?connections=none", InvalidSettings, "connections"),
    ],
)
async def test_a_wrong_address_is_said_without_its_password(url: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        async with open_store(url):
            pass
    assert "secret" not in str(caught.value)


async def test_a_database_that_is_not_there_is_said(postgres: PostgresServer) -> None:
    with pytest.raises(InvalidSettings, match="no such database"):
        async with open_store(postgres.url("nowhere")):
            pass


async def test_an_empty_database_needs_init_first(postgres_url: str) -> None:
    with pytest.raises(StoreNotReady, match="drumbeat store init"):
        async with open_store(postgres_url):
            pass


async def test_a_store_from_a_newer_version_is_refused(postgres_url: str) -> None:
    async with open_store(postgres_url, create=True):
        pass
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("INSERT INTO drumbeat.schema_version VALUES (99, 0)")
    await connection.close()

    with pytest.raises(StoreTooNew, match="upgrade Drumbeat"):
        async with open_store(postgres_url, create=True):
            pass


async def test_a_value_postgresql_cannot_keep_is_bad_input_and_leaves_no_gap(new_database: Callable[[], str]) -> None:
    async with open_store(new_database(), create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
        with pytest.raises(InvalidInput):
            await store.events.append(PoolId("p"), [NewEvent(type="X", payload={"text": "a\x00b"})])

        assert (await store.events.append(PoolId("p"), [NewEvent(type="X")]))[0].sequence_id == 1


async def test_an_interrupt_while_connecting_is_an_interrupt_though_the_driver_tells_of_a_lost_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached = asyncio.Event()

    async def connecting(*_: object, **__: object) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation") from None

    async def opening() -> None:
        async with open_store("postgresql://nobody@127.0.0.1:1/nowhere"):
            pass

    monkeypatch.setattr(PostgresDatabase, "_is_behind_a_pooler", connecting)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(opening())
        await reached.wait()
        task.cancel()

    assert task.cancelled()


async def test_finished_jobs_are_not_each_compared_with_every_token(postgres_url: str) -> None:
    """The plan is made once for any number of jobs: a join of jobs and tokens would take quadratic time."""
    [statement] = load_queries(dialect("drumbeat"))["settle_and_claim"].statements
    async with open_store(postgres_url, create=True):
        connection = await asyncpg.connect(postgres_url, server_settings=_SETTINGS)
        await connection.execute(f"PREPARE settle AS {statement.text}")
        nulls = ", ".join("NULL" for _ in statement.parameters)
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN EXECUTE settle ({nulls})"))
        await connection.close()

    ends_jobs = plan.partition("CTE done")[2].partition("CTE counted")[0]
    assert "hashed SubPlan" in ends_jobs
    assert "Materialize" not in ends_jobs
