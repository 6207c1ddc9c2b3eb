"""Workers that fail before they do anything: counted, held back, tried again one at a time, forgotten once it is mended."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.job import JobStatus
from drumbeat.core.worker import ExitCode, Worker, WorkerId, WorkerStatus
from drumbeat.pool.breaker import LONGEST, SHORTEST, TRIES, breaker_message, failure_streak, next_start_at, start_limit
from drumbeat.pool.explain import ReasonCode
from drumbeat.pool.model import FailureStreak
from drumbeat.pool.service import Pool
from drumbeat.store.interface import WorkerChange
from pool.seen import NOW, POOL, seconds
from pool.stage import Stage

BROKEN = "handler 'nope:f': cannot import 'nope': ModuleNotFoundError: No module named 'nope'"


def ended(ago: float, status: WorkerStatus = WorkerStatus.ERROR, **more: Any) -> Worker:
    given = {"exit_code": ExitCode.CONFIGURATION, "started_at": NOW, "error": BROKEN, **more}
    worker_id = WorkerId(f"w{1000 - ago:06.1f}")
    return Worker(pool_id=POOL, worker_id=worker_id, slot=0, status=status, ended_at=NOW - seconds(ago), **given)


CLEAN: dict[str, Any] = {"status": WorkerStatus.TERMINATED, "exit_code": 0}


@pytest.mark.parametrize(
    ("rows", "failed"),
    [
        ([], 0),
        ([ended(5), ended(3), ended(1)], 3),
        ([ended(5), ended(3, **CLEAN), ended(1)], 1),
        ([ended(5), ended(3), ended(1, **CLEAN)], 0),
        ([ended(3), ended(2, WorkerStatus.LOST), ended(1)], 2),
        ([ended(3), ended(2, meta={"spawn_failed": True}, **CLEAN), ended(1)], 2),
        ([ended(3), ended(2, operations=1), ended(1)], 1),
        ([ended(3), ended(2, errors=1), ended(1)], 1),
        ([ended(1, exit_code=ExitCode.STORE_LOST)], 0),
        ([ended(1, exit_code=-9)], 0),
        ([ended(1, exit_code=None, started_at=None)], 1),
        ([ended(1, exit_code=ExitCode.FATAL)], 1),
        ([Worker(pool_id=POOL, worker_id=WorkerId("live"), slot=0), ended(1)], 1),
    ],
)
def test_only_the_last_that_failed_before_they_did_anything_count(rows: list[Worker], failed: int) -> None:
    assert failure_streak(rows).failed == failed


def test_what_failed_before_it_was_mended_is_forgotten() -> None:
    rows = [ended(ago) for ago in (9, 8, 7, 1)]

    assert failure_streak(rows, NOW - seconds(5)).failed == 1


@pytest.mark.parametrize(
    ("failed", "lasted", "wait"),
    [
        (TRIES - 1, 5, None),
        (TRIES, 0, SHORTEST),
        (TRIES, 29, SHORTEST),
        (TRIES, 100, seconds(100)),
        (99, 10_000, LONGEST),
    ],
)
def test_it_is_held_back_as_long_as_it_has_failed_already(failed: int, lasted: float, wait: timedelta | None) -> None:
    found = FailureStreak(failed=failed, first_at=NOW - seconds(lasted), last_at=NOW)

    assert next_start_at(found) == (None if wait is None else NOW + wait)
    assert (breaker_message(found) is None) is (wait is None)


def test_then_one_is_tried_at_a_time() -> None:
    found = FailureStreak(failed=5, first_at=NOW, last_at=NOW, error=BROKEN)
    unproven = Worker(pool_id=POOL, worker_id=WorkerId("a"), slot=0)
    proven = Worker(pool_id=POOL, worker_id=WorkerId("b"), slot=1, operations=3)
    later = NOW + SHORTEST

    assert start_limit(FailureStreak(), [], NOW) is None
    assert [start_limit(found, living, NOW) for living in ([], [proven])] == [0, 0]
    assert [start_limit(found, living, later) for living in ([], [proven], [unproven], [unproven, proven])] == [1, 1, 0, 0]


async def fail_all(stage: Stage) -> int:
    """Every worker that was started finds that its handler cannot be imported."""
    started = await stage.spawned()
    for worker_id in started:
        await stage.join(worker_id)
        change = WorkerChange(exit_code=ExitCode.CONFIGURATION, error=BROKEN)
        await stage.store.membership.move(POOL, worker_id, worker_id, WorkerStatus.ERROR, BROKEN, change)
        stage.spawner.end(POOL, worker_id, exit_code=1)
    return len(started)


async def test_a_handler_that_cannot_be_imported_does_not_burn_through_workers() -> None:
    stage = await Stage().open(max_workers=4)
    await stage.push(10)
    burnt = 0

    for _ in range(360):
        await stage.checker.check(POOL)
        burnt += await fail_all(stage)
        await stage.clock.advance(seconds(10))

    assert 4 < burnt <= 20
    assert len(await stage.jobs(JobStatus.PENDING)) == 10


async def test_it_is_said_in_the_beat_the_status_and_the_explanation() -> None:
    stage = await Stage().open(max_workers=4)
    desk = Pool(stage.store, stage.clock, POOL, "me")
    await stage.push(10)
    await stage.checker.check(POOL)
    await fail_all(stage)
    await stage.checker.check(POOL)
    [job, *_] = await stage.jobs()

    report = await stage.checker.check(POOL)

    assert report.summary["failing"] == 4
    assert "the last 4 workers failed before they ran a job (handler 'nope:f': cannot import 'nope'" in (report.why_not or "")
    assert BROKEN in ((await desk.status()).trouble or "")
    explained = await desk.explain(job.job_id)
    assert explained.why is ReasonCode.WORKERS_FAIL
    assert BROKEN in str(explained)


@pytest.mark.parametrize("way", ["resume", "update"])
async def test_once_it_is_mended_workers_are_started_at_once(way: str) -> None:
    stage = await Stage().open(max_workers=4)
    desk = Pool(stage.store, stage.clock, POOL, "me")
    await stage.push(10)
    await stage.checker.check(POOL)
    await fail_all(stage)
    await stage.clock.advance(seconds(1))

    await (desk.resume() if way == "resume" else desk.create(exist_ok=True, handlers={"": "work:f"}))
    await stage.checker.check(POOL)

    assert len(await stage.spawned()) == 4
    assert (await desk.status()).trouble is None


async def test_one_that_works_ends_it() -> None:
    stage = await Stage().open(max_workers=4)
    await stage.push(10)
    await stage.checker.check(POOL)
    await fail_all(stage)
    await stage.clock.advance(SHORTEST + seconds(1))
    await stage.checker.check(POOL)
    [tried] = await stage.spawned()
    await stage.join(tried)
    job = await stage.claim(tried)
    assert job is not None
    await stage.finish(job)
    await stage.leave(tried)

    await stage.checker.check(POOL)

    assert len(await stage.spawned()) == 4


async def test_no_worker_is_started_for_a_type_whose_handler_the_last_one_could_not_load() -> None:
    stage = await Stage().open(max_workers=4, handlers={"a": "work:f", "gone": "work:gone"})
    desk = Pool(stage.store, stage.clock, POOL, "me")
    await stage.push(3, type="gone")
    started = []

    for _ in range(70):
        await stage.checker.check(POOL)
        for worker_id in await stage.spawned():
            started.append(worker_id)
            await stage.join(worker_id)
            meta = {"types": ["a"], "not_loaded": {"gone": "handler 'work:gone': module 'work' has no 'gone'"}}
            end = WorkerChange(exit_code=ExitCode.CLEAN, meta=meta)
            await stage.store.membership.move(POOL, worker_id, worker_id, WorkerStatus.TERMINATED, "no job is left", end)
            stage.spawner.end(POOL, worker_id, exit_code=0)
        await stage.clock.advance(seconds(10))

    assert len(started) == 6, "three at first, and three once it is tried again after ten minutes"
    report = await stage.checker.check(POOL)
    assert "3 jobs of type 'gone' wait: workers cannot load the handler 'work:gone'" in (report.why_not or "")
    await stage.push(1, type="a")
    await stage.checker.check(POOL)
    assert len(await stage.spawned()) == 1
    await desk.resume()
    await stage.checker.check(POOL)
    assert len(await stage.spawned()) == 4
