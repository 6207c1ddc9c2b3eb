"""Each health rule as a table, and what becomes of the jobs of faulty workers."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import (
    Action,
    AskToDrain,
    EndOverdue,
    ExpireJobs,
    Fail,
    Finished,
    FleetState,
    FleetView,
    MarkFailed,
    MarkLost,
    QueueView,
    Reap,
    ReleaseJobs,
    ServiceTime,
    Spawn,
    Warn,
)
from fleet.given import LIMITS, NOW, idle_for, is_over, job, queued, ready_worker, runs, seconds, worker

SPAWNING, STARTING, DRAINING, ERROR = (
    WorkerStatus.SPAWNING,
    WorkerStatus.STARTING,
    WorkerStatus.DRAINING,
    WorkerStatus.ERROR,
)
LOST_S = LIMITS.lost_after.total_seconds()
ASKED = NOW + timedelta(minutes=5)
SCALING = (Spawn, AskToDrain)


def done(seen: FleetView) -> list[type[Action]]:
    return [type(action) for action in decide(seen).actions if not isinstance(action, SCALING)]


def joined(name: int, age: float, **fields: Any) -> Any:
    return worker(name, status=STARTING, started_at=NOW - seconds(age), **fields)


GPU_OLD = {"memory_total": 24, "at": (NOW - seconds(121)).isoformat()}
GPU_NEW = {"memory_total": 24, "at": (NOW - seconds(119)).isoformat()}

RULES: list[tuple[str, FleetView, list[type[Action]]]] = [
    ("silent with work queued", queued(ready_worker(0, silent=LOST_S + 1), ready=1), [MarkLost]),
    (
        "silent and holding a job, nothing queued",
        queued(ready_worker(0, silent=LOST_S + 1), held=(job("j", 0),)),
        [MarkLost, ReleaseJobs],
    ),
    ("silent, idle, nothing queued: left alone", queued(ready_worker(0, silent=LOST_S + 1)), []),
    ("but not for ever", queued(ready_worker(0, silent=601)), [MarkLost]),
    ("too slow a start", queued(worker(0, status=SPAWNING, silent=601)), [MarkLost]),
    (
        "the policy's own limit on a start",
        queued(worker(0, status=SPAWNING, silent=301), spawning_timeout=seconds(300)),
        [MarkLost],
    ),
    (
        "the policy's own limit on silence",
        queued(ready_worker(0, silent=271), ready=1, heartbeat_timeout=seconds(270)),
        [MarkLost],
    ),
    (
        "is not shorter than the pool's workers can keep",
        queued(ready_worker(0, silent=259), ready=1, heartbeat_timeout=seconds(20)),
        [],
    ),
    ("but as short as that", queued(ready_worker(0, silent=261), ready=1, heartbeat_timeout=seconds(20)), [MarkLost]),
    ("getting ready in time", queued(joined(0, 1199)), []),
    ("never ready", queued(joined(0, 1201)), [Fail]),
    ("installing takes longer", queued(joined(0, 1799, phase="deps_installing")), []),
    ("but not for ever", queued(joined(0, 1801, phase="deps_installing")), [Fail]),
    ("a job in time", queued(ready_worker(0), held=(job("j", 0, 299),)), []),
    ("a stuck job", queued(ready_worker(0), held=(job("j", 0, 301),)), [Fail, ReleaseJobs]),
    (
        "by its lease, where nothing else is told",
        queued(ready_worker(0), held=(job("j", 0, 9999),), policy="lag_aware"),
        [],
    ),
    (
        "unless a limit is told",
        queued(ready_worker(0), held=(job("j", 0, 301),), policy="lag_aware", stuck_timeout=seconds(300)),
        [Fail, ReleaseJobs],
    ),
    (
        "or a timeout",
        queued(ready_worker(0), held=(job("j", 0, 100, timeout=seconds(60)),), policy="queue_cover"),
        [Fail, ReleaseJobs],
    ),
    ("its own timeout is longer", queued(ready_worker(0), held=(job("j", 0, 1000, timeout=seconds(3600)),)), []),
    ("it has time to say so itself", queued(ready_worker(0), held=(job("j", 0, 89, timeout=seconds(60)),)), []),
    ("its own timeout is over", queued(ready_worker(0), held=(job("j", 0, 100, timeout=seconds(60)),)), [Fail, ReleaseJobs]),
    (
        "whoever drains has its deadline",
        queued(ready_worker(0, status=DRAINING, drain_deadline=ASKED), held=(job("j", 0, 301),)),
        [],
    ),
    (
        "unless its lease ran out",
        queued(ready_worker(0, status=DRAINING, drain_deadline=ASKED), held=(job("j", 0, 301, lease_until=NOW - seconds(1)),)),
        [Fail, ReleaseJobs, ExpireJobs],
    ),
    (
        "an overdue drain gives back what it holds",
        queued(ready_worker(0, drain_deadline=NOW - seconds(1)), held=(job("j", 0),)),
        [EndOverdue, ReleaseJobs],
    ),
    ("idle while jobs wait long", queued(ready_worker(0), ready=1, oldest=700, state=idle_for(worker_0=601)), [Fail]),
    ("idle, but the job is young", queued(ready_worker(0), ready=1, oldest=500, state=idle_for(worker_0=601)), []),
    ("idle, but not for so long", queued(ready_worker(0), ready=1, oldest=700, state=idle_for(worker_0=500)), []),
    (
        "idle, but the job is for others",
        queued(
            ready_worker(0),
            state=idle_for(worker_0=601),
            queue=QueueView(ready=1, oldest_ready=NOW - seconds(700), demand={"gpu": 1}),
        ),
        [],
    ),
    ("an old figure of its GPU is a warning", queued(ready_worker(0, gpu=GPU_OLD)), [Warn]),
    ("a disk alone says nothing of a GPU", queued(ready_worker(0, gpu={"disk": {"total_gb": 900, "free_gb": 900}})), []),
    ("a fresh one is none", queued(ready_worker(0, gpu=GPU_NEW)), []),
    ("a GPU without memory is a warning", queued(ready_worker(0, gpu={"memory_total": 0})), [Warn]),
    ("where one is needed it is a failure", queued(ready_worker(0, gpu={"memory_total": 0}), needs_gpu=True), [Fail]),
    ("its absence too", queued(ready_worker(0), needs_gpu=True), [Fail]),
    ("but it is given time", queued(ready_worker(0, age=400), needs_gpu=True), []),
    ("killed with a job", queued(ready_worker(0), instances=(is_over(0),), held=(job("j", 0),)), [MarkFailed, ReleaseJobs]),
    (
        "an ended worker's job goes back before its instance goes",
        queued(worker(0, status=ERROR), held=(job("j", 0),)),
        [ReleaseJobs, Reap],
    ),
    ("reaped, and its job was missed", queued(worker(0, status=ERROR, reaped=True), held=(job("j", 0),)), [ReleaseJobs]),
    ("a lease ran out", queued(held=(job("j", "nobody", lease_until=NOW - seconds(1)),)), [ExpireJobs]),
    (
        "an instance that will not go",
        queued(worker(0, status=ERROR, ended_at=NOW - seconds(601))),
        [Reap, Warn],
    ),
]


@pytest.mark.parametrize(("seen", "expected"), [pytest.param(*rest, id=name) for name, *rest in RULES])
def test_the_table(seen: FleetView, expected: list[type[Action]]) -> None:
    assert done(seen) == expected
    assert all(action.reason for action in decide(seen).actions)


def test_a_stuck_task_is_named() -> None:
    (failed, _) = decide(queued(ready_worker(0), held=(job("job-7", 0, 301),))).actions

    assert isinstance(failed, Fail)
    assert failed.reason == "Stuck task job-7: held for 301 s, limit 300 s"


def test_work_that_usually_takes_long_is_not_stuck() -> None:
    slow = ServiceTime(type="video", count=9, mean=seconds(400), longest=seconds(567))
    seen = queued(ready_worker(0), held=(job("j", 0, 1000, type="video"),), state=FleetState(services=(slow,)))

    assert done(seen) == []


def test_nobody_is_lost_by_one_short_list() -> None:
    seen = queued(ready_worker(0, silent=LIMITS.stale_after.total_seconds() + 1), instances=(), ready=1)

    assert done(seen) == []


@pytest.mark.parametrize(("silent", "expected"), [(61.0, [MarkLost]), (59.0, [])])
def test_who_is_absent_twice_and_stale_is_lost_early(silent: float, expected: list[type[Action]]) -> None:
    before = FleetState(missing={"worker-0": NOW - seconds(30)})

    assert done(queued(ready_worker(0, silent=silent), instances=(), ready=1, state=before)) == expected


def test_who_is_absent_for_the_first_time_is_not_though_another_was_before() -> None:
    before = FleetState(missing={"worker-1": NOW - seconds(30)})

    assert done(queued(ready_worker(0, silent=61), ready_worker(1), instances=runs(1), ready=1, state=before)) == []


def test_a_partial_list_proves_nothing() -> None:
    before = FleetState(missing={"worker-0": NOW - seconds(30)})
    seen = queued(ready_worker(0, silent=61), instances=(), ready=1, state=before, instances_partial=True)

    assert done(seen) == []


def failures(count: int, name: int = 0) -> tuple[Finished, ...]:
    return tuple(Finished(worker_id=WorkerId(f"worker-{name}"), took=seconds(5), ok=False, at=NOW) for _ in range(count))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((), failures(2), []),
        ((), failures(3), [Fail]),
        ((NOW - seconds(60),) * 2, failures(1), [Fail]),
        ((NOW - seconds(1801),) * 2, failures(1), []),
        ((NOW - seconds(60),) * 2, (Finished(worker_id=WorkerId("worker-0"), took=seconds(5), at=NOW), *failures(2)), []),
    ],
    ids=["two", "three", "three over beats", "long ago", "a success between"],
)
def test_a_worker_that_fails_one_job_after_another_is_replaced(
    before: tuple[Any, ...], now: tuple[Finished, ...], expected: list[type[Action]]
) -> None:
    assert done(queued(ready_worker(0), state=FleetState(streaks={"worker-0": before}), finished=now)) == expected


def test_a_failure_is_counted_with_its_jobs() -> None:
    told = decide(queued(ready_worker(0), held=(job("a", 0, 301), job("b", 0, 5)))).summary

    assert told["actions"] == {
        "workers_promoted": 0,
        "workers_failed": 1,
        "workers_spawned": 0,
        "workers_terminated": 0,
        "tasks_reset": 2,
    }


def test_who_holds_more_than_is_shown_gives_it_back_too() -> None:
    seen = replace(queued(ready_worker(0, silent=LOST_S + 1), ready=1), held_partial=True)

    assert done(seen) == [MarkLost, ReleaseJobs]


def test_the_exempt_are_judged_like_any_other() -> None:
    harness = ready_worker(0, silent=LOST_S + 1, meta={"capacity_exempt": True})

    assert done(queued(harness, ready=1)) == [MarkLost]
