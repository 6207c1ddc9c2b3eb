"""Events: whom they are for, and what they say."""

from datetime import UTC, datetime, timedelta

import pytest

from drumbeat.core.event import Event, EventType, NewEvent, Scope, WorkerTarget, set_phase, set_worker_target, start, stop
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
W1 = WorkerId("w1")


def event(scope: Scope, worker_id: str | None = None, slot: int | None = None) -> Event:
    return Event(
        pool_id=PoolId("p"),
        sequence_id=1,
        created_at=NOON,
        type="ANYTHING",
        scope=scope,
        worker_id=None if worker_id is None else WorkerId(worker_id),
        slot=slot,
    )


@pytest.mark.parametrize(
    ("what", "told", "obeys"),
    [
        ("one for all", event(Scope.RUN), True),
        ("one for all that names somebody", event(Scope.RUN, "w2", 9), True),
        ("one for its slot", event(Scope.WORKER_GROUP, slot=3), True),
        ("one for another slot", event(Scope.WORKER_GROUP, slot=0), False),
        ("one for no slot", event(Scope.WORKER_GROUP), False),
        ("one for it by name", event(Scope.WORKER, "w1"), True),
        ("one for another by name, in its slot", event(Scope.WORKER, "w2", 3), False),
        ("one for nobody", event(Scope.WORKER), False),
    ],
)
def test_a_worker_obeys_what_is_for_it(what: str, told: Event, obeys: bool) -> None:
    assert told.is_for(W1, 3) is obeys, what


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (start(4), NewEvent(type="START", payload={"expected_workers": 4})),
        (stop("enough"), NewEvent(type="STOP", payload={"reason": "enough"})),
        (
            stop("enough", timedelta(seconds=90)),
            NewEvent(type="STOP", payload={"reason": "enough", "drain_timeout_seconds": 90.0}),
        ),
        (
            stop("enough", timedelta(), W1),
            NewEvent(type="STOP", payload={"reason": "enough", "drain_timeout_seconds": 0.0}, scope=Scope.WORKER, worker_id=W1),
        ),
        (set_phase("WARMUP"), NewEvent(type="SET_PHASE", payload={"phase": "WARMUP"})),
        (
            set_phase("WARMUP", NOON),
            NewEvent(type="SET_PHASE", payload={"phase": "WARMUP", "effective_at": "2026-01-01T12:00:00+00:00"}),
        ),
        (
            set_worker_target(W1, WorkerTarget(connections=0, reason="back off")),
            NewEvent(
                type="SET_WORKER_TARGET",
                payload={"target_connections": 0, "reason": "back off"},
                scope=Scope.WORKER,
                worker_id=W1,
            ),
        ),
        (
            set_worker_target(
                W1,
                WorkerTarget(connections=8, reason="step", ramp=timedelta(seconds=1.5), step_id="s2", effective_at=NOON),
            ),
            NewEvent(
                type="SET_WORKER_TARGET",
                payload={
                    "target_connections": 8,
                    "reason": "step",
                    "ramp_seconds": 1.5,
                    "step_id": "s2",
                    "effective_at": "2026-01-01T12:00:00+00:00",
                },
                scope=Scope.WORKER,
                worker_id=W1,
            ),
        ),
    ],
)
def test_an_event_says_what_it_must_and_no_more(told: NewEvent, wanted: NewEvent) -> None:
    assert told == wanted


def test_an_event_is_for_all_unless_it_says_otherwise() -> None:
    assert NewEvent(type="ANYTHING") == NewEvent(type="ANYTHING", payload={}, scope=Scope.RUN, worker_id=None, slot=None)


def test_the_names_users_type_are_the_seeds() -> None:
    assert {"START", "STOP", "SET_PHASE", "SET_WORKER_TARGET"} <= set(EventType)
    assert set(Scope) == {"RUN", "WORKER_GROUP", "WORKER"}
