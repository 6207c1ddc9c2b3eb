"""A job that changes after pruning has listed it and before it is deleted is checked again: a requeued job is not deleted."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.job import AttemptOutcome, JobStatus
from drumbeat.core.pool import PoolRow
from drumbeat.core.retention import Prunable
from drumbeat.store.contract.given import new_pool
from drumbeat.store.contract.given_jobs import claimed, claiming, holder, pushed, verdict
from drumbeat.store.open import open_store
from drumbeat.store.sql.store import SqlStore

ANY_AGE = timedelta(microseconds=-1)
LONG = timedelta(days=1)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/drumbeat.db" if sqlite else request.getfixturevalue("postgres_url")
    async with open_store(url, create=True) as store:
        assert isinstance(store, SqlStore)
        yield store


async def poisoned(store: SqlStore, pool: PoolRow) -> None:
    job = await claimed(store, pool)
    await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.FAILED)])


@pytest.mark.parametrize(
    ("age", "then"),
    [(ANY_AGE, None), (ANY_AGE, AttemptOutcome.DONE), (LONG, AttemptOutcome.FAILED)],
    ids=["waits again", "done since", "poisoned again just now"],
)
async def test_a_job_that_was_requeued_after_it_was_listed_is_not_pruned(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, age: timedelta, then: AttemptOutcome | None
) -> None:
    pool = await store.pools.create(new_pool())
    [job_id] = await pushed(store, pool, "x", max_attempts=1)
    await poisoned(store, pool)
    read = store.database.read

    async def with_requeue(query: str, values: dict[str, Any] | None = None) -> Any:
        found: Any = await read(query, values or {})
        if query != "list_prunable":
            return found
        monkeypatch.setattr(store.database, "read", read)
        await store.jobs.requeue(pool.pool_id, [job_id])
        if then is not None:
            [again] = await store.queue.claim(claiming(pool))
            await store.queue.settle(holder(pool), [verdict(again, then)])
        return [{**row, "is_old": 1} for row in found]  # as it was, if it had waited long

    monkeypatch.setattr(store.database, "read", with_requeue)

    gone = await store.upkeep.prune_some(pool.pool_id, Prunable.POISONED, age)

    expected = {None: JobStatus.PENDING, AttemptOutcome.DONE: JobStatus.DONE, AttemptOutcome.FAILED: JobStatus.POISONED}[then]
    assert gone.rows == 0
    assert (await store.jobs.get(job_id)).status is expected
