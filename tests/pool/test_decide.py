"""What a pool's checker decides, as a table and rule by rule."""

from dataclasses import replace
from datetime import timedelta

import pytest

from drumbeat.core.recovery import LINGER
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.pool.decide import MOST_REAPED, SHOW_WITHIN, decide, decide_recovery
from drumbeat.pool.model import (
    Action,
    EndOverdue,
    EndStray,
    ExpireLeases,
    MarkFailed,
    MarkLost,
    PoolPolicy,
    PoolView,
    Reap,
    SpawnJobWorker,
    TakeBackJobs,
)
from pool.seen import LIMITS, NOW, POOL, claim, is_over, name, runs, seconds, view, worker

SPAWNING, STARTING, ACTIVE = WorkerStatus.SPAWNING, WorkerStatus.STARTING, WorkerStatus.ACTIVE
DRAINING, LOST, ERROR, TERMINATED = WorkerStatus.DRAINING, WorkerStatus.LOST, WorkerStatus.ERROR, WorkerStatus.TERMINATED
LOST_S, START_S = LIMITS.lost_after.total_seconds(), LIMITS.start_within.total_seconds()
LATER, EARLIER = NOW + timedelta(minutes=1), NOW - timedelta(seconds=1)
SHOWN = SHOW_WITHIN.total_seconds()


def overdue(number: int) -> Worker:
    """A worker whose row was closed because it did not drain in time."""
    return worker(number, TERMINATED, ended=1, meta={"drain_timed_out": True})


def some(count: int, status: WorkerStatus = ACTIVE) -> tuple[Worker, ...]:
    return tuple(worker(number, status) for number in range(count))


@pytest.mark.parametrize(
    ("ready", "here", "busy", "cap", "spawned"),
    [
        pytest.param(10, 0, 0, 3, 3, id="C50: queue 10, active 0, cap 3"),
        pytest.param(0, 0, 0, 10, 0, id="C50: queue 0, active 0, cap 10"),
        pytest.param(50, 10, 10, 10, 0, id="C50: queue 50, active 10, cap 10"),
        pytest.param(2, 3, 3, 6, 2, id="C51: 2 pending, 3 busy, cap 6"),
        pytest.param(2, 3, 2, 6, 1, id="one of three is free"),
        pytest.param(2, 3, 0, 6, 0, id="all three are free"),
        pytest.param(1, 0, 0, 10, 1, id="one job, nobody here"),
        pytest.param(5, 3, 3, 4, 1, id="the cap leaves room for one"),
        pytest.param(5, 6, 6, 4, 0, id="the cap was lowered"),
        pytest.param(5, 0, 0, 0, 0, id="a cap of none"),
        pytest.param(100, 1, 1, 3, 2, id="many jobs, one busy"),
        pytest.param(3, 3, 3, 6, 3, id="as many jobs as busy workers"),
    ],
)
def test_a_worker_for_each_ready_job_that_nobody_is_free_for_up_to_the_cap(
    ready: int, here: int, busy: int, cap: int, spawned: int
) -> None:
    decision = decide(view(*some(here), ready=ready, busy=busy, cap=cap))

    assert [type(action) for action in decision.actions] == [SpawnJobWorker] * spawned
    assert (decision.why_not is None) == bool(spawned)
    assert decision.summary["spawned"] == spawned


@pytest.mark.parametrize(
    ("ready", "here", "held", "cap", "spawned"),
    [
        (8, 0, 0, 10, 2),
        (9, 0, 0, 10, 3),
        (9, 0, 0, 2, 2),
        (4, 1, 4, 10, 1),
        (4, 1, 1, 10, 1),
        (3, 1, 1, 10, 0),
        (1, 2, 7, 9, 0),
    ],
)
def test_a_worker_that_does_four_at_once_is_worth_four_slots(ready: int, here: int, held: int, cap: int, spawned: int) -> None:
    claims = tuple(claim(n // 4) for n in range(held))
    policy = PoolPolicy(max_workers=cap, concurrency=4)

    actions = decide(view(*some(here), ready=ready, claims=claims, policy=policy)).actions

    assert len(actions) == spawned


DECISIONS: list[tuple[str, PoolView, list[type[Action]]]] = [
    ("those who are starting count", view(*some(2, STARTING), ready=2), []),
    ("those who are asked for count", view(*some(2, SPAWNING), ready=3), [SpawnJobWorker]),
    ("those who drain are no help", view(worker(0, DRAINING), ready=1), [SpawnJobWorker]),
    ("but they are there, and the cap counts them", view(worker(0, DRAINING), ready=1, cap=1), []),
    ("nor are those asked to leave", view(worker(0, drain_deadline=LATER), ready=1), [SpawnJobWorker]),
    ("long-lived ones are never asked to leave", view(*some(5), cap=1), []),
    ("a silent one is lost, its job taken back", view(worker(0, silent=LOST_S + 1), busy=1, cap=0), [MarkLost, TakeBackJobs]),
    ("and done by another", view(worker(0, silent=LOST_S + 1), busy=1), [MarkLost, TakeBackJobs, SpawnJobWorker]),
    ("one that held nothing is just lost", view(worker(0, silent=LOST_S + 1)), [MarkLost]),
    ("a stale one keeps its job", view(worker(0, silent=LOST_S - 1), busy=1), []),
    ("a killed one is closed", view(worker(0), busy=1, instances=(is_over(0),), cap=0), [MarkFailed, TakeBackJobs]),
    ("an overdue one too", view(worker(0, drain_deadline=EARLIER), busy=1, cap=0), [EndOverdue, TakeBackJobs]),
    ("one that left with a job", view(worker(0, ERROR, reaped_at=NOW), busy=1, cap=0), [TakeBackJobs]),
    ("a lease ran out", view(worker(0), claims=(claim(0, expired=True),), cap=0), [ExpireLeases]),
    ("of a holder without a row", view(claims=(claim(7, expired=True, extended=True),)), [ExpireLeases, SpawnJobWorker]),
    ("extended once before a worker is worth it", view(claims=(claim(7, expired=True),)), [ExpireLeases]),
    ("a holder without a row is left alone", view(claims=(claim(7),)), []),
    ("not all claims were seen", view(worker(0), claims=(claim(0),), more_claims=True), [ExpireLeases]),
    ("an ended one is reaped, last of all", view(worker(0, TERMINATED), ready=1), [SpawnJobWorker, Reap]),
    ("a reaped one is done with", view(worker(0, TERMINATED, reaped_at=NOW)), []),
    ("one that has just left may end its process", view(worker(0, TERMINATED, ended=1), instances=runs(0)), []),
    ("so may one that failed", view(worker(0, ERROR, ended=1), instances=runs(0)), []),
    ("not for ever", view(worker(0, TERMINATED, ended=LINGER.total_seconds()), instances=runs(0)), [Reap]),
    ("a lost one may not", view(worker(0, LOST, ended=1), instances=runs(0)), [Reap]),
    ("gone is gone", view(worker(0, TERMINATED, ended=1)), [Reap]),
    ("reaped elsewhere, it may linger here", view(worker(0, TERMINATED, ended=1, reaped_at=NOW), instances=runs(0)), []),
    ("but not for ever", view(worker(0, TERMINATED, ended=60, reaped_at=NOW), instances=runs(0)), [EndStray]),
    ("a stray is ended before anyone is started", view(instances=runs(5), ready=1), [EndStray, SpawnJobWorker]),
    ("a row without an instance is waited for", view(worker(0, SPAWNING, silent=SHOWN - 1), instances=(), ready=1), []),
    ("and then started", view(worker(0, SPAWNING, silent=SHOWN + 1), instances=(), ready=1), [SpawnJobWorker]),
    ("and then given up", view(worker(0, SPAWNING, silent=START_S + 1), instances=(), cap=0), [MarkLost]),
    ("who drains counts for the cap", view(worker(0, DRAINING), worker(1, drain_deadline=LATER), ready=5, cap=2), []),
    ("who is given up now may still run", view(worker(0, silent=LOST_S + 1), ready=5, cap=1), [MarkLost]),
    ("until it is ended", view(worker(0, LOST), instances=runs(0), ready=5, cap=1), [Reap]),
    ("who is over makes room at once", view(worker(0), instances=(is_over(0),), ready=5, cap=1), [MarkFailed, SpawnJobWorker]),
    ("who drained for too long may still run", view(worker(0, DRAINING, drain_deadline=EARLIER), ready=5, cap=1), [EndOverdue]),
    ("until that one is ended", view(overdue(0), instances=runs(0), ready=5, cap=1), [Reap]),
    (
        "who leaves by itself makes room for another",
        view(worker(0, TERMINATED, ended=1), instances=runs(0), ready=5, cap=1),
        [SpawnJobWorker],
    ),
    ("a stray is there until it is ended", view(instances=runs(5), ready=1, cap=1), [EndStray]),
    (
        "no row gets its instance beside too many",
        view(worker(0, DRAINING), worker(1, SPAWNING, silent=SHOWN + 1), instances=runs(0), ready=5, cap=1),
        [],
    ),
    ("a pause starts nobody", view(ready=5, paused_until=LATER), []),
    ("not even those without an instance", view(worker(0, SPAWNING, silent=SHOWN + 1), instances=(), paused_until=LATER), []),
    ("a pause stops no recovery", view(worker(0, LOST), busy=1, paused_until=LATER), [TakeBackJobs, Reap]),
    ("a pause that is over holds nothing back", view(ready=1, paused_until=EARLIER), [SpawnJobWorker]),
]


@pytest.mark.parametrize(("seen", "expected"), [pytest.param(*rest, id=title) for title, *rest in DECISIONS])
def test_the_table(seen: PoolView, expected: list[type[Action]]) -> None:
    decision = decide(seen)

    assert [type(action) for action in decision.actions] == expected
    assert all(action.reason for action in decision.actions)
    assert (decision.why_not is None) == bool(expected)


@pytest.mark.parametrize(("seen", "expected"), [pytest.param(*rest, id=title) for title, *rest in DECISIONS])
def test_the_reaper_does_the_same_and_starts_nobody(seen: PoolView, expected: list[type[Action]]) -> None:
    decision = decide_recovery(seen)

    assert [type(action) for action in decision.actions] == [kind for kind in expected if kind is not SpawnJobWorker]
    assert (decision.why_not is None) == bool(decision.actions)


def test_a_job_that_would_be_poisoned_is_worth_no_worker() -> None:
    seen = view(worker(0, silent=LOST_S + 1), claims=(claim(0, comes_back=False),))

    assert [type(action) for action in decide(seen).actions] == [MarkLost, TakeBackJobs]


def test_new_workers_take_new_names_and_the_lowest_free_slots() -> None:
    seen = view(worker(1), ready=4, busy=1, cap=4, next_number=41)

    spawned = decide(seen).actions

    reason = "4 jobs ready, 0 of 1 slots are free, 3 more workers are allowed"
    assert spawned == [
        SpawnJobWorker(worker_id=name(41 + n), slot=slot, group_count=4, reason=reason, at=NOW)
        for n, slot in enumerate((0, 2, 3))
    ]


def test_names_are_the_pools_own() -> None:
    assert name(3) == f"{POOL}-worker-3"


def test_an_unstarted_worker_is_started_under_its_own_name_and_slot() -> None:
    row = worker(4, SPAWNING, silent=SHOWN + 1, capabilities=("gpu",))

    (action,) = decide(view(row, instances=(), cap=2)).actions

    assert isinstance(action, SpawnJobWorker)
    assert (action.worker_id, action.slot, action.group_count, action.is_new) == (name(4), 4, 5, False)
    assert action.capabilities == ("gpu",)


@pytest.mark.parametrize(
    ("demand", "capabilities", "free", "spawned"),
    [
        ({"gpu": 3}, (), (), 0),
        ({"gpu": 3, "": 1}, (), (), 1),
        ({"gpu": 3}, ("gpu",), (), 3),
        ({"gpu": 1, "": 1}, ("gpu",), (("gpu",),), 1),
        ({"gpu": 2}, ("gpu",), ((),), 2),
        ({"gpu": 1, "": 1}, ("gpu",), ((), ("gpu",)), 0),
        ({"": 2}, ("gpu",), (("gpu",), ("gpu",)), 0),
        ({"tpu": 1, "gpu": 1}, ("gpu",), (("gpu",),), 0),
    ],
)
def test_nobody_is_started_for_what_nobody_could_do(
    demand: dict[str, int], capabilities: tuple[str, ...], free: tuple[tuple[str, ...], ...], spawned: int
) -> None:
    rows = [worker(n, capabilities=able) for n, able in enumerate(free)]
    seen = view(*rows, demand=demand, policy=PoolPolicy(capabilities=capabilities))

    actions = decide(seen).actions

    assert len(actions) == spawned
    assert all(isinstance(action, SpawnJobWorker) and action.capabilities == capabilities for action in actions)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (view(), "no job is ready"),
        (view(*some(2), ready=1, busy=1), "1 job ready and 1 of 2 slots are free"),
        (view(*some(2), ready=1, busy=2, cap=2), "1 job ready, but 2 of at most 2 workers are here"),
        (
            view(demand={"gpu": 2, "tpu": 1}),
            "no job is ready; jobs that need a capability which this pool's workers lack: 2 need 'gpu', 1 need 'tpu'",
        ),
        (view(ready=3, paused_until=LATER), "paused until 2026-01-01 12:01:00: 3 jobs ready"),
    ],
)
def test_doing_nothing_is_explained(seen: PoolView, why: str) -> None:
    assert decide(seen).why_not == why


def test_a_reaper_that_finds_nothing_says_so() -> None:
    assert decide_recovery(view(*some(2), ready=9)).why_not == "2 live workers, all healthy; no ended worker holds a job"


def test_reaping_has_a_limit_per_beat() -> None:
    left = [worker(number, TERMINATED) for number in range(MOST_REAPED + 10)]

    assert len(decide(view(*left)).actions) == MOST_REAPED


def test_nobody_is_judged_by_a_silence_from_before_the_pool() -> None:
    assert decide(view(worker(0, silent=9999), busy=1, looking_since=NOW - seconds(1))).actions == []


def test_the_summary_says_how_things_stand() -> None:
    rows = (*some(3), worker(3, DRAINING))
    seen = replace(view(*rows, busy=2, cap=6), demand={"": 2, "gpu": 5})

    assert decide(seen).summary == {
        "max_workers": 6,
        "workers": 4,
        "busy": 2,
        "ready": 2,
        "out_of_reach": 5,
        "claimed": 2,
        "spawned": 1,
    }
