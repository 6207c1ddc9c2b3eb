"""A pool whose engine is full: as many workers run as it has slots for, no rows pile up, and later checks try again."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from drumbeat.core.errors import Refused, SpawnCause, SpawnFailed
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import NOT_STARTED, WorkerStatus
from drumbeat.pool.beats import beat_report
from drumbeat.pool.engine_change import check_engine_change
from drumbeat.pool.service import Pool
from drumbeat.runtime.beat import BeatReport
from drumbeat.spawn.fake import AnswerLost, FakeSpawner, SpawnFails
from drumbeat.spawn.interface import Instance, Order
from drumbeat.store.interface import PoolChange
from pool.seen import POOL, name, seconds
from pool.stage import Stage

FULL = "engine fake has no free slot (2 of 2 in use)"


class SmallEngine(FakeSpawner):
    """A fake engine with two slots."""

    async def spawn(self, order: Order) -> Instance:
        running = self.running(order.pool_id)
        if order.worker_id not in running and len(running) >= 2:
            self._record("spawn", order.pool_id, order.worker_id)
            raise SpawnFailed(f"worker {order.worker_id}: {FULL}", cause=SpawnCause.NO_CAPACITY)
        return await super().spawn(order)


async def small_stage(**policy: object) -> Stage:
    stage = await Stage().open(max_workers=8, **policy)
    stage.spawner = SmallEngine(stage.clock)
    return stage


def starts(report: BeatReport) -> Sequence[tuple[str, bool]]:
    """The workers that a beat asked for, and whether they were started."""
    return [(action["worker_id"], "error" not in action) for action in report.actions if action["type"] == "Spawn"]


async def test_a_check_says_how_many_workers_it_started_and_why_not_more() -> None:
    stage = await small_stage()
    await stage.push(5)

    report = await stage.checker.check(POOL)

    assert [report.summary[key] for key in ("spawned", "wanted", "not_started")] == [2, 5, FULL]
    assert beat_report(report)["ok"]
    assert stage.spawner.asked("spawn") == [name(0), name(1), name(2)], "after the first refusal no other is asked for"


async def test_a_full_engine_is_a_failure_if_no_worker_of_the_pool_runs() -> None:
    stage = await Stage().open()
    await stage.push(1)
    stage.spawner.faults.append(SpawnFails(reason=FULL))

    assert not beat_report(await stage.checker.check(POOL))["ok"]


async def test_an_engine_that_fails_for_another_reason_is_a_failure_though_workers_run() -> None:
    stage = await Stage().open()
    await stage.push(2)
    stage.spawner.faults.append(SpawnFails(worker_id=name(1), reason="HTTP 401", cause=SpawnCause.AUTH))

    report = await stage.checker.check(POOL)

    assert (report.summary["spawned"], beat_report(report)["ok"]) == (1, False)


async def test_checks_of_a_full_engine_add_one_row_and_use_it_again() -> None:
    stage = await small_stage()
    await stage.push(5)

    for _ in range(20):
        await stage.checker.check(POOL)
        for worker_id in stage.spawner.running(POOL):
            if worker_id in await stage.spawned():
                await stage.join(worker_id)
            await stage.beat(worker_id)
        await stage.clock.advance(seconds(20))

    rows = await stage.workers(live=False)
    assert [(row.worker_id, row.shown_status) for row in rows] == [
        (name(0), "active"),
        (name(1), "active"),
        (name(2), NOT_STARTED),
    ]
    assert rows[2].not_started == FULL


async def test_a_full_engine_is_asked_again_after_a_while_only() -> None:
    stage = await small_stage()
    await stage.push(5)
    await stage.checker.check(POOL)

    early = await stage.checker.check(POOL)
    await stage.clock.advance(seconds(3))
    later = await stage.checker.check(POOL)

    assert (starts(early), early.why_not) == ([], f"5 jobs ready, but {FULL}; the next start is tried after 00:00:02 UTC")
    assert starts(later)[0] == (name(2), False)


async def test_a_full_engine_is_asked_at_once_when_a_worker_has_left() -> None:
    stage = await small_stage()
    await stage.push(5)
    await stage.checker.check(POOL)
    await stage.join(name(0))
    await stage.clock.advance(timedelta(milliseconds=10))
    await stage.leave(name(0))

    report = await stage.checker.check(POOL)

    assert starts(report)[0] == (name(2), True), "the row of the worker that was refused is used"
    assert (await stage.workers())[-1].not_started is None


async def test_a_refused_worker_that_is_not_needed_any_more_is_closed() -> None:
    stage = await small_stage()
    await stage.push(3)
    await stage.checker.check(POOL)
    for number in (0, 1):
        await stage.join(name(number))
        while (job := await stage.claim(name(number))) is not None:
            await stage.finish(job)

    await stage.checker.check(POOL)

    rows = await stage.workers(live=False)
    assert [(row.worker_id, row.status) for row in rows if not row.is_live] == [(name(2), WorkerStatus.TERMINATED)]
    assert rows[-1].shown_status == NOT_STARTED


async def test_a_worker_that_was_refused_is_not_taken_for_lost() -> None:
    stage = await small_stage()
    await stage.push(5)
    await stage.checker.check(POOL)
    await stage.store.pools.change(POOL, _paused(stage))
    await stage.clock.advance(timedelta(hours=1))

    report = await stage.checker.reap(POOL)

    assert name(2) not in [action["worker"]["worker_id"] for action in report[POOL].actions if action["type"] == "MarkLost"]


def _paused(stage: Stage) -> PoolChange:
    return PoolChange(paused_until=stage.clock.now() + timedelta(hours=9))


async def test_a_pool_may_leave_an_engine_that_only_refused_its_workers() -> None:
    stage = await Stage().open()
    await stage.push(1)
    stage.spawner.faults.append(SpawnFails(reason=FULL))
    await stage.checker.check(POOL)
    row: PoolRow = await stage.store.pools.get(POOL)

    await check_engine_change(stage.store, row, "other")
    stage.spawner = FakeSpawner(stage.clock, name="other")
    await stage.checker.check(POOL)

    rows = await stage.workers(live=False)
    assert [(row.provider, row.is_live) for row in rows] == [("fake", False), ("other", True)]


async def test_a_pool_with_a_worker_without_an_answer_may_not_leave_its_engine() -> None:
    stage = await Stage().open()
    await stage.push(1)
    stage.spawner.faults.append(AnswerLost())
    await stage.checker.check(POOL)

    with pytest.raises(Refused, match="may still run"):
        await check_engine_change(stage.store, await stage.store.pools.get(POOL), "other")


async def test_a_worker_whose_start_got_no_answer_is_shown_as_not_started_until_it_joins() -> None:
    stage = await Stage().open()
    await stage.push(1)
    stage.spawner.faults.append(AnswerLost())
    await stage.checker.check(POOL)

    [row] = await stage.workers()
    assert (row.shown_status, row.not_started) == (
        NOT_STARTED,
        "the provider gave no answer; list the workers before trying again",
    )

    joined = await stage.join(name(0))
    assert (joined.shown_status, joined.not_started) == ("active", None)


async def test_a_pool_with_a_refused_worker_can_be_deleted() -> None:
    stage = await Stage().open()
    await stage.push(1)
    stage.spawner.faults.append(SpawnFails(reason=FULL))
    await stage.checker.check(POOL)

    await Pool(stage.store, stage.clock, POOL, "me").delete(unfinished=True)

    assert await stage.store.pools.find(POOL) is None
