"""Common scaling scenarios and every limit on scaling, as tables."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide, verdict
from drumbeat.fleet.decide.limits import applies, bounds_at
from drumbeat.fleet.model import (
    AskToDrain,
    BackoffState,
    BreakerState,
    FleetPolicy,
    FleetState,
    FleetView,
    LastBeat,
    ListedInstance,
    NoteInstance,
    Provider,
    Schedule,
    Spawn,
    SpawnCause,
    WishedSize,
)
from fleet.given import NOW, idle_for, is_over, job, queued, ready_worker, runs, seconds, view, worker

SPAWNING, LOST = WorkerStatus.SPAWNING, WorkerStatus.LOST
SOON = NOW + timedelta(minutes=1)


def scaling(seen: FleetView) -> tuple[int, int]:
    """How many are spawned, how many asked to leave."""
    actions = decide(seen).actions
    return sum(isinstance(each, Spawn) for each in actions), sum(isinstance(each, AskToDrain) for each in actions)


def crew(count: int, **fields: Any) -> list[Any]:
    return [ready_worker(n, **fields) for n in range(count)]


def long_idle(count: int, span: float = 700) -> FleetState:
    return idle_for(**{f"worker_{n}": span for n in range(count)})


def unneeded(count: int, span: float) -> FleetState:
    """Workers idle for so long, and so many that have not been needed for a day."""
    return replace(long_idle(count, span), counted_from=NOW - timedelta(days=1), levels=((False, 0.0),) * count)


def leaving(count: int) -> list[Any]:
    """Workers that drain."""
    return crew(count, status=WorkerStatus.DRAINING, drain_deadline=SOON)


def ended(name: int) -> Any:
    return worker(name, status=WorkerStatus.TERMINATED, reaped=True)


def refused(name: int) -> Any:
    """A worker that its provider would not start."""
    return worker(name, status=WorkerStatus.TERMINATED, meta={"spawn_failed": True, "cause": "bad_request"})


def busy(count: int) -> tuple[Any, ...]:
    return tuple(job(f"j{n}", n) for n in range(count))


SCENARIOS: list[tuple[str, FleetView, tuple[int, int]]] = [
    ("High Traffic Spike: 15 queued, 2 busy: to five", queued(*crew(2), ready=15, held=busy(2)), (3, 0)),
    ("it respects the maximum", queued(*crew(2), ready=900, held=busy(2)), (8, 0)),
    (
        "spawning counts as capacity",
        queued(*crew(2), *(worker(n, status=SPAWNING, silent=9) for n in (2, 3, 4)), ready=15, held=busy(2)),
        (0, 0),
    ),
    ("no deadlock from nothing", queued(ready=1), (1, 0)),
    ("no second cold start", queued(ready=30), (10, 0)),
    ("the minimum is made up for", queued(ready_worker(0), ready=3, min_workers=2, held=busy(1)), (1, 0)),
    (
        "Worker Failures: the lost one is replaced",
        queued(ready_worker(0, silent=999), ready_worker(1), ready=6, held=busy(2)),
        (1, 0),
    ),
    ("Quiet Period: down to the minimum", queued(*crew(5), min_workers=2, state=long_idle(5)), (0, 3)),
    ("Maintenance level is kept", queued(*crew(2), min_workers=2, state=long_idle(2)), (0, 0)),
    ("not before they were idle for long enough", queued(*crew(5), min_workers=2, state=long_idle(5, 599)), (0, 0)),
    ("who drains counts for the maximum", queued(*leaving(2), ready=9, max_workers=2), (0, 0)),
    ("so does who was asked to and has not heard", queued(*crew(2, drain_deadline=SOON), ready=9, max_workers=2), (0, 0)),
    ("one that has gone makes room for one", queued(*leaving(1), ended(1), ready=9, max_workers=2), (1, 0)),
    ("what the maximum leaves beside them is used", queued(*leaving(2), ready=9, max_workers=3), (1, 0)),
    ("the minimum does not go above the maximum", queued(*leaving(2), min_workers=2, max_workers=2), (0, 0)),
    (
        "who is given up now may still run",
        queued(ready_worker(0, silent=999), ready=9, max_workers=1, instances=runs(0)),
        (0, 0),
    ),
    (
        "who was given up and not ended may still run",
        queued(worker(0, status=LOST), ready=9, max_workers=1, instances=runs(0)),
        (0, 0),
    ),
    ("whoever is over makes room at once", queued(ready_worker(0), ready=9, max_workers=1, instances=(is_over(0),)), (1, 0)),
    (
        "unless its provider may have another of its name",
        queued(
            ready_worker(0, silent=60), ready=9, max_workers=1, instances=(is_over(0),), provider=Provider(unique_names=False)
        ),
        (0, 0),
    ),
    (
        "another provider's worker may still run",
        queued(
            worker(0, status=LOST, provider="runpod"), ready=9, max_workers=1, provider=Provider(name="local"), instances=()
        ),
        (0, 0),
    ),
    ("a stray is there until it is ended", queued(ready=9, max_workers=1, instances=runs(7)), (0, 0)),
    ("a worker that never came to be does not count", queued(refused(0), ready=9, max_workers=1), (1, 0)),
    (
        "a row without an instance is not started beside too many",
        queued(*leaving(2), worker(2, status=SPAWNING, silent=9), ready=9, max_workers=2, instances=runs(0, 1)),
        (0, 0),
    ),
    (
        "it is once there is room",
        queued(*leaving(1), worker(2, status=SPAWNING, silent=9), ready=9, max_workers=2, instances=runs(0)),
        (1, 0),
    ),
    (
        "the old are not drained one after the other while nobody can take their place",
        queued(*leaving(1), ready_worker(1), ready=9, held=(job("j", 1),), max_workers=2, contract="new"),
        (0, 0),
    ),
    ("a busy one never leaves", queued(*crew(5), min_workers=2, held=busy(5), state=long_idle(5)), (0, 0)),
    ("of the idle, only what is beyond the wish", queued(*crew(5), held=busy(2), keep_idle=1, state=long_idle(5)), (0, 2)),
    (
        "Cost Control: above the maximum they leave sooner",
        queued(*crew(5), max_workers=3, min_workers=3, state=long_idle(5, 31)),
        (0, 2),
    ),
    ("and the busy are asked too", queued(*crew(5), max_workers=3, held=busy(5)), (0, 2)),
    ("lag_aware weighs itself whom to keep", queued(*crew(5), policy="lag_aware", state=unneeded(5, 300)), (0, 5)),
    (
        "but an idle_timeout that was set is a floor",
        queued(*crew(5), policy="lag_aware", idle_timeout=seconds(3600), state=unneeded(5, 3599)),
        (0, 0),
    ),
    (
        "and no more than that",
        queued(*crew(5), policy="lag_aware", idle_timeout=seconds(3600), state=unneeded(5, 3600)),
        (0, 5),
    ),
    (
        "also the one above the maximum",
        queued(*crew(5), policy="lag_aware", max_workers=3, overcapacity_idle_timeout=seconds(90), state=unneeded(5, 89)),
        (0, 0),
    ),
    ("a warm buffer of one", queued(*crew(1), held=busy(1), keep_idle=1), (1, 0)),
    ("the oldest waits too long", queued(*crew(1), ready=3, oldest=400, held=busy(1), wait_slo=seconds(300)), (3, 0)),
    ("a step up is limited", queued(ready=30, step_up=2), (2, 0)),
    ("a step down is limited", queued(*crew(5), step_down=1, state=long_idle(5)), (0, 1)),
    ("a pause holds new ones back", queued(ready=30, paused_until=NOW + seconds(60)), (0, 0)),
    ("a pause stops no drain", queued(*crew(3), paused_until=NOW + seconds(60), state=long_idle(3)), (0, 3)),
    ("an unread queue adds nobody", queued(*crew(2), queue=None), (0, 0)),
    ("and sends nobody away", queued(*crew(5), queue=None, state=long_idle(5)), (0, 0)),
    ("but the minimum holds", queued(queue=None, min_workers=2), (2, 0)),
    ("nobody leaves on a partial list of jobs", queued(*crew(5), held_partial=True, state=long_idle(5)), (0, 0)),
    ("nobody leaves on a partial list of instances", queued(*crew(5), instances_partial=True, state=long_idle(5)), (0, 0)),
    ("nobody leaves on a list that has shrunk", queued(*crew(5), instances=runs(0, 1, 2, 3), state=long_idle(5)), (0, 0)),
    ("nobody leaves while nothing is remembered", queued(*crew(5), state=None), (0, 0)),
    (
        "a starting worker that is no longer needed is given up",
        queued(worker(0, status=SPAWNING, silent=181), instances=runs(0)),
        (0, 1),
    ),
    ("not before its grace", queued(worker(0, status=SPAWNING, silent=179), instances=runs(0)), (0, 0)),
    ("one too old is replaced", queued(*crew(2, age=4000), max_lifetime=seconds(3600), min_workers=2), (0, 1)),
    ("one of another contract too", queued(*crew(2, meta={"contract": "1"}), contract="2", min_workers=2), (0, 1)),
    (
        "not while another starts",
        queued(*crew(2, age=4000), worker(2, status=SPAWNING), max_lifetime=seconds(3600), min_workers=3),
        (0, 0),
    ),
    ("who is quiet for want of work still counts", queued(ready_worker(0, silent=301), min_workers=1), (0, 0)),
    ("the exempt count for nothing", queued(*crew(2, meta={"capacity_exempt": True}, age=60), ready=6), (2, 0)),
    ("and leave when they are old", queued(*crew(1, meta={"capacity_exempt": True}, age=7201)), (0, 1)),
    ("without a queue too", view(*crew(1, meta={"capacity_exempt": True}, age=7201)), (0, 1)),
    (
        "and while another starts, which takes nobody's place",
        queued(*crew(1, meta={"capacity_exempt": True}, age=7201), worker(1, status=SPAWNING), min_workers=1),
        (0, 1),
    ),
    ("where there is no queue age alone ends no other", view(*crew(1, age=7201), wanted=1), (0, 0)),
]


@pytest.mark.parametrize(("seen", "expected"), [pytest.param(*rest, id=name) for name, *rest in SCENARIOS])
def test_the_table(seen: FleetView, expected: tuple[int, int]) -> None:
    decision = decide(seen)

    assert scaling(seen) == expected
    assert bool(decision.actions) != bool(decision.why_not)


@pytest.mark.parametrize(
    ("state", "expected", "limit"),
    [
        (FleetState(wanted=(WishedSize(at=NOW - seconds(59), workers=4),)), (0, 1), "stabilisation"),
        (FleetState(wanted=(WishedSize(at=NOW - seconds(61), workers=4),)), (0, 5), None),
        (FleetState(down_at=NOW - seconds(59)), (0, 0), "cooldown_down"),
        (FleetState(down_at=NOW - seconds(60)), (0, 5), None),
        (FleetState(up_at=NOW - seconds(44)), (0, 0), "turn_after"),
    ],
    ids=["wanted lately", "wanted long ago", "just went down", "went down a while ago", "just went up"],
)
def test_what_keeps_the_number_from_swinging_down(state: FleetState, expected: tuple[int, int], limit: str | None) -> None:
    seen = queued(*crew(5), state=replace(state, idle_since=long_idle(5).idle_since))

    assert scaling(seen) == expected
    assert [each.name for each in verdict(seen).limits] == ([limit] if limit else [])


@pytest.mark.parametrize(
    ("state", "rules", "expected"),
    [
        (FleetState(up_at=NOW - seconds(29)), {"cooldown_up": seconds(30)}, 0),
        (FleetState(up_at=NOW - seconds(30)), {"cooldown_up": seconds(30)}, 4),
        (FleetState(down_at=NOW - seconds(44)), {}, 0),
        (FleetState(down_at=NOW - seconds(44)), {"min_workers": 3}, 2),
    ],
    ids=["just went up", "went up a while ago", "just went down", "the minimum is made up for all the same"],
)
def test_what_keeps_the_number_from_swinging_up(state: FleetState, rules: dict[str, Any], expected: int) -> None:
    assert scaling(queued(ready_worker(0), ready=15, held=busy(1), state=state, **rules)) == (expected, 0)


def test_explain_names_what_each_rule_wanted_and_which_limit_bound() -> None:
    told = decide(queued(ready=90, max_workers=4)).summary

    assert [(wish["rule"], wish["workers"]) for wish in told["wishes"]] == [("queue", 30), ("warm", 0)]
    assert told["limits"] == [
        {"name": "policy max_workers", "before": 30, "after": 4, "reason": "at most 4 workers are allowed"},
    ]


def test_the_summary_is_as_in_the_earlier_orchestrator() -> None:
    told = decide(queued(*crew(5), worker(5, status=SPAWNING), worker(6, status=SPAWNING), ready=15, held=busy(5))).summary

    assert told["timestamp"] == NOW.isoformat()
    assert told["status"] == {
        "queued_tasks": 15,
        "spawning_workers": 2,
        "active_workers": 5,
        "terminating_workers": 0,
        "total_workers": 7,
    }
    assert set(told["actions"]) == {
        "workers_promoted",
        "workers_failed",
        "workers_spawned",
        "workers_terminated",
        "tasks_reset",
    }


def test_whose_paid_time_ends_next_leaves_first() -> None:
    rows = [ready_worker(0, age=3700), ready_worker(1, age=7150), ready_worker(2, age=3590)]
    hourly = Provider(billing_granule=timedelta(hours=1), price_per_hour=1.0)
    seen = queued(*rows, state=long_idle(3), provider=hourly)

    asked = [each.worker_id for each in decide(seen).actions if isinstance(each, AskToDrain)]

    assert asked == ["worker-2", "worker-1"]  # the first has most of an hour left, and stays


@pytest.mark.parametrize(
    ("unique", "before", "expected"),
    [(True, {}, 1), (False, {}, 0), (False, {"worker-0": NOW - seconds(30)}, 1)],
    ids=["the provider refuses a second of one name", "the first look", "two lists without it"],
)
def test_an_unanswered_creation_is_tried_again_once_it_is_surely_absent(
    unique: bool, before: dict[str, datetime], expected: int
) -> None:
    seen = queued(
        worker(0, status=SPAWNING, silent=60),
        instances=(),
        ready=1,
        provider=Provider(unique_names=unique),
        state=FleetState(missing=before),
    )

    assert scaling(seen) == (expected, 0)


def test_an_instance_of_which_its_row_does_not_know_is_noted_before_anything_else() -> None:
    seen = queued(worker(0, status=SPAWNING), ready=90, unnoted={WorkerId("worker-0"): "pod-7"})

    first, *rest = decide(seen).actions

    assert isinstance(first, NoteInstance)
    assert (first.worker_id, first.ref) == ("worker-0", "pod-7")
    assert {type(each) for each in rest} == {Spawn}


@pytest.mark.parametrize(
    ("asked", "expected"), [(200, 0), (220, 1)], ids=["it may have been hidden", "it would have been there"]
)
def test_a_list_that_came_too_soon_after_the_creation_is_not_one_of_the_two(asked: float, expected: int) -> None:
    seen = queued(
        worker(0, status=SPAWNING, silent=asked),
        instances=(),
        ready=1,
        provider=Provider(unique_names=False, settle=seconds(180)),
        state=FleetState(missing={"worker-0": NOW - seconds(30)}),
        last=LastBeat(at=NOW - seconds(30), spawns=()),
    )

    assert scaling(seen) == (expected, 0)


def test_a_partial_list_is_no_reason_to_create_again() -> None:
    state = FleetState(missing={"worker-0": NOW - seconds(30)})
    seen = queued(worker(0, status=SPAWNING), instances=(), ready=1, state=state, instances_partial=True)

    assert scaling(seen) == (0, 0)


def test_a_provider_in_trouble_is_asked_for_one() -> None:
    once = BackoffState(faults=1, cause=SpawnCause.NO_CAPACITY, last_at=NOW, until=NOW)

    assert scaling(queued(ready=30, state=FleetState(backoff=once))) == (1, 0)
    assert scaling(queued(ready=30, state=FleetState(backoff=replace(once, until=NOW + seconds(1))))) == (0, 0)


def test_an_open_breaker_lets_nobody_through_then_one() -> None:
    opened = FleetState(breaker=BreakerState(opened_at=NOW - seconds(299)))
    rested = FleetState(breaker=BreakerState(opened_at=NOW - seconds(300)))

    assert scaling(queued(ready=30, state=opened)) == (0, 0)
    assert scaling(queued(ready=30, state=rested)) == (1, 0)
    assert decide(queued(ready=30, state=rested)).summary["state"]["breaker"]["trial"] == "worker-0"


WEEKDAYS = Schedule(begin=8 * 60, end=18 * 60, days=(0, 1, 2, 3, 4), min_workers=4)
NIGHT = Schedule(begin=22 * 60, end=6 * 60, days=(4,), max_workers=1)


@pytest.mark.parametrize(
    ("schedule", "moment", "expected"),
    [
        (WEEKDAYS, "2026-01-05T08:00:00+00:00", True),
        (WEEKDAYS, "2026-01-05T07:59:00+00:00", False),
        (WEEKDAYS, "2026-01-05T18:00:00+00:00", False),
        (WEEKDAYS, "2026-01-04T12:00:00+00:00", False),
        (NIGHT, "2026-01-09T23:00:00+00:00", True),
        (NIGHT, "2026-01-10T05:59:00+00:00", True),
        (NIGHT, "2026-01-09T05:00:00+00:00", False),
        (replace(WEEKDAYS, utc_offset=timedelta(hours=1)), "2026-01-05T07:00:00+00:00", True),
        (Schedule(begin=0, end=0), "2026-01-05T07:00:00+00:00", True),
    ],
)
def test_when_a_schedule_applies(schedule: Schedule, moment: str, expected: bool) -> None:
    assert applies(schedule, datetime.fromisoformat(moment)) is expected


def test_the_last_schedule_that_says_something_counts() -> None:
    always = Schedule(begin=0, end=0, min_workers=3)
    policy = FleetPolicy(min_workers=1, max_workers=9, schedules=(always, replace(always, min_workers=None, max_workers=5)))

    assert bounds_at(policy, NOW) == (3, 5, "schedule")


def test_a_spawned_workers_row_is_named_above_all_that_ever_were() -> None:
    (spawned,) = decide(queued(ready=1, last_number=41)).actions

    assert isinstance(spawned, Spawn)
    assert (spawned.worker_id, spawned.slot, spawned.group_count, spawned.at) == (WorkerId("worker-42"), 0, 10, NOW)


def test_one_that_has_not_joined_is_ended_at_once() -> None:
    seen = queued(
        worker(0, status=SPAWNING, silent=181), instances=(ListedInstance(worker_id=WorkerId("worker-0"), running=True),)
    )

    (asked,) = decide(seen).actions

    assert isinstance(asked, AskToDrain)
    assert asked.within == timedelta()
