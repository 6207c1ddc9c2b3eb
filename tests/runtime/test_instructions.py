"""What a worker is told comes to one value, whatever order it is told in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core import event as say
from drumbeat.core.errors import InvalidInput
from drumbeat.core.event import Event, EventType, NewEvent, Scope
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.run import RunStatus
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.runtime.instructions import (
    Stop,
    WorkerAddress,
    WorkerInstructions,
    apply_due,
    apply_event,
    at_start,
    controller_gone,
    mark_read_to,
    may_start,
    next_scheduled,
    reconcile,
    why_stop,
)
from drumbeat.store.interface import HeartbeatReply
from runtime.given import seconds

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ME = WorkerAddress(worker_id=WorkerId("w1"), slot=3)
HOUR = timedelta(hours=1)


def numbered(events: Sequence[NewEvent], created_at: datetime = NOW) -> list[Event]:
    return [
        Event(
            pool_id=PoolId("p"),
            sequence_id=n,
            created_at=created_at,
            type=event.type,
            payload=event.payload,
            scope=event.scope,
            worker_id=event.worker_id,
            slot=event.slot,
        )
        for n, event in enumerate(events, start=1)
    ]


def read(*events: NewEvent, me: WorkerAddress = ME, created_at: datetime = NOW) -> WorkerInstructions:
    wanted = WorkerInstructions()
    for event in numbered(events, created_at):
        wanted = apply_event(wanted, event, me, NOW)
    return wanted


def target(connections: int, ramp: float = 0, at: datetime | None = None, worker: str = "w1") -> NewEvent:
    return say.set_worker_target(
        WorkerId(worker), say.WorkerTarget(connections=connections, reason="test", ramp=seconds(ramp), effective_at=at)
    )


def scoped(kind: EventType, scope: Scope, payload: Mapping[str, Any] | None = None, **whom: Any) -> NewEvent:
    return NewEvent(type=kind, scope=scope, payload=payload or {}, **whom)


def orders(**said: Any) -> HeartbeatReply:
    usual: dict[str, Any] = {
        "now": NOW,
        "events": (),
        "read_to": 0,
        "more": False,
        "status": WorkerStatus.ACTIVE,
        "target": 0,
        "target_seq": 0,
        "drain_deadline": None,
        "run_status": None,
        "run_phase": None,
        "controller_until": None,
    }
    return HeartbeatReply(**usual | said)


STOPPED = Stop(reason="enough")

READ: Mapping[str, tuple[Sequence[NewEvent], WorkerInstructions]] = {
    "nothing": ([], WorkerInstructions()),
    "START opens": ([say.start(1)], WorkerInstructions(read_to=1, started=True)),
    "phase and target before START are remembered": (
        [say.set_phase("WARMUP"), target(7), say.start(1)],
        WorkerInstructions(read_to=3, started=True, phase="WARMUP", target=7, target_seq=2),
    ),
    "STOP before START stays a STOP": (
        [say.stop("enough"), say.start(1)],
        WorkerInstructions(read_to=2, started=True, stop=STOPPED),
    ),
    "the first STOP counts": ([say.stop("enough"), say.stop("again")], WorkerInstructions(read_to=2, stop=STOPPED)),
    "STOP says how long": (
        [say.stop("x", seconds(7))],
        WorkerInstructions(read_to=1, stop=Stop(reason="x", within=seconds(7))),
    ),
    "the last phase counts": (
        [say.set_phase("WARMUP"), say.set_phase("MEASUREMENT")],
        WorkerInstructions(read_to=2, phase="MEASUREMENT"),
    ),
    "a target brings its ramp": ([target(5, ramp=30)], WorkerInstructions(read_to=1, target=5, ramp=seconds(30), target_seq=1)),
    "a target below nothing is nothing": ([target(-4)], WorkerInstructions(read_to=1, target_seq=1)),
    "a type nobody knows is read and skipped": (
        [NewEvent(type="DANCE"), say.start(1)],
        WorkerInstructions(read_to=2, started=True),
    ),
    "facts for the record are skipped": ([NewEvent(type=EventType.SCALE_DOWN)], WorkerInstructions(read_to=1)),
    "another worker's target is read and skipped": ([target(9, worker="w2")], WorkerInstructions(read_to=1)),
    "another slot's order is read and skipped": (
        [scoped(EventType.STOP, Scope.WORKER_GROUP, slot=4)],
        WorkerInstructions(read_to=1),
    ),
    "an order for our slot is ours": (
        [scoped(EventType.SET_PHASE, Scope.WORKER_GROUP, {"phase": "COOLDOWN"}, slot=3)],
        WorkerInstructions(read_to=1, phase="COOLDOWN"),
    ),
    "a time that has passed is now": ([say.set_phase("WARMUP", NOW - HOUR)], WorkerInstructions(read_to=1, phase="WARMUP")),
}


@pytest.mark.parametrize("case", READ)
def test_events_come_to(case: str) -> None:
    events, expected = READ[case]
    assert read(*events) == expected


def test_an_event_read_twice_counts_once() -> None:
    wanted = read(target(5), target(6))
    again = numbered([target(5)])[0]
    assert apply_event(wanted, again, ME, NOW) == wanted


@pytest.mark.parametrize(("before", "looked_through", "expected"), [(3, 9, 9), (9, 3, 9)])
def test_what_was_left_out_for_others_counts_as_read(before: int, looked_through: int, expected: int) -> None:
    assert mark_read_to(WorkerInstructions(read_to=before), looked_through).read_to == expected


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        (EventType.SET_PHASE, {}, "phase to be the name of a phase, got None"),
        (EventType.SET_PHASE, {"phase": 3}, "phase to be the name of a phase, got 3"),
        (EventType.SET_PHASE, {"phase": "WARMUP", "effective_at": "soon"}, "effective_at to be an ISO time, got 'soon'"),
        (EventType.SET_WORKER_TARGET, {}, "target_connections to be a whole number, got None"),
        (EventType.SET_WORKER_TARGET, {"target_connections": "8"}, "target_connections to be a whole number, got '8'"),
        (EventType.SET_WORKER_TARGET, {"target_connections": True}, "target_connections to be a whole number, got True"),
        (EventType.SET_WORKER_TARGET, {"target_connections": 1.5}, "target_connections to be a whole number, got 1.5"),
        (EventType.SET_WORKER_TARGET, {"target_connections": float("inf")}, "target_connections to be a whole number, got inf"),
        (
            EventType.SET_WORKER_TARGET,
            {"target_connections": 1, "ramp_seconds": "x"},
            "ramp_seconds to be a number of seconds, got 'x'",
        ),
        (
            EventType.SET_WORKER_TARGET,
            {"target_connections": 1, "target_qps": -1},
            "target_qps to be a number of at least 0, got -1",
        ),
        (
            EventType.SET_WORKER_TARGET,
            {"target_connections": 1, "target_qps": "9"},
            "target_qps to be a number of at least 0, got '9'",
        ),
        (EventType.STOP, {"drain_timeout_seconds": float("nan")}, "drain_timeout_seconds to be a number of seconds, got nan"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(kind: EventType, payload: Mapping[str, Any], expected: str) -> None:
    event = numbered([NewEvent(type=kind, payload=payload)])[0]
    with pytest.raises(InvalidInput, match="event 1") as caught:
        apply_event(WorkerInstructions(), event, ME, NOW)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("scope", "born", "in_run", "obeyed"),
    [
        ("a STOP for all from before our time", NOW + HOUR, False, False),
        ("a STOP for all since", NOW - HOUR, False, True),
        ("a STOP for all in a run", NOW + HOUR, True, True),
        ("a STOP for all, and we do not know our row", None, False, True),
    ],
)
def test_in_a_pool_that_lasts_old_stops_are_for_others(scope: str, born: datetime | None, in_run: bool, obeyed: bool) -> None:
    wanted = read(say.stop("enough"), me=replace(ME, created_at=born, in_run=in_run))
    assert (wanted.stop is not None) is obeyed
    assert wanted.read_to == 1


@pytest.mark.parametrize("in_run", [False, True])
@pytest.mark.parametrize(("born", "obeyed"), [(NOW, True), (NOW + HOUR, False), (None, True)])
def test_what_an_earlier_worker_of_our_id_was_told_is_not_for_us(born: datetime | None, in_run: bool, obeyed: bool) -> None:
    me = replace(ME, created_at=born, in_run=in_run)
    wanted = read(target(9), say.stop("enough", worker_id=ME.worker_id), me=me)
    assert (wanted.target, wanted.stop) == ((9, STOPPED) if obeyed else (0, None))
    assert wanted.read_to == 2


def test_what_is_for_all_or_for_our_slot_is_ours_however_old() -> None:
    me = replace(ME, created_at=NOW + HOUR)
    assert read(say.start(1), say.set_phase("WARMUP"), me=me).phase == "WARMUP"
    to_slot = NewEvent(type=EventType.SET_PHASE, scope=Scope.WORKER_GROUP, slot=ME.slot, payload={"phase": "LOAD"})
    assert read(to_slot, me=me).phase == "LOAD"


def test_orders_for_later_wait_for_their_time() -> None:
    wanted = read(say.set_phase("WARMUP"), say.set_phase("MEASUREMENT", NOW + seconds(60)), target(9, at=NOW + seconds(30)))

    assert (wanted.phase, wanted.target, wanted.read_to) == ("WARMUP", 0, 3)
    assert next_scheduled(wanted) == NOW + seconds(30)
    assert apply_due(wanted, NOW + seconds(29)) == wanted
    half = apply_due(wanted, NOW + seconds(30))
    assert (half.phase, half.target, half.target_seq) == ("WARMUP", 9, 3)
    whole = apply_due(half, NOW + seconds(60))
    assert (whole.phase, whole.later) == ("MEASUREMENT", ())
    assert next_scheduled(whole) is None


def test_a_target_for_later_does_not_undo_a_newer_one() -> None:
    wanted = read(target(9, at=NOW + HOUR), target(4))
    assert apply_due(wanted, NOW + HOUR).target == 4


AT_START: Mapping[str, tuple[WorkerInstructions, HeartbeatReply, tuple[str | None, int]]] = {
    "a late joiner begins in the run's phase": (
        WorkerInstructions(phase="WARMUP"),
        orders(run_phase="MEASUREMENT"),
        ("MEASUREMENT", 0),
    ),
    "without a run, in the phase it was told": (WorkerInstructions(phase="WARMUP"), orders(), ("WARMUP", 0)),
    "a run that still prepares tells no phase": (
        WorkerInstructions(phase="WARMUP"),
        orders(run_phase="PREPARING"),
        ("WARMUP", 0),
    ),
    "with the target of its row": (WorkerInstructions(), orders(target=12), (None, 12)),
    "with a newer stored target": (WorkerInstructions(target=3, target_seq=5), orders(target=8, target_seq=9), (None, 8)),
    "with a newer target told": (WorkerInstructions(target=3, target_seq=5), orders(target=8, target_seq=4), (None, 3)),
    "a phase for later is waited for": (
        read(say.set_phase("WARMUP"), say.set_phase("MEASUREMENT", NOW + HOUR)),
        orders(run_phase="MEASUREMENT"),
        ("WARMUP", 0),
    ),
    "a target for later is waited for": (read(target(9, at=NOW + HOUR)), orders(target=9, target_seq=1), (None, 0)),
}


@pytest.mark.parametrize("case", AT_START)
def test_at_start(case: str) -> None:
    wanted, heard, expected = AT_START[case]
    begun = at_start(wanted, heard)
    assert (begun.phase, begun.target) == expected


def test_a_ramp_told_before_the_start_is_not_run_after_it() -> None:
    begun = at_start(read(target(9, ramp=30)), orders(target=9, target_seq=1))
    assert (begun.target, begun.ramp) == (9, timedelta())


RAMPING = WorkerInstructions(target=50, ramp=seconds(60), target_seq=7, phase="WARMUP", row_phase="WARMUP")

RECONCILED: Mapping[str, tuple[WorkerInstructions, HeartbeatReply, WorkerInstructions]] = {
    "the stored target that the ramp is for": (RAMPING, orders(target=50, target_seq=7, run_phase="WARMUP"), RAMPING),
    "a newer stored target": (
        RAMPING,
        orders(target=20, target_seq=8, run_phase="WARMUP"),
        replace(RAMPING, target=20, target_seq=8, ramp=timedelta()),
    ),
    "an older stored target": (RAMPING, orders(target=20, target_seq=6, run_phase="WARMUP"), RAMPING),
    "a phase that has changed in the row": (
        RAMPING,
        orders(target_seq=7, run_phase="MEASUREMENT"),
        replace(RAMPING, phase="MEASUREMENT", row_phase="MEASUREMENT"),
    ),
    "a row that lags behind an event": (
        replace(RAMPING, phase="MEASUREMENT"),
        orders(target_seq=7, run_phase="WARMUP"),
        replace(RAMPING, phase="MEASUREMENT"),
    ),
    "no run": (RAMPING, orders(target_seq=7), replace(RAMPING, row_phase=None)),
}


@pytest.mark.parametrize("case", RECONCILED)
def test_reconciling_with(case: str) -> None:
    wanted, heard, expected = RECONCILED[case]
    assert reconcile(wanted, heard) == expected


def test_reconciling_leaves_appointments_alone() -> None:
    wanted = read(target(9, at=NOW + HOUR), say.set_phase("MEASUREMENT", NOW + HOUR))
    after = reconcile(wanted, orders(target=9, target_seq=1, run_phase="MEASUREMENT"))
    assert (after.target, after.phase) == (0, None)
    assert apply_due(after, NOW + HOUR).phase == "MEASUREMENT"


@pytest.mark.parametrize(
    ("wanted", "run_status", "expected"),
    [
        (WorkerInstructions(), None, False),
        (WorkerInstructions(started=True), None, True),
        (WorkerInstructions(), RunStatus.STARTING, False),
        (WorkerInstructions(), RunStatus.RUNNING, True),
        (WorkerInstructions(started=True), RunStatus.STARTING, True),
    ],
)
def test_the_gate_opens_by_start_or_by_a_running_run(
    wanted: WorkerInstructions, run_status: RunStatus | None, expected: bool
) -> None:
    assert may_start(wanted, orders(run_status=run_status)) is expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, None),
        ({"run_status": RunStatus.PREPARED}, None),
        ({"run_status": RunStatus.RUNNING}, None),
        ({"run_status": RunStatus.STOPPING}, Stop(reason="the run is STOPPING")),
        ({"run_status": RunStatus.CANCELLING}, Stop(reason="the run is CANCELLING")),
        ({"run_status": RunStatus.COMPLETED}, Stop(reason="the run is COMPLETED")),
        ({"run_status": RunStatus.FAILED}, Stop(reason="the run is FAILED")),
        ({"run_status": RunStatus.CANCELLED}, Stop(reason="the run is CANCELLED")),
        ({"status": WorkerStatus.DRAINING}, Stop(reason="the worker's row has the status draining")),
        ({"drain_deadline": NOW + seconds(9)}, Stop(reason="asked to drain", within=seconds(9))),
        ({"drain_deadline": NOW - seconds(9)}, Stop(reason="asked to drain", within=seconds(0))),
    ],
)
def test_the_order_to_leave_comes_in_many_ways(said: Mapping[str, Any], expected: Stop | None) -> None:
    assert why_stop(WorkerInstructions(), orders(**said)) == expected


@pytest.mark.parametrize(
    ("within", "left", "expected"),
    [(60, None, 60), (60, 100, 60), (60, 35, 35), (60, -5, 0), (None, 35, 35), (None, None, None)],
)
def test_a_stop_that_is_read_late_leaves_no_more_time_than_the_row(
    within: float | None, left: float | None, expected: float | None
) -> None:
    ordered = WorkerInstructions(stop=Stop(reason="scale down", within=None if within is None else seconds(within)))
    reply = orders(drain_deadline=None if left is None else NOW + seconds(left))

    assert why_stop(ordered, reply) == Stop(reason="scale down", within=None if expected is None else seconds(expected))


@pytest.mark.parametrize(
    ("until", "in_contact", "gone"),
    [
        (None, HOUR, False),
        (NOW + seconds(5), HOUR, False),
        (NOW - seconds(120), HOUR, False),
        (NOW - seconds(121), HOUR, True),
        (NOW - seconds(500), seconds(119), False),
        (NOW - seconds(500), seconds(121), True),
    ],
)
def test_a_controller_is_gone_after_a_silence_we_could_hear(until: datetime | None, in_contact: timedelta, gone: bool) -> None:
    thresholds = PRESETS[PoolKind.BENCH]
    assert controller_gone(orders(controller_until=until), in_contact, thresholds) is gone


def test_a_pace_holds_until_the_next_target_whatever_rows_say() -> None:
    paced = read(say.set_worker_target(ME.worker_id, say.WorkerTarget(connections=4, qps=250.5, reason="pace")))

    assert (paced.target, paced.qps) == (4, 250.5)
    assert reconcile(paced, replace(orders(), target=9, target_seq=99)).qps == 250.5


@pytest.mark.parametrize("before", [None, 90.0])
def test_a_target_known_from_its_row_still_gets_the_pace_it_was_told_with(before: float | None) -> None:
    paced = say.set_worker_target(ME.worker_id, say.WorkerTarget(connections=4, qps=250, ramp=seconds(3), reason="pace"))
    begun = at_start(WorkerInstructions(qps=before), orders(target=4, target_seq=1))
    assert (begun.target, begun.qps) == (4, before)

    told = apply_event(begun, numbered([paced])[0], ME, NOW)

    assert (told.target, told.qps, told.ramp, told.target_seq) == (4, 250, seconds(3), 1)


def test_a_pace_of_nothing_is_a_pace() -> None:
    assert read(say.set_worker_target(ME.worker_id, say.WorkerTarget(connections=0, qps=0, reason="leave"))).qps == 0


def test_a_target_without_a_pace_ends_it() -> None:
    paced = say.set_worker_target(ME.worker_id, say.WorkerTarget(connections=4, qps=250, reason="pace"))

    assert read(paced, say.set_worker_target(ME.worker_id, say.WorkerTarget(connections=4, reason="free"))).qps is None
