"""Every way a life can end: the code it exits with, the state it leaves, what it did for its work."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from drumbeat.core import event
from drumbeat.core.errors import InvalidInput, MissingExtra, NotFound, StoreCorrupt, StoreNotReady, StoreUnavailable
from drumbeat.core.worker import ExitCode, WorkerId, WorkerStatus
from drumbeat.store.interface import JoinRequest
from runtime.given import BENCH, ME, POOL, FakeWorkload, World, seconds


async def test_exit_0_when_the_work_is_done(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        workload.over.set()
        await world.passes(0)
        assert worker.code() is ExitCode.CLEAN
    assert (await world.row()).status is WorkerStatus.TERMINATED
    assert workload.names[-2:] == ["drain", "close"]
    assert worker.life.work_is_done


async def test_a_worker_that_is_told_to_leave_has_not_done_its_work(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        worker.life.request_stop("SIGTERM")
        await world.passes(0)
        assert worker.code() is ExitCode.CLEAN
    assert not worker.life.work_is_done


@pytest.mark.parametrize(
    "error", [InvalidInput("weights total 99, expected 100"), NotFound("no run r"), MissingExtra("PostgreSQL", "postgres")]
)
async def test_exit_1_when_the_configuration_cannot_be_used(world: World, workload: FakeWorkload, error: Exception) -> None:
    workload.failures["prepare"] = error
    async with world.alive(workload) as worker:
        assert worker.code() is ExitCode.CONFIGURATION
    row = await world.row()
    assert (row.status, row.exit_code, row.error) == (WorkerStatus.ERROR, 1, str(error))
    assert workload.names == ["prepare", "close"]


async def test_exit_1_when_there_is_no_such_pool() -> None:
    world = World()
    async with world.alive(FakeWorkload(clock=world.clock)) as worker:
        assert worker.code() is ExitCode.CONFIGURATION


async def test_exit_1_when_another_process_has_the_name(world: World, workload: FakeWorkload) -> None:
    await world.store.membership.join(JoinRequest(pool_id=POOL, worker_id=ME, slot=0, instance="another", host="h", pid=2))
    async with world.alive(workload) as worker:
        assert worker.code() is ExitCode.CONFIGURATION
    assert workload.names == []


@pytest.mark.parametrize(
    ("error", "code"), [(StoreNotReady("no tables"), ExitCode.CONFIGURATION), (RuntimeError("a bug"), ExitCode.FATAL)]
)
async def test_a_store_that_cannot_be_joined_is_told_apart(
    world: World, workload: FakeWorkload, monkeypatch: pytest.MonkeyPatch, error: Exception, code: ExitCode
) -> None:
    async def join(_: JoinRequest) -> None:
        raise error

    monkeypatch.setattr(world.store.membership, "join", join)
    async with world.alive(workload) as worker:
        assert worker.code() is code


async def test_exit_2_when_the_workload_finds_the_store_away(world: World, workload: FakeWorkload) -> None:
    workload.failures["prepare"] = StoreUnavailable("no answer")
    async with world.alive(workload) as worker:
        assert worker.code() is ExitCode.STORE_LOST


async def test_exit_3_when_no_start_comes_in_time(world: World) -> None:
    workload = FakeWorkload(clock=world.clock, prepare_takes=seconds(60))
    async with world.alive(workload) as worker:
        await world.passes(60 + 119)
        assert worker.code() is None
        await world.passes(1)
        assert worker.code() is ExitCode.START_TIMEOUT
    row = await world.row()
    assert (row.status, row.exit_code) == (WorkerStatus.ERROR, 3)
    assert row.error == "expected START within 120 s of being ready, got none"
    assert workload.names == ["prepare", "close"]


@pytest.mark.parametrize("where", ["prepare", "start", "set_phase", "set_target", "drain"])
async def test_exit_4_when_the_workload_fails(world: World, workload: FakeWorkload, where: str) -> None:
    workload.failures[where] = RuntimeError("out of memory")
    await world.tell(event.start(1))
    async with world.alive(workload) as worker:
        await world.passes(1)
        await world.tell(event.set_phase("WARMUP"))
        if worker.code() is None:
            await world.store.workers.set_targets(POOL, {ME: event.WorkerTarget(connections=3, reason="test")})
        await world.passes(1)
        await world.tell(event.stop("enough"))
        await world.passes(1)
        assert worker.code() is ExitCode.FATAL
    row = await world.row()
    assert (row.status, row.exit_code, row.error) == (WorkerStatus.ERROR, 4, "RuntimeError: out of memory")
    assert workload.names[-1] == "close"
    assert workload.names.count("close") == 1


async def test_exit_4_when_the_work_becomes_impossible(world: World, workload: FakeWorkload) -> None:
    workload.breaks_with = RuntimeError("y" * 3000)
    async with world.working(workload) as worker:
        workload.over.set()
        await world.passes(0)
        assert worker.code() is ExitCode.FATAL
    assert (await world.row()).error == ("RuntimeError: " + "y" * 3000)[:1000] + "...(truncated)"
    assert "drain" not in workload.names


async def test_exit_4_when_the_store_answers_nonsense(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        world.store.fail_next(error=StoreCorrupt("not a database"))
        await world.passes(1)
        assert worker.code() is ExitCode.FATAL


@pytest.mark.parametrize("how", ["its row is gone", "another process has its id", "it was marked lost"])
async def test_a_worker_knows_whether_it_was_replaced(world: World, workload: FakeWorkload, how: str) -> None:
    async with world.working(workload) as worker:
        assert not worker.life.is_replaced
        await world.store.workers.move(await world.row(), WorkerStatus.LOST, "silent")
        if how != "it was marked lost":
            row = await world.store.pools.get(POOL)
            await world.store.pools.delete(POOL)
            await world.store.pools.create(row)
        if how == "another process has its id":
            await world.store.membership.join(
                JoinRequest(pool_id=POOL, worker_id=ME, slot=0, instance="another", host="h", pid=2)
            )
        await world.passes(1)
        assert worker.code() in (ExitCode.STORE_LOST, ExitCode.FATAL)
        assert worker.life.is_replaced is (how != "it was marked lost")


async def test_exit_5_when_no_controller_leads_any_more(world: World, workload: FakeWorkload) -> None:
    await world.store.leases.acquire(POOL, "controller", seconds(10))
    async with world.working(workload) as worker:
        await world.passes(130)
        assert worker.code() is None
        await world.passes(1)
        assert worker.code() is ExitCode.CONTROLLER_GONE
    row = await world.row()
    assert (row.status, row.exit_code) == (WorkerStatus.ERROR, 5)
    assert workload.names[-2:] == ["drain", "close"]


async def test_without_any_controller_ever_it_stays(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        await world.passes(600)
        assert worker.code() is None
        assert (await world.row()).status is WorkerStatus.ACTIVE


async def test_a_controller_that_was_cut_off_with_us_is_given_its_time(world: World, workload: FakeWorkload) -> None:
    patient = replace(BENCH, lost_after=seconds(400), give_up_after=seconds(300))
    lease = await world.store.leases.acquire(POOL, "controller", seconds(10))
    assert lease is not None
    async with world.working(workload, thresholds=patient) as worker:
        await world.passes(5)
        with world.store.unavailable():
            await world.passes(200)
        await world.passes(60)
        assert worker.code() is None
        await world.store.leases.renew(lease, seconds(10))
        await world.passes(120)
        assert worker.code() is None


async def test_a_drain_that_outlasts_its_limit_is_a_clean_end_that_says_so(world: World, workload: FakeWorkload) -> None:
    workload.drain_takes = seconds(500)
    workload.figures = replace(workload.figures, active=3)
    async with world.working(workload) as worker:
        await world.tell(event.stop("enough", seconds(30)))
        await world.passes(1)
        await world.passes(29)
        assert worker.code() is None
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN
    row = await world.row()
    assert (row.status, row.meta) == (WorkerStatus.TERMINATED, {"drain_timed_out": True, "abandoned": 3})


async def test_a_workload_that_forgets_its_limit_is_cut_off(world: World, workload: FakeWorkload) -> None:
    workload.drain_takes, workload.heeds_limit = seconds(5000), False
    async with world.working(workload) as worker:
        await world.tell(event.stop("enough"))
        await world.passes(1 + 120 + 1)
        assert worker.code() is ExitCode.CLEAN
    assert (await world.row()).meta == {"drain_timed_out": True, "abandoned": 0}


async def test_it_drains_only_once_however_often_it_is_told(world: World, workload: FakeWorkload) -> None:
    workload.drain_takes = seconds(20)
    async with world.working(workload) as worker:
        await world.tell(event.stop("enough"))
        await world.passes(2)
        await world.tell(event.stop("I said enough"), event.start(1), event.set_phase("COOLDOWN"))
        await world.store.workers.ask_to_drain(POOL, [ME], "again", seconds(1))
        await world.passes(30)
        assert worker.code() is ExitCode.CLEAN
    assert workload.names == ["prepare", "start", "drain", "close"]


async def test_a_first_request_drains_and_a_second_ends_at_once(world: World, workload: FakeWorkload) -> None:
    workload.drain_takes = seconds(60)
    workload.figures = replace(workload.figures, active=2)
    async with world.working(workload) as worker:
        worker.life.request_stop("SIGTERM")
        await world.passes(10)
        assert (await world.row()).status is WorkerStatus.DRAINING
        worker.life.request_stop("SIGTERM")
        await world.passes(0)
        assert worker.code() is ExitCode.CLEAN
    row = await world.row()
    assert (row.status, row.meta) == (WorkerStatus.TERMINATED, {"drain_cut_short": True, "abandoned": 2})


async def test_a_second_request_leaves_a_close_only_a_moment(world: World, workload: FakeWorkload) -> None:
    workload.close_takes = seconds(100)
    async with world.working(workload) as worker:
        worker.life.request_stop("SIGTERM")
        await world.passes(10)
        assert worker.code() is None
        worker.life.request_stop("SIGTERM")
        await world.passes(5)
        assert worker.code() is ExitCode.CLEAN


async def test_a_request_ends_one_that_cannot_even_join(world: World, workload: FakeWorkload) -> None:
    with world.store.unavailable():
        async with world.alive(workload) as worker:
            await world.passes(10)
            worker.life.request_stop("SIGTERM")
            await world.passes(0)
            assert worker.code() is ExitCode.CLEAN
    assert workload.names == []


async def test_a_workload_that_does_not_close_is_left_behind(world: World, workload: FakeWorkload) -> None:
    workload.close_takes = seconds(5000)
    async with world.working(workload) as worker:
        await world.tell(event.stop("enough"))
        await world.passes(1 + 120)
        assert worker.code() is ExitCode.CLEAN


async def test_a_workload_that_cannot_close_is_no_failure(world: World, workload: FakeWorkload) -> None:
    workload.failures["close"] = RuntimeError("socket is gone")
    async with world.working(workload) as worker:
        await world.tell(event.stop("enough"))
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN
    assert (await world.row()).status is WorkerStatus.TERMINATED


@pytest.mark.parametrize(
    ("closed_as", "code"),
    [(WorkerStatus.LOST, ExitCode.STORE_LOST), (WorkerStatus.ERROR, ExitCode.FATAL), (WorkerStatus.TERMINATED, ExitCode.FATAL)],
)
async def test_a_worker_whose_row_is_closed_stops_at_once_without_a_drain(
    world: World, workload: FakeWorkload, closed_as: WorkerStatus, code: ExitCode
) -> None:
    async with world.working(workload) as worker:
        await world.store.workers.move(await world.row(), closed_as, "silent too long")
        await world.passes(1)
        assert worker.code() is code
    assert workload.names == ["prepare", "start", "close"]
    assert (await world.row()).status is closed_as


async def test_a_worker_called_lost_while_it_drains_leaves_at_once(world: World, workload: FakeWorkload) -> None:
    workload.drain_takes = seconds(100)
    async with world.working(workload) as worker:
        await world.tell(event.stop("enough"))
        await world.passes(2)
        await world.store.workers.move(await world.row(), WorkerStatus.LOST, "silent too long")
        await world.passes(1)
        assert worker.code() is ExitCode.STORE_LOST
    assert (await world.row()).status is WorkerStatus.LOST


async def test_the_row_of_another_worker_is_none_of_its_business(world: World, workload: FakeWorkload) -> None:
    other = FakeWorkload(clock=world.clock)
    async with world.working(workload) as worker, world.alive(other, worker_id=WorkerId("w2")) as neighbour:
        await world.passes(1)
        await world.store.workers.move(await world.row(WorkerId("w2")), WorkerStatus.LOST, "silent")
        await world.passes(1)
        assert neighbour.code() is ExitCode.STORE_LOST
        assert worker.code() is None


CUTS: dict[str, Callable[[World], None]] = {
    "nothing": lambda world: None,
    "the store fails": lambda world: world.store.fail_next(),
    "only its answer is lost": lambda world: world.store.fail_next(kept=True),
}


@pytest.mark.parametrize("cut", CUTS)
async def test_the_end_is_written_by_best_effort(world: World, workload: FakeWorkload, cut: str) -> None:
    workload.close_takes = seconds(0.5)
    async with world.working(workload) as worker:
        await world.passes(0.6)
        workload.over.set()
        await world.passes(0.1)
        CUTS[cut](world)
        await world.passes(0.4)
        assert worker.code() is ExitCode.CLEAN


async def test_a_store_that_hangs_at_the_end_is_waited_for_only_a_moment(
    world: World, workload: FakeWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    async with world.working(workload) as worker:
        workload.over.set()
        monkeypatch.setattr(world.store.membership, "beat", hang)
        await world.passes(5 + 1 + 5 + 1 + 4)
        assert worker.code() is None
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN
