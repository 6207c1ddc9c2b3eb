"""While the store is away the work goes on, nothing measured is lost, and it ends before others would call it lost."""

import contextlib
from collections import Counter
from typing import Any

import pytest

from drumbeat.core import event
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.pool import PRESETS, PoolKind
from drumbeat.core.worker import ExitCode, WorkerStatus
from runtime.given import BENCH, ME, POOL, FakeWorkload, Slow, World, seconds


async def works(world: World, workload: FakeWorkload, duration: int, each: int = 10) -> None:
    """So many seconds of work pass, an operation at a time."""
    for _ in range(duration):
        await world.passes(0.5)
        workload.count(each)
        await world.passes(0.5)


async def numbers(world: World) -> list[int]:
    return [sample.n for sample in await world.store.samples.list(POOL)]


async def test_a_short_outage_costs_nothing(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        await works(world, workload, 5)
        with world.store.unavailable():
            await works(world, workload, 20)
        await world.store.workers.set_targets(POOL, {ME: event.WorkerTarget(connections=9, reason="test")})
        await works(world, workload, 15)
        assert worker.code() is None
        assert (await world.row()).status is WorkerStatus.ACTIVE

    samples = await world.store.samples.list(POOL)
    assert [sample.n for sample in samples] == list(range(1, 41))
    assert [sample.operations for sample in samples] == [10] * 40
    assert [sample.at for sample in samples] == [world.clock.now() - seconds(40 - n) for n in range(1, 41)]
    assert ("set_target", 9, seconds(0)) in workload.calls


async def test_a_sample_whose_answer_was_lost_is_kept_once(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload):
        await works(world, workload, 2)
        for _ in range(4):
            world.store.fail_next(kept=True)
            await works(world, workload, 3)
        await works(world, workload, 3)
    counts = Counter(await numbers(world))
    assert set(counts) == set(range(1, 18))
    assert set(counts.values()) == {1}


async def test_samples_kept_back_are_sent_once_though_the_store_fails_again_on_the_way(
    world: World, workload: FakeWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world.store.samples, world.clock)
    async with world.working(workload):
        with world.store.unavailable():
            await works(world, workload, 6)
        monkeypatch.setattr(world.store, "samples", slow)
        slow.lose = [StoreUnavailable("the answer is lost"), StoreUnavailable("and again")]
        await works(world, workload, 12)
        monkeypatch.undo()
    assert [name for name, _ in slow.asked] == ["append"] * 3
    assert await numbers(world) == list(range(1, 19))


async def test_samples_still_kept_back_at_the_end_are_sent_with_the_last_words(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        with world.store.unavailable():
            await works(world, workload, 5)
        worker.life.request_stop("SIGTERM")
        await world.passes(0)
        assert worker.code() is ExitCode.CLEAN
    assert [sample.operations for sample in await world.store.samples.list(POOL)] == [10] * 5
    assert (await world.row()).operations == 50


async def test_a_move_made_during_an_outage_is_written_after_it(world: World) -> None:
    workload = FakeWorkload(clock=world.clock, prepare_takes=seconds(5))
    await world.tell(event.start(1))
    async with world.alive(workload):
        await world.passes(1)
        with world.store.unavailable():
            await world.passes(10)
            assert "start" in workload.names
        await world.passes(16)
    assert (await world.moves())[:3] == ["starting", "waiting", "active"]


async def test_a_stop_said_during_an_outage_is_obeyed_after_it(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        await world.tell(event.stop("enough"))
        with world.store.unavailable():
            await world.passes(30)
            assert worker.code() is None
        await world.passes(16)
        assert worker.code() is ExitCode.CLEAN


@pytest.mark.parametrize("kind", PRESETS)
async def test_exit_2_after_too_long_an_outage_and_before_anyone_calls_it_lost(kind: PoolKind) -> None:
    world = await World().with_pool(kind)
    workload, thresholds = FakeWorkload(clock=world.clock, close_takes=seconds(3600)), PRESETS[kind]
    async with world.working(workload, thresholds=thresholds) as worker:
        await world.passes(thresholds.heartbeat_every.total_seconds() * 2)
        heard = (await world.row()).heartbeat_at
        with world.store.unavailable():
            await world.passes(thresholds.give_up_after.total_seconds() - 0.1)
            assert worker.code() is None
            assert "close" not in workload.names
            await world.passes(0.1)
            assert workload.names[-1] == "close"
            remaining = thresholds.lost_after - thresholds.give_up_after
            await world.passes(remaining.total_seconds() * 2 / 3)
            assert worker.code() is ExitCode.STORE_LOST
        assert heard is not None
        assert world.clock.now() - heard < thresholds.lost_after
    assert "drain" not in workload.names


async def test_a_working_workload_does_not_count_as_a_store_that_answers(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        with world.store.unavailable():
            await works(world, workload, 46)
            assert worker.code() is ExitCode.STORE_LOST


async def test_a_store_that_hangs_is_a_store_that_is_away(
    world: World, workload: FakeWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world.store.membership, world.clock)
    monkeypatch.setattr(world.store, "membership", slow)
    async with world.working(workload) as worker:
        await world.passes(3)
        slow.before = seconds(86_400)
        await world.passes(44)
        assert worker.code() is None
        await world.passes(60 - 44 - 1)
        assert worker.code() is ExitCode.STORE_LOST


async def test_the_work_goes_on_while_the_store_hangs(
    world: World, workload: FakeWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world.store.membership, world.clock)
    monkeypatch.setattr(world.store, "membership", slow)
    async with world.working(workload) as worker:
        await works(world, workload, 3)
        slow.before = seconds(86_400)
        await works(world, workload, 20)
        slow.before = seconds(0)
        await works(world, workload, 17)
        assert worker.code() is None
    assert sum(sample.operations for sample in await world.store.samples.list(POOL)) >= 380


async def test_tries_grow_rarer_during_an_outage(world: World, workload: FakeWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(world.store.membership, world.clock)
    monkeypatch.setattr(world.store, "membership", slow)
    async with world.working(workload):
        slow.asked.clear()
        with world.store.unavailable():
            await world.passes(50)
    tries = [at for name, at in slow.asked if name == "beat"]
    assert tries[:7] == [seconds(at) for at in (1, 2, 4, 8, 16, 32, 45)]


async def test_joining_waits_for_a_store_that_comes_back(world: World, workload: FakeWorkload) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with world.store.unavailable():
            worker = await stack.enter_async_context(world.alive(workload))
            await world.passes(20)
            assert (worker.code(), workload.names) == (None, [])
        await world.passes(60)
        assert (await world.row()).status is WorkerStatus.WAITING


async def test_joining_succeeds_after_an_outage(world: World, workload: FakeWorkload) -> None:
    world.store.fail_next(5)
    async with world.alive(workload):
        await world.passes(31)
        assert (await world.row()).status is WorkerStatus.WAITING


async def test_joining_is_given_up_in_time(world: World, workload: FakeWorkload) -> None:
    with world.store.unavailable():
        async with world.alive(workload) as worker:
            await world.passes(BENCH.give_up_after.total_seconds())
            assert worker.code() is ExitCode.STORE_LOST
    assert workload.names == []


async def test_an_outage_while_it_drains_ends_the_drain_in_time(world: World, workload: FakeWorkload) -> None:
    workload.drain_takes = seconds(100)
    async with world.working(workload) as worker:
        await world.tell(event.stop("enough"))
        await world.passes(2)
        with world.store.unavailable():
            await world.passes(50)
            assert worker.code() is ExitCode.STORE_LOST


async def test_a_short_outage_while_it_drains_does_no_harm(world: World, workload: FakeWorkload) -> None:
    workload.drain_takes = seconds(40)
    async with world.working(workload) as worker:
        await world.tell(event.stop("enough"))
        await world.passes(2)
        with world.store.unavailable():
            await world.passes(20)
        await world.passes(20)
        assert worker.code() is ExitCode.CLEAN
    assert (await world.row()).status is WorkerStatus.TERMINATED


async def test_a_process_that_was_paused_goes_on_if_nobody_called_it_lost(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        await world.passes(3)
        await world.clock.advance(seconds(70), settle=0)
        await world.passes(1)
        assert worker.code() is None
        assert (await world.row()).heartbeat_at == world.clock.now()


async def test_the_end_is_recorded_although_the_store_was_away_for_a_moment(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        await world.passes(1)
        with world.store.unavailable():
            workload.over.set()
            await world.passes(0)
            assert worker.code() is None
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN
    assert (await world.row()).status is WorkerStatus.TERMINATED


async def test_a_worker_that_cannot_record_its_end_leaves_anyway(
    world: World, workload: FakeWorkload, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.working(workload) as worker:
        with world.store.unavailable():
            workload.over.set()
            await world.passes(0)
            await world.passes(2)
            assert worker.code() is ExitCode.CLEAN
    assert (await world.row()).is_live
    assert "failed to record that this worker left" in caplog.text


async def test_a_second_request_does_not_wait_for_the_store(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        with world.store.unavailable():
            worker.life.request_stop("SIGTERM")
            await world.passes(0)
            assert worker.code() is None
            worker.life.request_stop("SIGTERM")
            await world.passes(0)
            assert worker.code() is ExitCode.CLEAN


async def test_an_end_whose_answer_was_lost_is_not_called_a_failure(
    world: World, workload: FakeWorkload, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    move = world.store.membership.move

    async def lose_answer(*how: Any) -> None:
        await move(*how)
        raise StoreUnavailable("lost")

    async with world.working(workload) as worker:
        workload.over.set()
        monkeypatch.setattr(world.store.membership, "move", lose_answer)
        await world.passes(0)
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN
    assert (await world.row()).status is WorkerStatus.TERMINATED
    assert "failed to record that this worker left" not in caplog.text


async def test_a_store_that_answers_each_call_just_in_time_is_told_the_end(
    world: World, workload: FakeWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world.store.membership, world.clock)
    monkeypatch.setattr(world.store, "membership", slow)
    async with world.working(workload) as worker:
        slow.before = seconds(4)
        workload.over.set()
        await world.passes(20)
        assert worker.code() is ExitCode.CLEAN
    assert (await world.row()).status is WorkerStatus.TERMINATED
