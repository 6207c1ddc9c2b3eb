"""A process killed in a transaction does not block a store in Snowflake; one that was paused commits no part of its work."""

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, cast

import pytest

from drumbeat.core.errors import NotFound, StoreUnavailable
from drumbeat.core.event import NewEvent
from drumbeat.core.pool import PoolId
from drumbeat.store import Store, open_store
from drumbeat.store.contract.given import heartbeat, joined, new_pool
from drumbeat.store.sql import snowflake_sessions, snowflake_transaction
from drumbeat.store.sql.database import Script, TransactionTooLong
from drumbeat.store.sql.snowflake import SnowflakeDatabase
from drumbeat.store.sql.snowflake_transaction import abort_abandoned, transaction_name
from drumbeat.store.sql.store import SqlStore
from servers.snowflake import SnowflakeServer

ONE, OTHER = PoolId("one"), PoolId("other")
POOL = {"kind": "pool", "thresholds": "{}", "policy": "{}", "paused_until": None}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds instead of half a minute."""
    monkeypatch.setattr(snowflake_sessions, "LOCK_WAIT", 1)
    monkeypatch.setattr(snowflake_transaction, "GIVE_UP", 1.0)
    monkeypatch.setattr(snowflake_transaction, "ABANDONED", 1.5)


@pytest.fixture
def url(snowflake: SnowflakeServer) -> str:
    return snowflake.new_database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, create=True) as store:
        yield store


@pytest.fixture
def killed(snowflake: SnowflakeServer, url: str) -> Iterator[Any]:
    """A session whose process is gone: it says nothing more, and is not closed."""
    session = snowflake.connect(url.rpartition("@")[2].split("/")[1], autocommit=False)
    yield session
    session.close()


def database(store: Store) -> SnowflakeDatabase:
    return cast("SnowflakeDatabase", cast("SqlStore", store).database)


def name_of(store: Store) -> str:
    return transaction_name(database(store).location)


def leave_open(session: Any, store: Store, *changes: str) -> None:
    cursor = session.cursor()
    for statement in (f"BEGIN NAME {name_of(store)}", *changes):
        cursor.execute(statement)


async def test_what_a_killed_process_had_changed_is_undone_and_others_go_on(store: Store, killed: Any) -> None:
    home = await store.pools.create(new_pool())
    leave_open(killed, store, "UPDATE locks SET n = n + 1 WHERE name = 'writer'", "UPDATE pools SET next_event = 100")

    await store.events.append(home.pool_id, [NewEvent(type="X")])

    assert [event.sequence_id for event in await store.events.read(home.pool_id, 0)] == [1]


async def test_heartbeats_go_on_too(store: Store, killed: Any) -> None:
    worker = await joined(store, await store.pools.create(new_pool()))
    leave_open(killed, store, "UPDATE workers SET phase = 'X'")

    answer = await store.membership.beat(heartbeat(worker))

    assert answer is not None
    assert (await store.workers.get(worker.pool_id, worker.worker_id)).phase != "X"


async def test_a_lock_met_in_the_middle_of_a_script_is_gone_at_the_next_attempt(store: Store, killed: Any) -> None:
    """As a heartbeat's lock of its worker's row."""
    home = await store.pools.create(new_pool())

    def script() -> Script[None]:
        leave_open(killed, store, "UPDATE pools SET next_event = 100")
        time.sleep(0.6)
        yield "take_beat_number", {"pool_id": home.pool_id}

    store_database = database(store)
    locked = store_database._lock
    store_database._lock = lambda cursor: None  # type: ignore[method-assign]  # the emulator has one lock for all rows
    with pytest.raises(StoreUnavailable, match="waited too long"):
        await store_database.transact(script())
    store_database._lock = locked  # type: ignore[method-assign]

    assert await asyncio.to_thread(lambda: killed.cursor().execute("SELECT CURRENT_TRANSACTION()").fetchall()) == [(None,)]


async def test_a_transaction_that_is_young_or_of_another_store_or_user_is_not_aborted(
    snowflake: SnowflakeServer, store: Store, killed: Any
) -> None:
    with snowflake.connect(user="OTHER") as other, snowflake.connect(paramstyle="qmark") as asking:
        other.cursor().execute(f"BEGIN NAME {name_of(store)}")
        with snowflake.connect() as another_stores:
            another_stores.cursor().execute("BEGIN NAME drumbeat_0")
            time.sleep(1.6)
            leave_open(killed, store)

            assert abort_abandoned(asking, name_of(store)) == 0
            time.sleep(1.6)
            assert abort_abandoned(asking, name_of(store)) == 1
            assert [is_open(each) for each in (killed, another_stores, other)] == [False, True, True]


def is_open(session: Any) -> bool:
    [(found,)] = session.cursor().execute("SELECT CURRENT_TRANSACTION()").fetchall()
    return found is not None


async def test_a_process_that_was_paused_commits_no_part_of_its_script(store: Store, url: str) -> None:
    """What it sends after its transaction was aborted belongs to no transaction of its own."""
    begun, go_on = threading.Event(), threading.Event()

    def script() -> Script[None]:
        yield "add_pool", {"pool_id": ONE, **POOL}
        begun.set()
        go_on.wait(30)
        yield "add_pool", {"pool_id": OTHER, **POOL}

    async with open_store(url) as quick, asyncio.TaskGroup() as tasks:
        paused = tasks.create_task(refused(database(store).transact(script())))
        await asyncio.to_thread(begun.wait, 30)
        await quick.pools.create(new_pool())
        go_on.set()

        assert re.search(r"took \d+ s and was rolled back", await paused)
        for pool_id in (ONE, OTHER):
            with pytest.raises(NotFound):
                await quick.pools.get(pool_id)
    await store.pools.create(new_pool())


async def test_a_late_commit_of_an_aborted_transaction_is_noticed(snowflake: SnowflakeServer, store: Store, url: str) -> None:
    async with open_store(url) as quick, asyncio.TaskGroup() as tasks:
        snowflake.delay("^COMMIT", 6.0)
        late = new_pool()
        error = tasks.create_task(refused(store.pools.create(late)))
        await asyncio.sleep(1)
        await quick.pools.create(new_pool())

        assert "aborted before it could be committed" in await error
        with pytest.raises(NotFound):
            await quick.pools.get(late.pool_id)


async def test_a_late_commit_of_a_transaction_that_nobody_aborted_counts(snowflake: SnowflakeServer, store: Store) -> None:
    snowflake.delay("^COMMIT", 2.0)

    made = await store.pools.create(new_pool())

    assert (await store.pools.get(made.pool_id)).pool_id == made.pool_id
    assert any("DESCRIBE TRANSACTION" in each.sql for each in snowflake.statements())


async def refused(write: Awaitable[object]) -> str:
    with pytest.raises(TransactionTooLong) as caught:
        await write
    return str(caught.value)
