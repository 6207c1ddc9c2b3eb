"""Unique keys that somebody else's transaction is about to take: PostgreSQL waits for its end, and nobody waits for ever."""

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any, TypeAlias

import asyncpg
import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import AttemptOutcome, JobCounts, NewJob
from drumbeat.core.pool import PoolRow
from drumbeat.store import Store, open_store
from drumbeat.store.contract.given import new_pool
from drumbeat.store.contract.given_jobs import claiming, holder, pushed, verdict
from store.own_push import push_on

Connection: TypeAlias = "asyncpg.Connection[Any]"

SOMEBODY_WAITS = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)"


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    async with open_store(postgres_url, create=True) as store:
        yield store


@pytest.fixture
async def pool(store: Store) -> PoolRow:
    return await store.pools.create(new_pool())


@pytest.fixture
async def connection(store: Store, postgres_url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def until_somebody_waits(connection: Connection) -> None:
    async with asyncio.timeout(60):
        while not await connection.fetchval(SOMEBODY_WAITS):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("option", ["job_id", "unique_key", "group", "workflow_id"])
async def test_a_text_that_is_too_long_for_its_index_is_refused(store: Store, pool: PoolRow, option: str) -> None:
    limit: dict[str, Any] = {"group_limit": 1} if option == "group" else {}
    long = "".join(sha256(bytes([n])).hexdigest() for n in range(200))  # 12.8 KB that cannot be compressed to 2.7 KB

    with pytest.raises(InvalidInput, match="PostgreSQL cannot store this value: index row"):
        await store.queue.push(pool.pool_id, [NewJob(payload=1, **{option: long, **limit})])


async def test_a_poisoned_job_whose_key_is_being_pushed_is_left_and_the_others_are_requeued(
    store: Store, pool: PoolRow, connection: Connection, postgres_url: str
) -> None:
    ids = [*await pushed(store, pool, 0, 1), *await pushed(store, pool, 2, unique_key="K"), *await pushed(store, pool, 3, 4)]
    jobs = await store.queue.claim(claiming(pool, limit=5))
    await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.FAILED, error="x", fatal=True) for job in jobs])

    async with asyncio.TaskGroup() as group, connection.transaction():
        await push_on(postgres_url, connection, pool.pool_id, [NewJob(payload="new", unique_key="K")])
        requeueing = group.create_task(store.jobs.requeue(pool.pool_id, ids))
        await until_somebody_waits(connection)

    assert requeueing.result() == [each for each in ids if each != ids[2]]
    counts = await store.jobs.counts(pool.pool_id)
    assert (counts.ready, counts.poisoned) == (5, 1)


@pytest.mark.parametrize("named", ["unique_key", "job_id"])
async def test_two_pushes_of_the_same_jobs_in_opposite_order_do_not_wait_for_each_other(
    store: Store, pool: PoolRow, connection: Connection, postgres_url: str, named: str
) -> None:
    first, second = (NewJob(payload=name, **{named: name}) for name in ("a", "b"))  # type: ignore[arg-type]

    async with asyncio.TaskGroup() as group, connection.transaction():
        made = [*await push_on(postgres_url, connection, pool.pool_id, [first])]
        pushing = group.create_task(store.queue.push(pool.pool_id, [second, first]))
        await until_somebody_waits(connection)
        made += await push_on(postgres_url, connection, pool.pool_id, [second])

    assert pushing.result() == made[::-1]
    assert await store.jobs.counts(pool.pool_id) == JobCounts(ready=2, oldest_ready=(await store.jobs.get(made[0])).created_at)


async def test_keyed_jobs_are_claimed_in_the_order_of_pushing_whatever_their_keys(store: Store, pool: PoolRow) -> None:
    jobs = [NewJob(payload=n, unique_key=key) for n, key in enumerate(["c", "a", None, "b", "a"])]

    ids = await store.queue.push(pool.pool_id, jobs)
    claimed = await store.queue.claim(claiming(pool, limit=9))

    assert [job.payload for job in claimed] == [0, 1, 2, 3]
    assert [*ids] == [*(job.job_id for job in claimed), ids[1]]
