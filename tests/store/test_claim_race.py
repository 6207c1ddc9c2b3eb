"""Many processes claim from one pool: nothing is given twice or lost, no group is over its limit, whoever waits is woken."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from drumbeat.core.errors import NotFound
from drumbeat.core.job import AttemptOutcome, JobOutcome, JobStatus, NewJob, RateLimit
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.worker import WorkerId
from drumbeat.store import Store, open_store
from drumbeat.store.contract.given import new_pool, unique
from drumbeat.store.contract.given_jobs import claimed, claiming, holder, pushed
from drumbeat.store.interface import ClaimRequest
from drumbeat.store.sql.queue import LISTENING_POLL
from drumbeat.store.sql.store import SqlStore
from store.own_push import push_on

RACE = Path(__file__).parents[2] / "benchmarks" / "claim_race.py"

HEARD_ONLY = LISTENING_POLL - timedelta(seconds=1)  #: whatever ends a wait of this length was heard, not found by looking

#: pushes a job when it is told to; sys.argv: the store's URL, the pool
PUSHER = """
import asyncio, sys
from drumbeat.core.job import NewJob
from drumbeat.store import open_store

async def main():
    async with open_store(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        await store.queue.push(sys.argv[2], [NewJob(payload="from afar")])

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/drumbeat.db?busy_timeout=60&synchronous=normal"
    made: str = request.getfixturevalue("postgres_url")
    return f"{made}?connections=4"


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    async with open_store(url, create=True) as store:
        assert isinstance(store, SqlStore)
        yield store


@pytest.fixture
async def pool(store: Store) -> PoolRow:
    return await store.pools.create(new_pool())


@pytest.mark.slow
def test_eight_processes_claim_five_thousand_jobs_none_twice_none_lost(url: str) -> None:
    store = url.partition(":")[0]
    command = [sys.executable, str(RACE), "--stores", store, "--url", url, "--processes", "8", "--jobs", "5000"]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout)["figures"][store]
    assert (result["twice"], result["lost"], result["strange"], result["done"]) == (0, 0, 0, 5000)


async def test_a_group_is_never_over_its_limit_though_many_come_and_go(store: Store, pool: PoolRow) -> None:
    await pushed(store, pool, *range(60), group="g", group_limit=3)
    await pushed(store, pool, *range(20))
    running, most, done = 0, 0, 0

    async def work(name: WorkerId) -> None:
        nonlocal running, most, done
        while done < 80:
            for job in await store.queue.claim(claiming(pool, name, limit=2)):
                running += job.group is not None
                most = max(most, running)
                await asyncio.sleep(0.001)
                running -= job.group is not None
                await store.queue.settle(holder(pool, name), [JobOutcome(token=job.token, outcome=AttemptOutcome.DONE)])
                done += 1

    async with asyncio.TaskGroup() as group:
        for n in range(8):
            group.create_task(work(WorkerId(f"w{n}")))

    assert 1 <= most <= 3


async def test_a_push_by_another_process_ends_the_wait(url: str, store: Store, pool: PoolRow) -> None:
    command = [sys.executable, "-c", PUSHER, url, pool.pool_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pusher:
        assert pusher.stdout is not None
        assert await asyncio.to_thread(pusher.stdout.readline) == "ready\n"
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(store.queue.wait(pool.pool_id, HEARD_ONLY))
            await asyncio.sleep(0.1)
            assert pusher.stdin is not None
            pusher.stdin.write("go\n")
            pusher.stdin.flush()

    assert waiting.result()
    assert (await claimed(store, pool)).payload == "from afar"


async def test_a_waiting_worker_asks_little(store: SqlStore, pool: PoolRow, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    read = store.database.read

    async def counted(query: str, values: Any = None) -> Any:
        asked.append(query)
        return await read(query, values)

    monkeypatch.setattr(store.database, "read", counted)

    assert not await store.queue.wait(pool.pool_id, timedelta(seconds=1))

    assert len(asked) <= 2


async def test_jobs_one_cannot_have_do_not_keep_a_waiter_spinning(store: Store, pool: PoolRow) -> None:
    await pushed(store, pool, 1, capability="gpu")
    news = []
    for _ in range(4):
        news.append(await store.queue.wait(pool.pool_id, timedelta()))
        assert await store.queue.claim(claiming(pool)) == []

    assert news[0]
    assert news[2:] == [False, False], "late news of the push may wake it once more, and then no more"


async def test_a_waiter_wakes_when_a_delayed_job_comes_due(store: Store, pool: PoolRow) -> None:
    await pushed(store, pool, 1, delay=timedelta(milliseconds=200))
    await store.queue.claim(claiming(pool))

    assert await store.queue.wait(pool.pool_id, timedelta(seconds=30))

    assert (await claimed(store, pool)).payload == 1


async def test_an_error_with_a_null_character_is_kept(store: Store, pool: PoolRow) -> None:
    await pushed(store, pool, 1)
    job = await claimed(store, pool)

    await store.queue.settle(holder(pool), [JobOutcome(token=job.token, outcome=AttemptOutcome.FAILED, error="bad \x00 bytes")])

    assert (await store.jobs.get(job.job_id)).last_error == "bad \ufffd bytes"


async def test_a_thousand_rated_and_limited_jobs_are_claimed_in_order(store: Store, pool: PoolRow) -> None:
    rate = RateLimit(count=10_000, per=timedelta(minutes=1))
    await pushed(store, pool, *range(200), group="g", group_limit=50, group_rate=rate)
    claim: ClaimRequest = claiming(pool, limit=50)
    got: list[int] = []
    jobs = await store.queue.claim(claim)
    while jobs:
        got += [job.payload for job in jobs]
        jobs = (
            await store.queue.settle(
                holder(pool), [JobOutcome(token=job.token, outcome=AttemptOutcome.DONE) for job in jobs], claim
            )
        ).claimed

    assert got == [*range(200)]


class TestPushOnTheCallersConnection:
    @pytest.fixture
    async def connection(self, postgres_url: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
        async with open_store(postgres_url, create=True):
            pass
        connection = await asyncpg.connect(postgres_url)
        yield connection
        await connection.close()

    @pytest.fixture
    async def store(self, postgres_url: str, connection: "asyncpg.Connection[Any]") -> AsyncIterator[Store]:
        async with open_store(postgres_url) as store:
            yield store

    @pytest.mark.parametrize("given", [{}, {"unique_key": "k"}], ids=["plain", "keyed"])
    async def test_jobs_are_there_when_the_transaction_commits_and_not_before(
        self, store: Store, pool: PoolRow, connection: "asyncpg.Connection[Any]", postgres_url: str, given: dict[str, Any]
    ) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(store.queue.wait(pool.pool_id, timedelta(seconds=9)))
            async with connection.transaction():
                [job_id] = await push_on(postgres_url, connection, pool.pool_id, [NewJob(payload=1, **given)])
                assert await store.jobs.size(pool.pool_id) == 0

        assert waiting.result()
        assert (await store.jobs.get(job_id)).status is JobStatus.PENDING

    async def test_jobs_of_a_transaction_that_was_rolled_back_were_never_there(
        self, store: Store, pool: PoolRow, connection: "asyncpg.Connection[Any]", postgres_url: str
    ) -> None:
        transaction = connection.transaction()
        await transaction.start()
        [job_id] = await push_on(postgres_url, connection, pool.pool_id, [NewJob(payload=1)])
        await transaction.rollback()

        with pytest.raises(NotFound):
            await store.jobs.get(job_id)

    async def test_an_unknown_pool_is_named_in_the_error(
        self, connection: "asyncpg.Connection[Any]", postgres_url: str
    ) -> None:
        async with connection.transaction():
            with pytest.raises(NotFound):
                await push_on(postgres_url, connection, PoolId(unique("none")), [NewJob(payload=1)])


async def test_pipes_left_by_dead_processes_are_cleared_away(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/drumbeat.db", create=True) as store:
        pool = await store.pools.create(new_pool())
        folder = tmp_path / "drumbeat.db-wake"
        folder.mkdir()
        os.mkfifo(folder / "left")
        await pushed(store, pool, 1)

        assert [*folder.iterdir()] == []
