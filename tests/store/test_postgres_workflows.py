"""PostgreSQL decides the race of a push against the end of its parent by the parent's row lock, and outlives deadlocks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import asyncpg
import pytest

from drumbeat.core.job import JobStatus, NewJob
from drumbeat.core.pool import PoolKind, PoolRow, pool
from drumbeat.store import Store, open_store
from drumbeat.store.contract.given_jobs import claimed, claiming, holder, pushed, verdict
from drumbeat.store.sql.database import Deadlock, Rows, Script, Values, transact_again
from drumbeat.store.sql.jobs import _requeue
from drumbeat.store.sql.postgres import PostgresDatabase
from drumbeat.store.sql.store import SqlStore


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    async with open_store(f"{postgres_url}?connections=4", create=True) as store:
        yield store


@pytest.fixture
async def home(store: Store) -> PoolRow:
    return await store.pools.create(pool("p", PoolKind.JOBS))


async def _until_waiting(rival: "asyncpg.Connection[asyncpg.Record]", connections: int) -> None:
    """Wait until so many other connections wait for a lock."""
    while len(await rival.fetch("SELECT 1 FROM pg_locks WHERE NOT granted")) < connections:
        await asyncio.sleep(0)


async def test_a_parent_that_gets_a_child_while_it_is_settled_passes_its_end_on(
    store: Store, home: PoolRow, postgres_url: str
) -> None:
    """The statement that ends the parent waits for the push's lock. Its snapshot is older than the link."""
    await _check_a_child_added_while_its_parent_is_settled(store, home, postgres_url)


async def test_a_stricter_default_isolation_of_the_database_changes_nothing(new_database: Callable[[], str]) -> None:
    url = new_database()
    admin = await asyncpg.connect(url)
    await admin.execute(f"ALTER DATABASE \"{url.rpartition('/')[2]}\" SET default_transaction_isolation = 'repeatable read'")
    await admin.close()

    async with open_store(url, create=True) as store:
        await _check_a_child_added_while_its_parent_is_settled(store, await store.pools.create(pool("p", PoolKind.JOBS)), url)


async def _check_a_child_added_while_its_parent_is_settled(store: Store, home: PoolRow, url: str) -> None:
    [parent] = await pushed(store, home, 1)
    job = await claimed(store, home)
    rival = await asyncpg.connect(url)
    async with asyncio.TaskGroup() as group:
        async with rival.transaction():
            await rival.execute("UPDATE drumbeat.jobs SET has_children = 1")
            settling = group.create_task(store.queue.settle(holder(home), [verdict(job)], claiming(home)))
            await _until_waiting(rival, 1)
            seq = await rival.fetchval("SELECT seq FROM drumbeat.jobs")
            child = await rival.fetchval(
                "INSERT INTO drumbeat.jobs (pool_id, payload, status, waits_for, if_failed, created_at) "
                "VALUES ('p', '2', 'waiting', 1, 'block', 0) RETURNING seq"
            )
            await rival.execute("INSERT INTO drumbeat.job_links (child_seq, parent_seq) VALUES ($1, $2)", child, seq)
        settled = await settling
    await rival.close()

    assert settled.stale == ()
    assert [each.payload for each in settled.claimed] == [2]
    assert (await store.jobs.get(parent)).status is JobStatus.DONE


async def test_a_child_requeued_while_its_parent_is_settled_gets_its_end(
    store: Store, home: PoolRow, postgres_url: str
) -> None:
    """The statement that ends the parent waits for the requeue's lock. In its snapshot the child is cancelled, not waiting."""
    assert isinstance(store, SqlStore)
    [parent, other] = await pushed(store, home, 1, 2)
    job = await claimed(store, home)
    [child] = await pushed(store, home, 3, after=(parent,))
    await store.jobs.cancel([child])
    rival = await asyncpg.connect(postgres_url)

    def requeue_and_wait() -> Script[None]:
        yield from _requeue(home.pool_id, [child])
        yield "lock_parents", {"numbers": f"[{int(other[1:])}]"}

    async with asyncio.TaskGroup() as group:
        async with rival.transaction():
            await rival.execute("SELECT 1 FROM drumbeat.jobs WHERE seq = $1 FOR UPDATE", int(other[1:]))
            group.create_task(store.database.transact(requeue_and_wait()))
            await _until_waiting(rival, 1)
            settling = group.create_task(store.queue.settle(holder(home), [verdict(job)], claiming(home, limit=0)))
            await _until_waiting(rival, 2)
        assert (await settling).stale == ()
    await rival.close()

    assert (await store.jobs.get(child)).status is JobStatus.PENDING


async def test_a_worker_killed_before_its_second_statement_leaves_the_parent_claimed(
    store: Store, home: PoolRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child was requeued, so one statement is not enough. Nothing is half done: the parent is tried again, and then its end
    reaches the child."""
    [parent] = await pushed(store, home, 1)
    job = await claimed(store, home)
    [child] = await pushed(store, home, 2, after=(parent,))
    await store.jobs.cancel([child])
    await store.jobs.requeue(home.pool_id, [child])

    async def killed(database: PostgresDatabase, script: Script[object]) -> object:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(PostgresDatabase, "transact", killed)
        with pytest.raises(asyncio.CancelledError):
            await store.queue.settle(holder(home), [verdict(job)])

    statuses = [(await store.jobs.get(each)).status for each in (parent, child)]
    assert statuses == [JobStatus.CLAIMED, JobStatus.WAITING]
    assert (await store.queue.settle(holder(home), [verdict(job)])).stale == ()
    assert (await store.jobs.get(child)).status is JobStatus.PENDING


async def test_a_transaction_that_deadlocks_is_run_again(store: Store, home: PoolRow, postgres_url: str) -> None:
    """The rival holds the second row and waits for the first, while the script holds the first and wants the second."""
    assert isinstance(store, SqlStore)
    first, second = (int(job_id[1:]) for job_id in await store.queue.push(home.pool_id, [NewJob(payload=n) for n in (1, 2)]))
    rival = await asyncpg.connect(postgres_url)
    await rival.execute("SET deadlock_timeout = '60s'")
    tries = 0
    held = asyncio.Event()

    def lock_both() -> Script[int]:
        nonlocal tries
        tries += 1
        yield "lock_parents", {"numbers": f"[{first}]"}
        held.set()
        rows = yield "lock_parents", {"numbers": f"[{second}]"}
        return len(rows)

    transaction = rival.transaction()
    await transaction.start()
    await rival.execute("SELECT 1 FROM drumbeat.jobs WHERE seq = $1 FOR UPDATE", second)
    async with asyncio.TaskGroup() as group:
        locking = group.create_task(transact_again(store.database, lock_both))
        await held.wait()
        await rival.execute("SELECT 1 FROM drumbeat.jobs WHERE seq = $1 FOR UPDATE", first)
        await transaction.rollback()
        assert await locking == 1
    await rival.close()

    assert tries > 1


async def test_a_settlement_that_deadlocks_is_run_again(store: Store, home: PoolRow, monkeypatch: pytest.MonkeyPatch) -> None:
    await pushed(store, home, 1)
    job = await claimed(store, home)
    write, tries = PostgresDatabase.write, 0

    async def deadlock_once(database: PostgresDatabase, query: str, values: Values) -> Rows:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Deadlock("two transactions waited for each other")
        return await write(database, query, values)

    with monkeypatch.context() as patched:
        patched.setattr(PostgresDatabase, "write", deadlock_once)
        assert (await store.queue.settle(holder(home), [verdict(job)], claiming(home, limit=0))).stale == ()
    assert tries == 2


@pytest.mark.parametrize("operation", ["change_pending", "prune"])
async def test_changing_and_pruning_jobs_outlive_a_deadlock(
    store: Store, home: PoolRow, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    _, pending = await pushed(store, home, 1, 2)
    await store.queue.settle(holder(home), [verdict(await claimed(store, home))])
    transact, failed = PostgresDatabase.transact, False

    async def deadlock_once(database: PostgresDatabase, script: Script[object]) -> object:
        nonlocal failed
        if failed:
            return await transact(database, script)
        failed = True
        script.close()
        raise Deadlock("two transactions waited for each other")

    with monkeypatch.context() as patched:
        patched.setattr(PostgresDatabase, "transact", deadlock_once)
        if operation == "prune":
            assert await store.jobs.prune(timedelta()) == 1
        else:
            assert await store.jobs.change_pending(home.pool_id, [pending], priority=3) == [pending]
    assert failed


async def test_a_deadlock_that_comes_again_and_again_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the tries it leaves the other transaction time to lock its rows, longer each time."""
    assert isinstance(store, SqlStore)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("drumbeat.store.sql.database.asyncio.sleep", sleep)

    def stuck() -> Script[None]:
        yield "now", {}
        raise Deadlock("again")

    with pytest.raises(Deadlock):
        await transact_again(store.database, stuck)
    assert len(pauses) == 4
    assert pauses == sorted(pauses)
    assert pauses[0] > 0
