"""PostgreSQL: of a push and a deletion of its pool at the same time, one waits for the other by the lock of the pool's row."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import asyncpg
import pytest

from drumbeat.core.errors import DrumbeatError, NotFound, Refused
from drumbeat.core.event import start
from drumbeat.core.job import JobId, NewJob
from drumbeat.core.pool import PoolKind, PoolRow, pool
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.store import Store, open_store
from drumbeat.store.contract.given_jobs import pushed
from drumbeat.store.interface import PoolChange
from drumbeat.store.sql.database import Script
from drumbeat.store.sql.pools import delete_pool
from drumbeat.store.sql.store import SqlStore
from store.own_push import push_on

Rival = Any  #: an asyncpg connection of the test

PUSHES = {
    "one": [NewJob(payload=1)],
    "alike": [NewJob(payload=1), NewJob(payload=2)],
    "plain": [NewJob(payload=1, type="a"), NewJob(payload=2, type="b")],
    "keyed": [NewJob(payload=1, unique_key="k")],
    "linked": [NewJob(payload=1, after=(JobId("parent"),))],
}
every_push = pytest.mark.parametrize("jobs", PUSHES.values(), ids=PUSHES)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    async with open_store(f"{postgres_url}?connections=4", create=True) as store:
        await pushed(store, await store.pools.create(pool("other", PoolKind.JOBS)), 0, job_id=JobId("parent"))
        yield store


@pytest.fixture
async def home(store: Store) -> PoolRow:
    return await store.pools.create(pool("p", PoolKind.JOBS))


@pytest.fixture
async def rival(postgres_url: str) -> AsyncIterator[Rival]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def until_waiting(rival: Rival, task: asyncio.Task[Any], connections: int = 1) -> None:
    """Wait until so many connections wait for a lock, or until the task has ended."""
    while len(await rival.fetch("SELECT 1 FROM pg_locks WHERE NOT granted")) < connections and not task.done():
        await asyncio.sleep(0)


async def error_of(call: Awaitable[object]) -> DrumbeatError | None:
    """Wait for a call, and return its error."""
    try:
        await call
    except DrumbeatError as exc:
        return exc
    return None


@every_push
async def test_a_deletion_waits_for_a_push_and_is_refused_for_its_jobs(
    store: Store,
    home: PoolRow,
    postgres_url: str,
    rival: Rival,
    jobs: list[NewJob],
) -> None:
    async with asyncio.TaskGroup() as group:
        async with rival.transaction():
            ids = await push_on(postgres_url, rival, home.pool_id, jobs)
            deleting = group.create_task(error_of(store.pools.delete(home.pool_id, unfinished=False)))
            await until_waiting(rival, deleting)
        assert isinstance(await deleting, Refused)

    assert [job.job_id for job in await store.jobs.list(home.pool_id)] == [*ids]


async def test_a_deletion_goes_on_when_the_push_is_rolled_back(
    store: Store, home: PoolRow, postgres_url: str, rival: Rival
) -> None:
    async with asyncio.TaskGroup() as group:
        transaction = rival.transaction()
        await transaction.start()
        await push_on(postgres_url, rival, home.pool_id, [NewJob(payload=1)])
        deleting = group.create_task(store.pools.delete(home.pool_id, unfinished=False))
        await until_waiting(rival, deleting)
        await transaction.rollback()

    assert await store.pools.find(home.pool_id) is None


@every_push
async def test_a_push_waits_for_a_deletion_and_finds_no_pool(
    store: Store, home: PoolRow, rival: Rival, jobs: list[NewJob]
) -> None:
    """The rival holds a lock for which the deletion waits at its end, so that it commits only after the push has begun."""
    assert isinstance(store, SqlStore)
    [held] = await pushed(store, await store.pools.create(pool("held", PoolKind.JOBS)), 1)

    def delete_and_wait() -> Script[None]:
        yield from delete_pool(home.pool_id)
        yield "lock_parents", {"numbers": f"[{int(held[1:])}]"}

    async with asyncio.TaskGroup() as group:
        async with rival.transaction():
            await rival.execute("SELECT 1 FROM drumbeat.jobs WHERE seq = $1 FOR UPDATE", int(held[1:]))
            deleting = group.create_task(store.database.transact(delete_and_wait()))
            await until_waiting(rival, deleting)
            pushing = group.create_task(error_of(store.queue.push(home.pool_id, jobs)))
            await until_waiting(rival, pushing, 2)
        assert isinstance(await pushing, NotFound)

    assert await rival.fetch("SELECT 1 FROM drumbeat.jobs WHERE pool_id = 'p'") == []


async def test_nothing_but_a_deletion_waits_for_a_push(store: Store, home: PoolRow, postgres_url: str, rival: Rival) -> None:
    async with asyncio.timeout(5), rival.transaction():
        await push_on(postgres_url, rival, home.pool_id, [NewJob(payload=1)])

        await store.pools.change(home.pool_id, PoolChange(policy={"max": 3}))
        await store.events.append(home.pool_id, [start(1)])
        await store.workers.add([Worker(pool_id=home.pool_id, worker_id=WorkerId("worker-1"), slot=1)])
        await pushed(store, home, 2)
        await pushed(store, home, 3, unique_key="k")

    assert len(await store.jobs.list(home.pool_id)) == 3


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
@every_push
async def test_a_change_of_the_pool_does_not_fail_a_push_with_an_older_snapshot(
    store: Store,
    home: PoolRow,
    postgres_url: str,
    rival: Rival,
    isolation: str,
    jobs: list[NewJob],
) -> None:
    async with rival.transaction(isolation=isolation):
        await rival.fetch("SELECT 1")
        await store.pools.change(home.pool_id, PoolChange(policy={"max": 3}))
        await store.events.append(home.pool_id, [start(1)])

        ids = await push_on(postgres_url, rival, home.pool_id, jobs)

    assert [job.job_id for job in await store.jobs.list(home.pool_id)] == [*ids]
