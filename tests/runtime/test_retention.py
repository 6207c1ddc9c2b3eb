"""What is over and old is deleted by itself: a little at a time, by one process, and never what a run measured."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.beat import NewBeat
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidSettings, StoreUnavailable
from drumbeat.core.job import AttemptOutcome, JobOutcome, NewJob
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.retention import (
    FOR_EVER,
    USUAL,
    Prunable,
    Pruned,
    Retention,
    read_retention,
    retention_of,
    write_retention,
)
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.runtime.retention import EVERY, IDLE_STEPS, LEASE, LEASES, NOTE, WITHIN, Housekeeping
from drumbeat.store.interface import ClaimRequest
from drumbeat.store.memory import MemoryStore

DAY = timedelta(days=1)
PAPERS, RUN = PoolId("papers"), PoolId("run")


@pytest.fixture
def keeping(store: MemoryStore, clock: ManualClock) -> Housekeeping:
    return Housekeeping(store, None, clock, "me")


async def fill(store: MemoryStore, pool_id: PoolId, kind: PoolKind, **policy: Any) -> None:
    """Two beats and a log line; in a pool of jobs also a done and a poisoned job."""
    await store.pools.create(pool(pool_id, kind, **policy))
    if kind is PoolKind.JOBS:
        await end_two_jobs(store, pool_id)
    for _ in range(2):
        await store.beats.append(pool_id, NewBeat(owner="a", epoch=1, view={}))
    await store.logs.append(pool_id, [NewLog(level="INFO", logger="a", message="said")])


async def end_two_jobs(store: MemoryStore, pool_id: PoolId) -> None:
    await store.queue.push(pool_id, [NewJob(payload=n, max_attempts=1) for n in range(2)])
    me = Holder(pool_id=pool_id, worker_id=WorkerId("w"))
    done, failed = await store.queue.claim(ClaimRequest(pool_id=pool_id, holder=me, lease=DAY, limit=2))
    verdicts = [
        JobOutcome(token=done.token, outcome=AttemptOutcome.DONE),
        JobOutcome(token=failed.token, outcome=AttemptOutcome.FAILED),
    ]
    await store.queue.settle(me, verdicts)


async def left(store: MemoryStore, pool_id: PoolId) -> tuple[int, int, int]:
    """Jobs, beats and log lines."""
    jobs, beats, logs = store.jobs.list(pool_id), store.beats.list(pool_id), store.logs.list(pool_id)
    return len(await jobs), len(await beats), len(await logs)


async def test_each_is_deleted_at_its_age_and_what_a_run_measured_never(
    store: MemoryStore, clock: ManualClock, keeping: Housekeeping
) -> None:
    await fill(store, PAPERS, PoolKind.JOBS)
    await fill(store, RUN, PoolKind.BENCH)
    await clock.advance(6 * DAY)
    assert (dict(+await keeping.tidy()), await left(store, PAPERS)) == ({}, (2, 2, 1))

    await clock.advance(2 * DAY)
    gone = await keeping.tidy()

    assert dict(+gone) == {Prunable.DONE: 1, Prunable.BEATS: 1, Prunable.LOGS: 1}
    assert await left(store, PAPERS) == (1, 1, 0)
    await clock.advance(30 * DAY)
    assert dict(+await keeping.tidy()) == {Prunable.POISONED: 1}
    assert (await left(store, PAPERS), await left(store, RUN)) == ((0, 1, 0), (0, 2, 1))


async def test_one_time_leases_are_kept_for_a_day_after_their_end_however_short_the_retention(
    store: MemoryStore, clock: ManualClock
) -> None:
    """A process that was suspended may still have the fence of such a lease, such as that for a pool's schedules."""
    keeping = Housekeeping(store, read_retention("workers=1m"), clock, "me")
    suspended = await store.leases.acquire("schedules/papers", "suspended", timedelta(minutes=1))
    await clock.advance(timedelta(hours=1))
    assert not +await keeping.tidy()
    newer = await store.leases.acquire("schedules/papers", "b", timedelta(minutes=1))

    assert suspended is not None
    assert newer is not None
    assert newer.epoch == suspended.epoch + 1
    await clock.advance(2 * DAY)
    assert dict(+await keeping.tidy()) == {LEASES: 1}


async def test_expired_one_time_leases_are_deleted_as_late_as_workers_and_without_any_pool(
    store: MemoryStore, clock: ManualClock, keeping: Housekeeping
) -> None:
    await store.leases.acquire("webhook/crawler/one", "a", DAY)
    await store.leases.acquire("crawler", "a", DAY)
    await clock.advance(7 * DAY)
    assert not +await keeping.tidy()

    await clock.advance(2 * DAY)
    assert dict(+await keeping.tidy()) == {LEASES: 1}

    assert await store.leases.find("webhook/crawler/one") is None
    assert await store.leases.find("crawler") is not None
    await store.leases.acquire("webhook/crawler/two", "a", DAY)
    await clock.advance(60 * DAY)
    await Housekeeping(store, FOR_EVER, clock, "operator").tidy()
    assert await store.leases.find("webhook/crawler/two") is not None


async def test_a_pools_own_policy_counts_and_one_that_cannot_be_read_keeps_all(
    store: MemoryStore, clock: ManualClock, keeping: Housekeeping, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(store, PAPERS, PoolKind.JOBS, retention="jobs=never,poisoned=1h")
    await fill(store, PoolId("strange"), PoolKind.JOBS, retention="jobs=soon")
    await clock.advance(8 * DAY)

    await keeping.tidy()

    assert [job.payload for job in await store.jobs.list(PAPERS)] == [0]
    assert (await left(store, PAPERS), await left(store, PoolId("strange"))) == ((1, 1, 0), (2, 2, 1))
    assert "pool strange: no old rows are deleted: retention: expected an age" in caplog.text


async def test_what_is_set_in_one_process_counts_for_others_of_the_store(
    store: MemoryStore, clock: ManualClock, keeping: Housekeeping
) -> None:
    await fill(store, PAPERS, PoolKind.JOBS)
    await Housekeeping(store, FOR_EVER, clock, "operator").tidy()
    await clock.advance(60 * DAY)

    assert (dict(+await keeping.tidy()), await left(store, PAPERS)) == ({}, (2, 2, 1))

    await clock.advance(EVERY)
    await Housekeeping(store, replace(FOR_EVER, logs=90 * DAY), clock, "operator").tidy()
    await clock.advance(60 * DAY)
    assert dict(+await keeping.tidy()) == {Prunable.LOGS: 1}


async def test_what_the_store_says_is_written_only_when_it_changes(store: MemoryStore, clock: ManualClock) -> None:
    await Housekeeping(store, FOR_EVER, clock, "operator").tidy()
    first = await store.notes.find(NOTE)
    await clock.advance(EVERY)

    await Housekeeping(store, FOR_EVER, clock, "operator").tidy()

    assert await store.notes.find(NOTE) == first


@pytest.mark.parametrize("strange", [{NOTE: "jobs=soon"}, {NOTE: 7}, {}])
async def test_nothing_is_deleted_while_what_the_store_says_cannot_be_read(
    store: MemoryStore, clock: ManualClock, keeping: Housekeeping, caplog: pytest.LogCaptureFixture, strange: dict[str, Any]
) -> None:
    await fill(store, PAPERS, PoolKind.JOBS)
    await store.notes.put(NOTE, strange)
    await clock.advance(60 * DAY)

    assert not await keeping.tidy()
    assert "no old rows are deleted: retention: expected" in caplog.text


async def test_of_many_processes_one_looks_and_nobody_again_for_some_minutes(
    store: MemoryStore, clock: ManualClock, keeping: Housekeeping
) -> None:
    await keeping.tidy()
    await fill(store, PAPERS, PoolKind.JOBS)
    another = Housekeeping(store, Retention(jobs=timedelta()), clock, "another")

    await clock.advance(EVERY / 2)
    assert not +await another.tidy()
    await clock.advance(EVERY)
    assert (+await another.tidy())[Prunable.DONE] == 1


async def test_a_round_ends_in_time_and_the_next_beat_goes_on(
    store: MemoryStore, clock: ManualClock, keeping: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.pools.create(pool(PAPERS, PoolKind.JOBS))
    steps = 0

    async def slow(*asked: object) -> Pruned:
        nonlocal steps
        steps += 1
        await clock.advance(WITHIN)
        return Pruned(rows=1, more=True)

    monkeypatch.setattr(store.upkeep, "prune_some", slow)

    assert (await keeping.tidy()).total() == steps == 1
    assert (await keeping.tidy()).total() == 1
    lease = await store.leases.find(LEASE)
    assert lease is not None
    assert lease.epoch == 2


async def test_a_round_ends_in_time_between_pools_too(
    store: MemoryStore, clock: ManualClock, keeping: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(50):
        await store.pools.create(pool(f"p{n}", PoolKind.JOBS))
    asked: list[object] = []

    async def slow(pool_id: PoolId, *more: object) -> Pruned:
        asked.append(pool_id)
        await clock.advance(WITHIN / 10)
        return Pruned(rows=0, more=False)

    monkeypatch.setattr(store.upkeep, "prune_some", slow)

    await keeping.tidy()
    assert len(asked) == 10
    await keeping.tidy()
    assert len(asked) == 10, "a round that found nothing old is followed by a pause"
    await clock.advance(EVERY)
    await keeping.tidy()
    assert len(asked) == 20


async def test_jobs_that_are_not_old_yet_keep_a_round_from_nothing_else(
    store: MemoryStore, clock: ManualClock, keeping: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.pools.create(pool(PAPERS, PoolKind.JOBS))
    asked: Counter[Prunable] = Counter()

    async def endless(pool_id: PoolId, what: Prunable, age: timedelta) -> Pruned:
        asked[what] += 1
        return Pruned(rows=0, more=what is Prunable.DONE)

    async def nothing(duration: timedelta) -> None: ...

    monkeypatch.setattr(store.upkeep, "prune_some", endless)
    monkeypatch.setattr(clock, "sleep", nothing)

    await keeping.tidy()
    await keeping.tidy()

    assert (asked[Prunable.DONE], asked[Prunable.LOGS]) == (IDLE_STEPS, 1)


async def test_a_store_that_is_away_is_no_error(
    store: MemoryStore, keeping: Housekeeping, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*asked: object) -> None:
        raise StoreUnavailable("gone for lunch")

    monkeypatch.setattr(store.leases, "acquire", away)

    assert not await keeping.tidy()
    assert "gone for lunch; retrying after a later beat" in caplog.text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", USUAL),
        ("off", FOR_EVER),
        (" jobs = 30d , poisoned=never", Retention(jobs=30 * DAY, poisoned=None)),
        (
            "logs=12h,beats=90m,samples=2w,workers=0d",
            Retention(logs=DAY / 2, beats=DAY / 16, samples=14 * DAY, workers=0 * DAY),
        ),
    ],
)
def test_ages_are_read(text: str, kept: Retention) -> None:
    assert read_retention(text) == kept
    assert read_retention(write_retention(kept), FOR_EVER) == kept


@pytest.mark.parametrize("text", ["job=7d", "jobs", "jobs=7", "jobs=-1d", "7d", "jobs=7d;logs=1d"])
def test_what_is_no_age_is_said(text: str) -> None:
    with pytest.raises(InvalidSettings, match="retention: expected"):
        read_retention(text)


def test_a_policy_that_is_no_text_is_said() -> None:
    with pytest.raises(InvalidSettings, match="pool p, retention: expected text such as jobs=7d,logs=1d, got 7"):
        retention_of(pool("p", PoolKind.JOBS, retention=7), USUAL)
