"""What a fleet's controller decides, as a table and rule by rule."""

from dataclasses import replace
from datetime import timedelta

import pytest

from drumbeat.core.worker import TERMINAL, WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import (
    Action,
    AskToDrain,
    EndOverdue,
    EndStray,
    FleetPolicy,
    FleetView,
    MarkFailed,
    MarkLost,
    Provider,
    Reap,
    SetTarget,
    Spawn,
)
from fleet.given import LIMITS, NOW, is_over, runs, seconds, view, worker

SPAWNING, STARTING, WAITING = WorkerStatus.SPAWNING, WorkerStatus.STARTING, WorkerStatus.WAITING
DRAINING, LOST, ERROR = WorkerStatus.DRAINING, WorkerStatus.LOST, WorkerStatus.ERROR
TERMINATED = WorkerStatus.TERMINATED
LOST_S, START_S = LIMITS.lost_after.total_seconds(), LIMITS.start_within.total_seconds()
ASKED = NOW + timedelta(minutes=1)
OVERDUE = NOW - timedelta(seconds=1)
ONE_AT_MOST = FleetPolicy(workers=1, min_workers=0, max_workers=1)

DECISIONS: list[tuple[str, FleetView, list[type[Action]]]] = [
    ("an empty pool is filled", view(wanted=3), [Spawn, Spawn, Spawn]),
    ("an empty pool that shall be empty is left alone", view(), []),
    ("enough are left alone", view(worker(0), worker(1), wanted=2), []),
    ("one more is wanted", view(worker(0), wanted=2), [Spawn]),
    ("one too many is asked to drain", view(worker(0), worker(1), wanted=1), [AskToDrain]),
    ("silent is lost and replaced", view(worker(0, silent=LOST_S + 1), wanted=1), [MarkLost, Spawn]),
    ("silent and not wanted is lost and not replaced", view(worker(0, silent=LOST_S + 1)), [MarkLost]),
    ("stale is left alone", view(worker(0, silent=LOST_S - 1), wanted=1), []),
    ("killed is closed and replaced", view(worker(0), instances=(is_over(0),), wanted=1), [MarkFailed, Spawn]),
    ("killed and silent is closed once", view(worker(0, silent=999), instances=(is_over(0),), wanted=1), [MarkFailed, Spawn]),
    ("over before it joined", view(worker(0, status=SPAWNING), instances=(is_over(0, 1),), wanted=1), [MarkFailed, Spawn]),
    ("a row without an instance gets one", view(worker(0, status=SPAWNING), instances=(), wanted=1), [Spawn]),
    ("it does not if it is not wanted", view(worker(0, status=SPAWNING), instances=()), [AskToDrain]),
    ("it does not if it is to leave", view(worker(0, status=SPAWNING, drain_deadline=ASKED), instances=()), []),
    ("a slow start is waited for", view(worker(0, status=SPAWNING, silent=START_S - 1), wanted=1), []),
    ("too slow a start is given up", view(worker(0, status=SPAWNING, silent=START_S + 1), wanted=1), [MarkLost, Spawn]),
    ("a joined worker without an instance is not judged by that", view(worker(0), instances=(), wanted=1), []),
    ("an instance without a row is ended", view(instances=runs(0)), [EndStray]),
    ("two of one name are ended once", view(instances=runs(0, 0)), [EndStray]),
    ("an instance that is over needs no end", view(instances=(is_over(0),)), []),
    ("an ended worker is reaped", view(worker(0, status=LOST)), [Reap]),
    ("a reaped worker is done with", view(worker(0, status=LOST, reaped=True)), []),
    ("a reaped worker's late instance is a stray", view(worker(0, status=LOST, reaped=True), instances=runs(0)), [EndStray]),
    ("an ended worker's instance is reaped, no stray", view(worker(0, status=ERROR), instances=runs(0)), [Reap]),
    ("a drain in time is waited for", view(worker(0, status=DRAINING, drain_deadline=ASKED)), []),
    ("an overdue drain is ended", view(worker(0, status=DRAINING, drain_deadline=OVERDUE)), [EndOverdue]),
    ("an overdue drain is replaced if wanted", view(worker(0, drain_deadline=OVERDUE), wanted=1), [EndOverdue, Spawn]),
    ("one that is to leave is replaced if wanted", view(worker(0, drain_deadline=ASKED), wanted=1), [Spawn]),
    ("one that drains by itself is replaced if wanted", view(worker(0, status=DRAINING), wanted=1), [Spawn]),
    ("but not above the maximum", view(worker(0, status=DRAINING), policy=ONE_AT_MOST), []),
    ("it is not if it is not wanted", view(worker(0, status=DRAINING)), []),
    ("its replacement stays", view(worker(0, status=DRAINING), worker(1, slot=0), wanted=1), []),
    ("a new target is told", view(worker(0), wanted=1, target=5), [SetTarget]),
    ("it is told to those who wait for START too", view(worker(0, status=WAITING), wanted=1, target=5), [SetTarget]),
    ("it is told to those who get ready too", view(worker(0, status=STARTING), wanted=1, target=5), [SetTarget]),
    ("it is not told before they join", view(worker(0, status=SPAWNING), wanted=1, target=5), []),
    ("it is not told to those who leave", view(worker(0, drain_deadline=ASKED), wanted=0, target=5), []),
    ("nor to those who are asked to now", view(worker(0), wanted=0, target=5), [AskToDrain]),
    ("a pause holds back new workers", view(worker(0), wanted=3, paused_until=ASKED), []),
    ("a pause holds back unstarted ones", view(worker(0, status=SPAWNING), instances=(), wanted=1, paused_until=ASKED), []),
    ("a pause stops no recovery", view(worker(0, silent=LOST_S + 1), wanted=1, paused_until=ASKED), [MarkLost]),
    ("a pause stops no drain", view(worker(0), paused_until=ASKED), [AskToDrain]),
    ("a pause that is over holds nothing back", view(wanted=1, paused_until=OVERDUE), [Spawn]),
]


@pytest.mark.parametrize(("seen", "expected"), [pytest.param(*rest, id=name) for name, *rest in DECISIONS])
def test_the_table(seen: FleetView, expected: list[type[Action]]) -> None:
    decision = decide(seen)

    assert [type(action) for action in decision.actions] == expected
    assert all(action.reason for action in decision.actions)
    assert (decision.why_not is None) == bool(expected)


def test_a_killed_worker_is_replaced_in_its_slot_under_a_new_name() -> None:
    rows = (worker(0), worker(1), worker(2))

    failed, spawned = decide(view(*rows, instances=(*runs(0, 2), is_over(1, -9)), wanted=3)).actions

    assert failed == MarkFailed(worker=rows[1], exit_code=-9, reason="its instance ended: killed by signal 9")
    assert spawned == Spawn(
        worker_id=WorkerId("worker-3"), slot=1, group_count=3, reason="2 of 3 workers are here; slot 1 is free", at=NOW
    )


@pytest.mark.parametrize(
    ("exit_code", "said"),
    [(None, "exit code unknown"), (-15, "killed by signal 15"), (0, "exit code 0"), (3, "exit code 3")],
)
def test_how_an_instance_ended_is_said(exit_code: int | None, said: str) -> None:
    (action,) = decide(view(worker(0), instances=(is_over(0, exit_code),))).actions

    assert isinstance(action, MarkFailed)
    assert (action.exit_code, action.reason) == (exit_code, f"its instance ended: {said}")


def test_a_twin_that_still_runs_keeps_its_worker_alive() -> None:
    assert decide(view(worker(0), instances=(is_over(0), *runs(0)), wanted=1)).actions == []


def test_a_row_without_an_instance_is_started_under_its_own_name_and_slot() -> None:
    (spawned,) = decide(view(worker(4, slot=0, status=SPAWNING), instances=(), wanted=1)).actions

    assert isinstance(spawned, Spawn)
    assert (spawned.worker_id, spawned.slot, spawned.is_new) == ("worker-4", 0, False)


def test_one_that_was_started_is_not_started_again_however_many_lists_leave_it_out() -> None:
    started = worker(4, slot=0, status=SPAWNING, provider_ref="pod4")

    assert decide(view(started, instances=(), wanted=1)).actions == []


@pytest.mark.parametrize("looked_for", [0, LOST_S - 1])
def test_nobody_is_lost_by_a_silence_that_began_before_we_looked(looked_for: float) -> None:
    cut_off = view(worker(0, silent=9999), wanted=1, looking_since=NOW - seconds(looked_for))

    assert decide(cut_off).actions == []


def test_who_stays_silent_for_a_full_threshold_while_we_look_is_lost() -> None:
    looked = view(worker(0, silent=9999), wanted=1, looking_since=NOW - seconds(LOST_S + 1))

    (lost, _) = decide(looked).actions

    assert isinstance(lost, MarkLost)
    assert lost.reason == "silent for 9999 s"


@pytest.mark.parametrize(
    ("unique", "silence", "failed"),
    [
        pytest.param(True, 1, True, id="one instance to a name: it is over"),
        pytest.param(False, 1, False, id="there may be another, and it is heard"),
        pytest.param(False, 2 * LIMITS.heartbeat_every.total_seconds(), True, id="there may be another, and nothing is heard"),
    ],
)
def test_where_a_provider_may_have_made_two_a_worker_that_is_heard_is_not_over(
    unique: bool, silence: float, failed: bool
) -> None:
    seen = view(worker(0, silent=silence), wanted=1, instances=(is_over(0),), provider=Provider(unique_names=unique))

    assert any(isinstance(action, MarkFailed) for action in decide(seen).actions) == failed


def test_an_instance_that_is_over_is_known_even_if_we_looked_away() -> None:
    seen = view(worker(0), instances=(is_over(0),), looking_since=NOW)

    assert [type(action) for action in decide(seen).actions] == [MarkFailed]


def test_the_highest_slots_leave_first() -> None:
    rows = [worker("a", slot=2), worker("b", slot=0), worker("c", slot=3), worker("d", slot=1)]

    asked = decide(view(*rows, wanted=2)).actions

    assert asked == [
        AskToDrain(worker_id=WorkerId("a"), within=LIMITS.drain_within, reason="4 workers are here, 2 are wanted"),
        AskToDrain(worker_id=WorkerId("c"), within=LIMITS.drain_within, reason="4 workers are here, 2 are wanted"),
    ]


def test_growing_fills_the_lowest_free_slots() -> None:
    spawned = decide(view(worker(7, slot=1), wanted=4)).actions

    assert [(each.worker_id, each.slot) for each in spawned if isinstance(each, Spawn)] == [
        ("worker-8", 0),
        ("worker-9", 2),
        ("worker-10", 3),
    ]


def test_workers_left_in_slots_beyond_the_count_are_counted() -> None:
    spawned = decide(view(worker(0, slot=0), worker(1, slot=5), wanted=3)).actions

    assert [each.slot for each in spawned if isinstance(each, Spawn)] == [1]


@pytest.mark.parametrize("ended", sorted(TERMINAL))
def test_no_name_is_used_again_while_its_row_is_there(ended: WorkerStatus) -> None:
    (spawned,) = decide(
        view(worker(41, slot=0, status=ended, reaped=True), worker("odd", slot=9, status=ended, reaped=True), wanted=1)
    ).actions

    assert isinstance(spawned, Spawn)
    assert spawned.worker_id == "worker-42"


def test_no_name_is_used_that_an_instance_has() -> None:
    stray, spawned = decide(view(instances=runs(7), wanted=1)).actions

    assert isinstance(stray, EndStray)
    assert isinstance(spawned, Spawn)
    assert (stray.worker_id, spawned.worker_id) == ("worker-7", "worker-8")


def test_a_target_is_told_once_per_change() -> None:
    before = view(worker(0, target=1), worker(1, target=5), wanted=2, target=5)

    told = decide(before).actions
    after = replace(before, workers=(replace(before.workers[0], target=5), before.workers[1]))

    assert told == [
        SetTarget(
            worker_id=WorkerId("worker-0"), target=5, ramp=timedelta(), reason="the policy's target is 5, the worker's is 1"
        )
    ]
    assert decide(after).actions == []


def test_a_target_comes_with_its_ramp() -> None:
    policy = FleetPolicy(workers=1, target=5, ramp=seconds(30))

    (told,) = decide(view(worker(0), policy=policy)).actions

    assert isinstance(told, SetTarget)
    assert told.ramp == seconds(30)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (view(), "0 of 0 workers are here and all are healthy"),
        (view(worker(0), worker(1), wanted=2), "2 of 2 workers are here and all are healthy"),
        (view(worker(0, status=DRAINING, drain_deadline=ASKED)), "0 of 0 workers are here, 1 terminating and all are healthy"),
        (view(worker(0), wanted=3, paused_until=ASKED), "paused until 2026-01-01 12:01:00: 1 of 3 workers are here"),
    ],
)
def test_doing_nothing_is_explained(seen: FleetView, why: str) -> None:
    assert decide(seen).why_not == why


@pytest.mark.parametrize("status", [WorkerStatus.SPAWNING, WorkerStatus.STARTING, WorkerStatus.ACTIVE, DRAINING])
def test_whoever_is_told_to_leave_is_terminating_from_then_on(status: WorkerStatus) -> None:
    told = decide(view(worker(0, status=status, drain_deadline=ASKED), worker(1), wanted=1))

    assert told.summary["status"] == {
        "queued_tasks": 0,
        "spawning_workers": 0,
        "active_workers": 1,
        "terminating_workers": 1,
        "total_workers": 2,
    }
    assert (told.summary["draining"], told.summary["active"]) == (1, 1)
    assert told.why_not == "1 of 1 workers are here, 1 terminating and all are healthy"


def test_the_summary_counts_every_state() -> None:
    rows = [worker(n, status=status) for n, status in enumerate(WorkerStatus)]

    told = decide(view(*rows, worker(9), wanted=4)).summary

    assert {name: count for name, count in told.items() if isinstance(count, int)} == {
        "wanted": 4,
        "spawning": 1,
        "starting": 1,
        "waiting": 1,
        "active": 2,
        "draining": 1,
        "terminated": 1,
        "error": 1,
        "lost": 1,
    }


def test_recovery_comes_before_scaling() -> None:
    rows = (worker(0, silent=9999), worker(1, status=ERROR), worker(2), worker(3))

    decision = decide(view(*rows, instances=runs(0, 2, 3, 8), wanted=3, target=4))

    assert [type(action) for action in decision.actions] == [MarkLost, Reap, EndStray, Spawn, SetTarget, SetTarget]
