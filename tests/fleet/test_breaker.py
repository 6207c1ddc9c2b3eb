"""Worker faults open the breaker, provider faults make the provider be left alone; neither is taken for the other."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.breaker import backoff_allowance, breaker_allowance, cause_of, delay, fault, next_backoff, next_breaker
from drumbeat.fleet.decide import decide, decide_step
from drumbeat.fleet.explain import explain
from drumbeat.fleet.model import (
    BackoffState,
    BreakerState,
    FleetPolicy,
    FleetState,
    FleetView,
    LastBeat,
    Provider,
    Spawn,
    SpawnCause,
    SpawnResult,
)
from fleet.given import LONG_AGO, NOW, queued, ready_worker, seconds, worker

ERROR, LOST, TERMINATED = WorkerStatus.ERROR, WorkerStatus.LOST, WorkerStatus.TERMINATED
OPEN = BreakerState(opened_at=NOW - seconds(400))


def ended(count: int, status: WorkerStatus = ERROR, ago: float = 10, first: int = 0, **fields: Any) -> list[Worker]:
    return [worker(first + n, status=status, reaped=True, ended_at=NOW - seconds(ago), **fields) for n in range(count)]


def refused(count: int) -> list[Worker]:
    return ended(count, TERMINATED, meta={"spawn_failed": True, "cause": "no_capacity"})


@pytest.mark.parametrize(
    ("rows", "opens"),
    [
        (ended(5), True),
        (ended(4), False),
        ([*ended(4), *ended(1, TERMINATED, first=4)], True),
        ([*ended(3), *ended(2, TERMINATED, first=3)], False),
        (ended(5, LOST), True),
        (ended(5, ago=301), False),
        (ended(5, TERMINATED), False),
        (refused(20), False),
        ([*refused(20), *ended(4, first=20)], False),
        ([*refused(20), *ended(5, first=20)], True),
        ([*ended(4), ready_worker(9, ready_at=NOW - seconds(5))], True),
        ([*ended(5), *(ready_worker(n, ready_at=NOW - seconds(5)) for n in (7, 8))], False),
    ],
    ids=[
        "five crashes",
        "too few to tell",
        "four in five",
        "three in five",
        "five lost",
        "long ago",
        "planned stops",
        "refusals are the provider's",
        "refusals are no starts",
        "nor do refusals hide crashes",
        "one good start",
        "two good starts",
    ],
)
def test_when_the_breaker_opens(rows: list[Worker], opens: bool) -> None:
    assert (next_breaker(queued(*rows)).opened_at is not None) is opens


def test_an_open_breaker_tells_how_many_failed_how_the_last_did_and_what_to_do() -> None:
    rows = [*ended(4, ago=60, error="exit code 1"), *ended(1, ago=20, first=4, error="no CUDA device"), *ended(1, LOST, 40, 5)]
    seen = queued(*rows, ready=9)

    told = decide(seen).summary

    opened = "the breaker opened at 2026-01-01 12:00:00: 6 of 6 workers failed, last worker-4 error: no CUDA device"
    assert told["alarms"] == [opened]
    assert [limit["reason"] for limit in told["limits"] if limit["name"] == "breaker"] == [
        f"{opened}; one trial worker is started at 12:05:00, or now with: drumbeat fleet retry p"
    ]


def test_a_person_need_not_await_the_breakers_rest() -> None:
    state = FleetState(breaker=BreakerState(opened_at=NOW - seconds(10)))
    asked, before = queued(ready=9, state=state, retry_at=NOW - seconds(5)), queued(ready=9, state=state, retry_at=LONG_AGO)

    assert [sum(isinstance(each, Spawn) for each in decide_step(seen).actions) for seen in (asked, before)] == [1, 0]


def test_with_nothing_remembered_it_looks_further_back() -> None:
    rows = ended(5, ago=400)

    assert next_breaker(queued(*rows)).opened_at is None
    assert next_breaker(queued(*rows, state=None)).opened_at == NOW


def on_trial(row: Worker) -> FleetView:
    return queued(row, state=FleetState(breaker=replace(OPEN, trial=row.worker_id)))


def test_the_next_beat_knows_who_is_on_trial_and_when_the_fleet_last_grew() -> None:
    made = decide_step(queued(ready=9, state=FleetState(breaker=OPEN)))

    assert [action.worker_id for action in made.actions if isinstance(action, Spawn)] == [made.state.breaker.trial]
    assert made.state.up_at == NOW


def test_the_trial_decides() -> None:
    trying = worker(9, status=WorkerStatus.STARTING)

    assert breaker_allowance(queued(), OPEN).most == 1
    assert breaker_allowance(on_trial(trying), next_breaker(on_trial(trying))).most == 0
    assert next_breaker(on_trial(replace(trying, ready_at=NOW))) == BreakerState()
    again = replace(OPEN, opened_at=NOW, faults=1, starts=1, error="worker-0 error: no heartbeat")
    assert next_breaker(on_trial(ended(1)[0])) == again
    assert next_breaker(on_trial(refused(1)[0])) == replace(OPEN, trial=None)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (ended(1)[0], SpawnCause.BOOT_CRASH),
        (ended(1, ready_at=NOW - seconds(50))[0], SpawnCause.TRANSIENT),
        (ended(1, TERMINATED)[0], None),
        (refused(1)[0], None),
        (ready_worker(0), None),
    ],
)
def test_whose_fault_an_end_was(row: Worker, expected: SpawnCause | None) -> None:
    assert fault(row) is expected


def after(*causes: SpawnCause | None, state: FleetState | None = None, retry_after: timedelta | None = None) -> BackoffState:
    calls = tuple(SpawnResult(worker_id=WorkerId("w"), at=NOW, cause=cause, retry_after=retry_after) for cause in causes)
    return next_backoff(queued(state=state or FleetState(), last=LastBeat(at=NOW, spawns=calls)))


@pytest.mark.parametrize(
    ("faults", "wait"), [(1, 0), (2, 40), (3, 80), (4, 160), (5, 320), (6, 600), (60, 600)], ids=lambda value: str(value)
)
def test_the_provider_is_left_alone_longer_and_longer(faults: int, wait: float) -> None:
    assert delay(FleetPolicy(), faults, SpawnCause.NO_CAPACITY) == seconds(wait)


@pytest.mark.parametrize("cause", [SpawnCause.BAD_REQUEST, SpawnCause.AUTH, SpawnCause.NO_MONEY])
def test_what_waiting_does_not_mend_waits_longest(cause: SpawnCause) -> None:
    assert after(cause).until == NOW + seconds(600)


def test_a_provider_that_says_when_is_heeded() -> None:
    assert after(SpawnCause.RATE_LIMITED, retry_after=seconds(90)).until == NOW + seconds(90)


def test_one_success_forgives_all() -> None:
    assert after(SpawnCause.TRANSIENT, SpawnCause.AMBIGUOUS).faults == 2
    assert after(SpawnCause.TRANSIENT, None) == BackoffState()


REFUSED = BackoffState(
    faults=3, cause=SpawnCause.AUTH, last_at=NOW - seconds(9), until=NOW + seconds(591), error="HTTP 401: no", asked_with="old"
)


@pytest.mark.parametrize(
    ("asked_with", "retry_at", "forgiven"),
    [
        ("old", None, False),
        ("new", None, True),
        ("", None, False),
        ("old", NOW - seconds(8), True),
        ("old", NOW - seconds(10), False),
    ],
    ids=["the same key", "another key", "a provider without one", "a person asked since", "a person asked before"],
)
def test_what_was_put_right_is_tried_at_once(asked_with: str, retry_at: datetime | None, forgiven: bool) -> None:
    provider = Provider(name="runpod", asked_with=asked_with)
    seen = queued(ready=9, state=FleetState(backoff=REFUSED), provider=provider, retry_at=retry_at)

    said = "the provider failed 3 times in a row, last with auth: HTTP 401: no"
    assert next_backoff(seen) == (BackoffState() if forgiven else REFUSED)
    assert any(isinstance(action, Spawn) for action in decide_step(seen).actions) is forgiven
    assert explain(seen).provider_error == (
        None if forgiven else f"{said}; next try at 12:09:51, or now with: drumbeat fleet retry p"
    )
    assert decide(seen).summary.get("alarms", []) == ([] if forgiven else [f"{said}; next try at 12:09:51"])


def test_refusals_are_remembered_by_the_rows_alone() -> None:
    told = next_backoff(queued(*refused(3), state=None))

    assert (told.faults, told.cause) == (3, SpawnCause.NO_CAPACITY)
    assert backoff_allowance(queued(), told).most == 0


def test_a_worker_that_came_since_makes_them_past() -> None:
    came = ready_worker(9, created_at=NOW - seconds(5))

    assert next_backoff(queued(*refused(3), came, state=None)).faults == 0


def test_a_cause_nobody_knows_is_passing() -> None:
    assert cause_of(worker(0, meta={"cause": "gremlins"})) is SpawnCause.TRANSIENT
