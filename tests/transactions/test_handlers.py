"""Handlers that complete their job in a transaction of their own: the effect and the job are done together or not at all."""

import asyncio
from datetime import timedelta
from pathlib import Path

import asyncpg
import psycopg
import pytest

import drumbeat
from drumbeat import JobContext, JobFailure
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput, StaleWrite
from drumbeat.core.job import AttemptOutcome, JobOutcome, JobStatus
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.in_flight import InFlightJob
from drumbeat.pool.worker.own_commit import confirm_outcome
from drumbeat.store import open_store
from drumbeat.testing import pool as pool_in_memory
from transactions.handlers import record, transaction
from transactions.place import WRITE, Place

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("executor", ["threads", "processes"])
async def test_a_handler_completes_its_job_with_its_own_writes(
    place: Place, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    pool = await place.pool()
    job_id = await pool.push({"url": place.url})

    done = await place.db.work(pool.pool_id, record, executor=executor)

    job = await pool.job(job_id)
    assert (job.status, job.result, job.attempts) == (JobStatus.DONE, {"attempt": 1}, 1)
    assert (done.ended, done.finished, done.failed, await place.effects()) == (1, 1, 0, 1)


async def test_an_asynchronous_handler_completes_its_job(in_postgres: Place) -> None:
    pool = await in_postgres.pool()
    ids = await pool.push_many([1, 2, 3])

    async def work(context: JobContext) -> None:
        connection = await asyncpg.connect(in_postgres.url)
        async with connection.transaction():
            await connection.execute(WRITE)
            await context.complete_on(connection, context.payload)
        await connection.close()

    done = await in_postgres.db.work(pool.pool_id, work, concurrency=2)

    assert [(await pool.job(each)).result for each in ids] == [1, 2, 3]
    assert (done.finished, await in_postgres.effects()) == (3, 3)


async def test_a_rolled_back_attempt_fails_and_the_job_is_tried_again(place: Place) -> None:
    pool = await place.pool()
    job_id = await pool.push(1)

    def work(context: JobContext) -> None:
        with transaction(place.url) as connection:
            connection.execute(WRITE)
            context.complete_on(connection, context.attempt)
            if context.attempt == 1:
                raise JobFailure("not this time", retry_in=0)

    done = await place.db.work(pool.pool_id, work)

    job = await pool.job(job_id)
    assert (job.status, job.result, job.attempts, job.last_error) == (JobStatus.DONE, 2, 2, "not this time")
    assert (done.finished, done.failed, await place.effects()) == (1, 1, 1)


async def test_a_handler_that_returns_without_a_commit_has_failed(place: Place) -> None:
    pool = await place.pool()
    job_id = await pool.push(1, max_attempts=1)

    def work(context: JobContext) -> str:
        with transaction(place.url) as connection:
            connection.execute(WRITE)
            context.complete_on(connection)
            connection.rollback()
        return "looks done"

    done = await place.db.work(pool.pool_id, work)

    job = await pool.job(job_id)
    assert (job.status, done.finished, done.failed, await place.effects()) == (JobStatus.POISONED, 0, 1, 0)
    assert "its transaction was not committed; commit it before the handler returns" in (job.last_error or "")


async def test_a_handler_that_raises_after_its_commit_has_done_its_job(place: Place) -> None:
    pool = await place.pool()
    job_id = await pool.push({"url": place.url})

    def work(payload: dict[str, str], context: JobContext) -> None:
        record(payload, context)
        raise RuntimeError("too late")

    done = await place.db.work(pool.pool_id, work, mode="once")

    assert ((await pool.job(job_id)).status, await place.effects()) == (JobStatus.DONE, 1)
    assert (done.ended, done.finished, done.failed) == (1, 1, 0)


async def test_a_step_after_complete_on_is_refused(place: Place) -> None:
    pool = await place.pool()
    job_id = await pool.push(1)

    def work(context: JobContext) -> None:
        context.step_blocking(lambda: 1, step_name="early")
        with transaction(place.url) as connection:
            connection.execute(WRITE)
            context.complete_on(connection)
            context.step_blocking(lambda: 1, step_name="late")

    await place.db.work(pool.pool_id, work)

    job = await pool.job(job_id)
    assert (job.status, await place.effects(), len(await pool.steps(job_id))) == (JobStatus.POISONED, 0, 1)
    assert (job.last_error or "").startswith("expected all steps before complete_on, got step 'late' after it")


async def test_a_step_inside_a_transaction_that_locks_the_store_fails_its_attempt(in_sqlite: Place) -> None:
    pool = await in_sqlite.pool()
    job_id = await pool.push(1, max_attempts=1)

    def work(context: JobContext) -> None:
        with transaction(in_sqlite.url) as connection:
            connection.execute(WRITE)
            context.step_blocking(lambda: 1, step_name="charge")

    async with drumbeat.connect(f"{in_sqlite.url}?busy_timeout=0.01&synchronous=normal") as db:
        await db.work(pool.pool_id, work, lease=timedelta(milliseconds=300))

    job = await pool.job(job_id)
    assert (job.status, await in_sqlite.effects(), await pool.steps(job_id)) == (JobStatus.POISONED, 0, [])
    assert f"step 'charge' of job {job_id} was not recorded before its lease ran out" in (job.last_error or "")


class StoppedClock(ManualClock):
    """A clock on which a sleep lasts until ``go`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()
        self.go = asyncio.Event()

    async def sleep(self, duration: timedelta) -> None:
        self.asleep.set()
        await self.go.wait()


@pytest.mark.parametrize("commit", [True, False])
async def test_a_worker_waits_for_the_transaction_of_a_handler_that_timed_out(in_postgres: Place, commit: bool) -> None:
    """An outcome that is written at once would wait in the store, and so would the outcomes of the worker's other jobs."""
    pool, clock = await in_postgres.pool(), StoppedClock()
    await pool.push(1)
    job = await pool.claim()
    assert job is not None
    assert job.holder is not None
    url = f"{in_postgres.url}?schema=jobs_of_ours"
    held = InFlightJob(job=job, token=job.token, store_url=url)
    outcome = JobOutcome(token=job.token, outcome=AttemptOutcome.TIMED_OUT)

    async with open_store(url) as store, asyncio.TaskGroup() as group:
        claims = Claims(
            queue=store.queue,
            jobs=store.jobs,
            steps=store.job_steps,
            workers=store.workers,
            leases=store.leases,
            pool_id=pool.pool_id,
            holder=job.holder,
            lease=timedelta(minutes=1),
        )
        with psycopg.connect(in_postgres.url) as connection:
            held.context.complete_on(connection)
            confirmed = group.create_task(confirm_outcome(claims, clock, held, outcome))
            await clock.asleep.wait()
            if not commit:
                connection.rollback()
        clock.go.set()

    assert held.is_settled is commit
    assert confirmed.result().outcome is (AttemptOutcome.DONE if commit else AttemptOutcome.TIMED_OUT)


async def test_a_second_completion_of_a_job_is_refused_and_the_first_still_counts(place: Place) -> None:
    pool = await place.pool()
    job_id = await pool.push(1)
    refused: list[str] = []

    def work(context: JobContext) -> None:
        with transaction(place.url) as connection:
            context.complete_on(connection, "first")
            try:
                context.complete_on(connection, "second")
            except StaleWrite as exc:
                refused.append(str(exc))

    await place.db.work(pool.pool_id, work)

    assert ((await pool.job(job_id)).result, len(refused)) == ("first", 1)


async def test_a_result_that_is_not_json_is_refused_before_anything_is_written(place: Place) -> None:
    pool = await place.pool()
    job_id = await pool.push(1)

    def work(context: JobContext) -> None:
        with transaction(place.url) as connection:
            connection.execute(WRITE)
            context.complete_on(connection, object())

    await place.db.work(pool.pool_id, work)

    job = await pool.job(job_id)
    assert (job.status, await place.effects()) == (JobStatus.POISONED, 0)
    assert "expected result to be JSON, got object" in (job.last_error or "")


async def test_a_store_without_transactions_of_the_user_says_so() -> None:
    def work(context: JobContext) -> None:
        context.complete_on(object())

    async with pool_in_memory() as pool:
        await pool.push(1)
        [ran] = await pool.run_until_empty(work)

    assert "complete_on needs a PostgreSQL or SQLite store" in (ran.error or "")
    with pytest.raises(InvalidInput, match="complete_on needs"):
        pool.complete_on(object(), ran.job)
