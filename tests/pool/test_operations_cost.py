"""What an operation by filter costs does not grow with finished jobs: counted in steps and rows, never in seconds."""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import asyncpg
import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.pool.job_filter import JobFilter
from drumbeat.pool.service import Pool
from drumbeat.store import Store, open_store
from drumbeat.store.sql import postgres
from store.test_history_costs import MOST_ROWS, POOL, begin, counting_steps, plans, recording, rows_of, walks
from thorough import THOROUGH

FINISHED = 1_000_000 if THOROUGH else 20_000
FILL = (
    "INSERT INTO jobs (pool_id, type, payload, status, lease_owner, lease_epoch, created_at, claimed_at, finished_at) "
    "SELECT 'p', 'x', '{}', 'done', 'w', 1, n, n, n FROM numbers"
)

Operation = Callable[[Pool], Awaitable[object]]


async def count_all(pool: Pool) -> object:
    return await pool.cancel_where({"statuses": ["pending", "claimed"], "older_than": 0}, dry_run=True)


async def cancel_group(pool: Pool) -> object:
    return await pool.cancel_where(JobFilter(group="g"))


async def requeue_poisoned(pool: Pool) -> object:
    return await pool.requeue_where({"statuses": ["poisoned"]})


async def requeue_cancelled(pool: Pool) -> object:
    return await pool.requeue_where({"statuses": ["cancelled"]})


async def group_errors(pool: Pool) -> object:
    return await pool.errors()


async def pause_type(pool: Pool) -> object:
    await pool.pause(types=["x"])
    await pool.claim_many(1)
    return await pool.resume(types=["x"])


OPERATIONS: Sequence[Operation] = (count_all, cancel_group, requeue_poisoned, group_errors, pause_type, requeue_cancelled)


def pool_of(store: Store) -> Pool:
    return Pool(store, SystemClock(), POOL, "me")


async def steps_of(store: Store, steps: list[int]) -> dict[str, int]:
    found = {}
    for operation in OPERATIONS:
        steps[0] = 0
        await operation(pool_of(store))
        found[operation.__name__] = steps[0]
    return found


async def test_sqlite_makes_no_more_steps_for_a_filter_with_many_finished_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "drumbeat.db"
    async with counting_steps(monkeypatch) as steps, open_store(f"sqlite:///{path}?synchronous=normal", create=True) as store:
        await begin(store)
        empty = await steps_of(store, steps)
        with sqlite3.connect(path) as connection:
            numbers = f"WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < {FINISHED}) SELECT n FROM t"
            connection.execute(f"CREATE TEMP TABLE numbers AS {numbers}")
            connection.execute(FILL)
        connection.close()
        full = await steps_of(store, steps)

    assert {name: many for name, many in full.items() if many > 3 * empty[name] + 20} == {}, (empty, full)


async def test_postgresql_touches_no_more_rows_for_a_filter_with_many_finished_jobs(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**postgres._PLANS, "search_path": "drumbeat"}
    connection = await asyncpg.connect(postgres_url, server_settings=settings, statement_cache_size=0)
    async with open_store(postgres_url, create=True) as store:
        await begin(store)
        async with recording(monkeypatch) as asked:
            for operation in OPERATIONS:
                await operation(pool_of(store))
        await connection.execute(f"CREATE TEMP TABLE numbers AS SELECT generate_series(1, {FINISHED}) AS n")
        await connection.execute(FILL)
        await connection.execute("ANALYZE")
        full = await plans(connection, asked)
    await connection.close()

    assert {"list_jobs", "cancel_job", "requeue_job"} <= full.keys()
    assert {name: (rows_of(found), walks(found)) for name, found in full.items() if rows_of(found) > MOST_ROWS} == {}
