"""A worker goes from state to state as it is told, and is heard of in each."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from drumbeat.core import event
from drumbeat.core.clock import ManualClock
from drumbeat.core.event import EventType, NewEvent, Scope, WorkerTarget
from drumbeat.core.run import Phase, RunStatus
from drumbeat.core.worker import ExitCode, Worker, WorkerId, WorkerStatus
from drumbeat.runtime import instructions
from drumbeat.runtime.instructions import WorkerInstructions, apply_due
from drumbeat.runtime.probe import Reading
from runtime.given import BENCH, ME, POOL, FakeWorkload, World, seconds

TO_RUNNING = (RunStatus.STARTING, RunStatus.RUNNING)


def target(connections: int, ramp: float = 0) -> WorkerTarget:
    return WorkerTarget(connections=connections, reason="test", ramp=seconds(ramp))


async def set_target(world: World, connections: int, ramp: float = 0) -> None:
    await world.store.workers.set_targets(POOL, {ME: target(connections, ramp)})


async def test_a_whole_life(world: World, workload: FakeWorkload) -> None:
    async with world.alive(workload) as worker:
        assert (await world.row()).status is WorkerStatus.WAITING
        await world.tell(event.start(1))
        await world.passes(1)
        assert (await world.row()).status is WorkerStatus.ACTIVE
        await world.passes(10)
        await world.tell(event.stop("enough"))
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN

    row = await world.row()
    assert await world.moves() == ["starting", "waiting", "active", "draining", "terminated"]
    assert workload.names == ["prepare", "start", "drain", "close"]
    assert (row.exit_code, row.error, row.ended_at is not None) == (0, None, True)


@pytest.mark.parametrize(
    ("slow", "status"),
    [
        ({"prepare_takes": seconds(300)}, WorkerStatus.STARTING),
        ({}, WorkerStatus.WAITING),
        ({"start_takes": seconds(300)}, WorkerStatus.WAITING),
        ({"drain_takes": seconds(100)}, WorkerStatus.DRAINING),
        ({"close_takes": seconds(100)}, WorkerStatus.DRAINING),
    ],
)
async def test_it_is_heard_of_in_every_state_however_long_that_lasts(
    world: World, slow: dict[str, timedelta], status: WorkerStatus
) -> None:
    workload = FakeWorkload(clock=world.clock, **slow)  # type: ignore[arg-type]
    if status is WorkerStatus.DRAINING or "start_takes" in slow:
        await world.tell(event.start(1))
    async with world.alive(workload):
        await world.passes(1)
        if status is WorkerStatus.DRAINING:
            await world.tell(event.stop("enough"))
            await world.passes(1)
        before = (await world.row()).heartbeat_count
        await world.passes(90)
        row = await world.row()
        assert row.status is status
        assert row.heartbeat_at == world.clock.now()
        assert row.heartbeat_count == before + 90


async def test_it_begins_with_what_it_was_told_before_start(world: World, workload: FakeWorkload) -> None:
    async with world.alive(workload):
        await world.tell(event.set_phase("WARMUP"))
        await set_target(world, 7)
        await world.tell(event.start(1))
        await world.passes(1)
    assert ("start", "WARMUP", 7) in workload.calls
    assert not {"set_phase", "set_target"} & set(workload.names)


async def test_orders_are_applied_in_order_while_it_works(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload):
        await world.tell(event.set_phase("WARMUP"))
        await set_target(world, 5)
        await set_target(world, 8, ramp=30)
        await world.tell(event.set_phase("MEASUREMENT"))
        await world.passes(2)
        assert (await world.row()).phase == "MEASUREMENT"
    assert workload.calls[2:] == [
        ("set_phase", "WARMUP"),
        ("set_target", 5, seconds(0)),
        ("set_target", 8, seconds(30)),
        ("set_phase", "MEASUREMENT"),
        ("close",),
    ]


async def test_a_target_below_nothing_is_nothing(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload):
        await set_target(world, -3)
        await world.passes(1)
    assert ("set_target", 0, seconds(0)) in workload.calls


async def test_what_the_workload_applied_is_reported(world: World, workload: FakeWorkload) -> None:
    workload.figures = replace(workload.figures, active=3, applied_target=4, operations=5, errors=1, error="x" * 2000)
    async with world.working(workload):
        await world.passes(1)
        row = await world.row()
    assert (row.active, row.applied_target, row.operations, row.errors) == (3, 4, 5, 1)
    assert row.error == "x" * 1000 + "...(truncated)"


class Machine:
    def read(self) -> Reading:
        return Reading(host_cpu_percent=80.0, cgroup_cpu_percent=40.0, host_memory_percent=30.0, gpu={"memory_percent": 5.0})


class BrokenMachine:
    def read(self) -> Reading:
        raise OSError("no /proc")


async def test_the_machine_is_reported_with_every_heartbeat(world: World, workload: FakeWorkload) -> None:
    async with world.alive(workload, probe=Machine()):
        await world.passes(1)
        row = await world.row()
    assert (row.cpu_percent, row.memory_percent, row.gpu) == (40.0, 30.0, {"memory_percent": 5.0})


async def test_a_machine_that_cannot_be_read_is_no_reason_to_die(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload, probe=BrokenMachine()) as worker:
        await world.passes(5)
        assert worker.code() is None
        row = await world.row()
    assert row.heartbeat_count > 4
    assert (row.cpu_percent, row.memory_percent) == (None, None)


async def test_250_events_are_caught_up_with_in_one_beat(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload):
        for n in range(250):
            await set_target(world, n)
        await world.passes(1)
        beats = (await world.row()).heartbeat_count
        await world.passes(1)
        assert (await world.row()).heartbeat_count == beats + 1
    assert [call[1] for call in workload.calls if call[0] == "set_target"] == list(range(250))


async def test_a_late_joiner_reads_everything_and_begins_where_the_run_is(run_world: World) -> None:
    world, workload = run_world, FakeWorkload(clock=run_world.clock)
    await world.store.workers.add([Worker(pool_id=POOL, worker_id=ME, slot=0, target=3)])
    await world.tell(event.start(1), event.set_phase("WARMUP"), *[NewEvent(type="DANCE")] * 150, event.set_phase("MEASUREMENT"))
    await world.move_run(*TO_RUNNING, phase=Phase.MEASUREMENT)
    async with world.alive(workload):
        await world.passes(0)
        assert (await world.row()).status is WorkerStatus.ACTIVE
    assert workload.calls[1] == ("start", "MEASUREMENT", 3)


async def test_a_running_run_opens_the_gate_without_start(run_world: World) -> None:
    world, workload = run_world, FakeWorkload(clock=run_world.clock)
    async with world.alive(workload):
        await world.passes(5)
        assert "start" not in workload.names
        await world.move_run(*TO_RUNNING, phase=Phase.WARMUP)
        await world.passes(1)
    assert ("start", "WARMUP", 0) in workload.calls


@pytest.mark.parametrize("gated", [True, False])
async def test_a_worker_without_a_gate_begins_at_once(world: World, workload: FakeWorkload, gated: bool) -> None:
    async with world.alive(workload, gated=gated):
        await world.passes(1)
        assert ("start" in workload.names) is not gated


@pytest.mark.parametrize(
    ("before", "path"),
    [
        ([], (RunStatus.CANCELLING,)),
        ([], (RunStatus.CANCELLED,)),
        (TO_RUNNING, (RunStatus.STOPPING,)),
        (TO_RUNNING, (RunStatus.CANCELLING,)),
        (TO_RUNNING, (RunStatus.FAILED,)),
        (TO_RUNNING, (RunStatus.STOPPING, RunStatus.COMPLETED)),
    ],
)
async def test_a_run_that_ends_ends_its_workers(
    run_world: World, before: Sequence[RunStatus], path: Sequence[RunStatus]
) -> None:
    world, workload = run_world, FakeWorkload(clock=run_world.clock)
    async with world.alive(workload) as worker:
        await world.move_run(*before)
        await world.passes(1)
        assert worker.code() is None
        await world.move_run(*path)
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN
    assert ("drain" in workload.names) is bool(before)


@pytest.mark.parametrize(
    "events",
    [
        [event.stop("enough")],
        [event.stop("enough"), event.start(1)],
        [event.start(1), event.stop("enough")],
        [event.set_phase("WARMUP"), event.stop("enough", worker_id=ME), event.start(1)],
    ],
)
async def test_a_stop_at_the_gate_ends_it_at_once(world: World, workload: FakeWorkload, events: Sequence[NewEvent]) -> None:
    async with world.alive(workload) as worker:
        await world.tell(*events)
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN
    assert workload.names == ["prepare", "close"]
    assert await world.moves() == ["starting", "waiting", "terminated"]


async def test_a_stop_while_it_gets_ready_ends_it_at_once(world: World) -> None:
    workload = FakeWorkload(clock=world.clock, prepare_takes=seconds(300))
    async with world.alive(workload) as worker:
        await world.tell(event.stop("enough"))
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN
    assert await world.moves() == ["starting", "terminated"]


async def test_orders_for_others_and_nonsense_do_not_touch_it(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        calls = list(workload.calls)
        await world.tell(
            event.stop("enough", worker_id=WorkerId("w2")),
            NewEvent(type=EventType.STOP, scope=Scope.WORKER_GROUP, slot=1),
            NewEvent(type=EventType.SET_PHASE, payload={"phase": None}),
            NewEvent(type=EventType.SET_WORKER_TARGET, payload={"target_connections": "many"}),
            NewEvent(type="DANCE"),
        )
        await world.passes(3)
        assert worker.code() is None
        assert workload.calls == calls


async def test_nonsense_is_complained_of_once(world: World, workload: FakeWorkload, caplog: pytest.LogCaptureFixture) -> None:
    async with world.working(workload):
        await world.tell(NewEvent(type=EventType.SET_PHASE, payload={"phase": None}))
        await world.passes(10)
    assert caplog.text.count("expected phase to be the name of a phase, got None") == 1


async def test_in_a_pool_that_lasts_a_new_worker_ignores_the_stop_of_the_old(world: World, workload: FakeWorkload) -> None:
    await world.tell(event.start(1), event.stop("everybody out"))
    await world.passes(60)
    async with world.alive(workload) as worker:
        await world.passes(2)
        assert worker.code() is None
        assert "start" in workload.names


async def test_a_ramp_is_not_cut_by_reconciling(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload):
        await set_target(world, 100, ramp=60)
        await world.passes(60)
    assert [call for call in workload.calls if call[0] == "set_target"] == [("set_target", 100, seconds(60))]


async def test_a_phase_that_only_the_row_tells_is_taken_over_every_five_seconds(run_world: World) -> None:
    world, workload = run_world, FakeWorkload(clock=run_world.clock)
    await world.passes(100)
    await world.move_run(*TO_RUNNING, phase=Phase.WARMUP)
    async with world.alive(workload):
        await world.passes(2)
        await world.move_run(RunStatus.RUNNING, phase=Phase.MEASUREMENT)
        await world.passes(5)
        await world.move_run(RunStatus.RUNNING, phase=Phase.COOLDOWN)
        await world.passes(5)
    phases = [(call[1], at) for call, at in zip(workload.calls, workload.times, strict=True) if call[0] == "set_phase"]
    assert phases == [("MEASUREMENT", seconds(105)), ("COOLDOWN", seconds(110))]


async def test_an_event_ahead_of_its_row_is_not_undone(run_world: World) -> None:
    world, workload = run_world, FakeWorkload(clock=run_world.clock)
    await world.move_run(*TO_RUNNING, phase=Phase.WARMUP)
    async with world.alive(workload):
        await world.passes(7)
        await world.tell(event.set_phase("MEASUREMENT"))
        await world.passes(30)
    assert [call for call in workload.calls if call[0] == "set_phase"] == [("set_phase", "MEASUREMENT")]


async def test_an_order_for_later_is_obeyed_at_its_moment(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload):
        moment = world.clock.now() + seconds(10.25)
        await world.tell(event.set_phase("MEASUREMENT", moment))
        await world.passes(10.2)
        assert "set_phase" not in workload.names
        await world.passes(0.1)
        assert workload.times[workload.names.index("set_phase")] == seconds(10.25)


async def test_an_appointment_is_waited_for_without_spinning(
    world: World, workload: FakeWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[WorkerInstructions] = []

    def look(wanted: WorkerInstructions, now: datetime) -> WorkerInstructions:
        looks.append(wanted)
        return apply_due(wanted, now)

    monkeypatch.setattr(instructions, "apply_due", look)
    async with world.working(workload):
        await world.tell(event.set_phase("MEASUREMENT", world.clock.now() + seconds(30)))
        await world.passes(29)
        assert len(looks) <= 2
        await world.passes(1)
        assert "set_phase" in workload.names


async def test_a_phase_that_changes_within_an_interval_cuts_it_in_two(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload):
        await world.tell(event.set_phase("WARMUP"), event.set_phase("MEASUREMENT", world.clock.now() + seconds(2.5)))
        await world.passes(2.4)
        workload.count(7)
        await world.passes(0.2)
        workload.count(9)
        await world.passes(0.4)
    counted = [(s.phase, s.operations, s.interval) for s in await world.store.samples.list(POOL) if s.operations]
    assert counted == [("WARMUP", 7, seconds(0.5)), ("MEASUREMENT", 9, seconds(0.5))]


async def test_an_order_for_later_is_obeyed_though_the_store_is_away(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload):
        await world.tell(event.set_phase("MEASUREMENT", world.clock.now() + seconds(20)))
        await world.passes(1)
        with world.store.unavailable():
            await world.passes(25)
            assert workload.times[workload.names.index("set_phase")] == seconds(20)


async def test_orders_that_come_while_it_starts_are_applied_after(world: World) -> None:
    workload = FakeWorkload(clock=world.clock, start_takes=seconds(5))
    await world.tell(event.start(1))
    async with world.alive(workload):
        await world.passes(1)
        await set_target(world, 6)
        await world.passes(1)
        assert "set_target" not in workload.names
        await world.passes(4)
        assert workload.calls[-1] == ("set_target", 6, seconds(0))


async def test_a_drain_asked_for_by_row_is_obeyed_within_its_deadline(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        await world.store.workers.ask_to_drain(POOL, [ME], "too many", seconds(33))
        await world.passes(1)
        assert worker.code() is ExitCode.CLEAN
    assert ("drain", seconds(32)) in workload.calls  # one second has passed


async def test_heartbeats_keep_the_schedule_of_their_pool(world: World, workload: FakeWorkload) -> None:
    async with world.alive(workload, thresholds=replace(BENCH, heartbeat_every=seconds(10))):
        before = (await world.row()).heartbeat_count
        await world.passes(100)
        assert (await world.row()).heartbeat_count == before + 10


class HastyClock(ManualClock):
    """Wakes everyone a little early, as event loops that count in whole milliseconds do."""

    async def sleep(self, duration: timedelta) -> None:
        early = timedelta(microseconds=400)
        await super().sleep(duration - early if duration > early else duration)


async def test_a_clock_that_wakes_early_causes_no_extra_heartbeats() -> None:
    world = World(HastyClock())
    await world.with_pool()
    async with world.working(FakeWorkload(clock=world.clock)):
        before = (await world.row()).heartbeat_count
        await world.passes(30)
        assert (await world.row()).heartbeat_count == before + 30


async def test_cancelling_a_life_closes_its_workload(world: World, workload: FakeWorkload) -> None:
    async with world.working(workload) as worker:
        worker.task.cancel()
        await world.passes(0)
        assert worker.task.cancelled()
    assert workload.names[-1] == "close"


async def test_samples_and_rows_agree_on_what_was_done(world: World, workload: FakeWorkload) -> None:
    done: list[Any] = []
    async with world.working(workload) as worker:
        await world.tell(event.set_phase("WARMUP"))
        await world.passes(1)
        workload.count(10)
        await world.passes(0.5)
        workload.count(5)
        await world.tell(event.set_phase("MEASUREMENT"))
        await world.passes(0.5)
        workload.count(20, errors=2)
        workload.drain_takes = seconds(10)
        await world.tell(event.stop("enough"))
        await world.passes(3)
        workload.count(3, errors=1)
        await world.passes(8)
        assert worker.code() is ExitCode.CLEAN
    done = [
        (sample.phase, sample.operations, sample.errors, bool(sample.extra))
        for sample in await world.store.samples.list(POOL)
        if sample.operations
    ]
    assert done == [
        ("WARMUP", 15, 0, False),
        ("MEASUREMENT", 20, 2, False),
        ("MEASUREMENT", 3, 1, True),
    ]
    assert ((await world.row()).operations, (await world.row()).errors) == (38, 3)
