"""What a run does while its engine does not answer, or refuses to start workers: it says so, and ends if that lasts."""

from dataclasses import replace
from typing import Any

import pytest

from bench.control.test_decide import FAILED, NOW, PLAN, SECOND, STARTING, decided, view, worker
from drumbeat.bench.control.decide import decide
from drumbeat.bench.model import (
    AskWorkersToDrain,
    Begin,
    ControllerState,
    LoadMode,
    NoteFact,
    Remember,
    RunView,
    Scaling,
    ScalingMode,
    SpawnBenchWorker,
    StopLoad,
)
from drumbeat.core.decision import action_type
from drumbeat.core.errors import SpawnCause
from drumbeat.core.event import EventType
from drumbeat.core.recovery import MarkLost, Reap
from drumbeat.core.run import Phase, RunStatus
from drumbeat.core.worker import Worker, WorkerStatus

DOWN = "host node1 (10.0.0.1:22): connection refused"
SILENT: dict[str, Any] = {"engine": "a", "unlisted": DOWN, "instances": ()}
FULL = "engine a has no free slot (5 of 5 in use)"


def asked_for(slot: int, **meta: Any) -> Worker:
    """A worker that has a row, and has not joined."""
    row = worker(slot, WorkerStatus.SPAWNING, provider="a", meta=meta)
    return replace(row, heartbeat_at=None, created_at=NOW - 10 * SECOND)


def refused(slot: int, seconds_ago: int = 1, times: int = 1) -> Worker:
    at = (NOW - seconds_ago * SECOND).isoformat()
    stored = {"reason": FULL, "cause": SpawnCause.NO_CAPACITY.value, "at": at}
    return asked_for(slot, refused=stored, times_refused=times)


def starting(*workers: Worker, **more: Any) -> RunView:
    return view(workers, **(STARTING | {"instances": ()} | more))


def notes(seen: RunView) -> list[str]:
    return [action.reason for action in decided(seen) if isinstance(action, NoteFact)]


def state_after(seen: RunView) -> ControllerState:
    return next(action.state for action in decide(seen).actions if isinstance(action, Remember))


def test_a_run_whose_engine_does_not_answer_says_what_it_waits_for() -> None:
    waits = f"waiting for 2 workers: engine a does not answer ({DOWN})"

    seen = starting(asked_for(0), asked_for(1), **SILENT)

    [note] = [action for action in decided(seen) if isinstance(action, NoteFact)]
    assert (note.event.type, note.event.payload, note.reason) == (EventType.WAITING_FOR_WORKERS, {"reason": waits}, waits)
    [remembered] = [action for action in decide(seen).actions if isinstance(action, Remember)]
    assert (remembered.state.waiting, remembered.metrics["waiting"]) == (waits, waits)


def test_what_a_run_waits_for_is_noted_once() -> None:
    seen = starting(asked_for(0), asked_for(1), **SILENT)

    assert notes(replace(seen, state=state_after(seen))) == []


def test_a_run_whose_workers_start_as_they_should_notes_nothing() -> None:
    seen = starting(asked_for(0), worker(1, WorkerStatus.WAITING))

    assert notes(seen) == []
    assert state_after(seen).waiting is None


def test_new_workers_are_started_though_an_engine_does_not_answer() -> None:
    spawned = [action.worker_id for action in decided(starting(**SILENT)) if isinstance(action, SpawnBenchWorker)]

    assert spawned == ["worker-0", "worker-1"]


@pytest.mark.parametrize(("unlisted", "spawned"), [(None, ["worker-0"]), (DOWN, [])])
def test_a_worker_without_an_answer_is_asked_for_again_only_if_the_engine_does_not_list_it(
    unlisted: str | None, spawned: list[str]
) -> None:
    seen = starting(asked_for(0, unanswered=DOWN), worker(1, WorkerStatus.WAITING), unlisted=unlisted)

    assert [action.worker_id for action in decided(seen) if isinstance(action, SpawnBenchWorker)] == spawned


@pytest.mark.parametrize(
    ("what", "ago", "times", "spawned"),
    [("at first after 2 s", 2, 1, ["worker-0"]), ("not before", 1, 1, []), ("later after a longer wait", 2, 3, [])],
)
def test_a_refused_worker_is_asked_for_again_after_a_while(what: str, ago: int, times: int, spawned: list[str]) -> None:
    for unlisted in (None, DOWN):
        seen = starting(refused(0, ago, times), worker(1, WorkerStatus.WAITING), unlisted=unlisted)

        found = [(each.worker_id, each.is_new) for each in decided(seen) if isinstance(each, SpawnBenchWorker)]

        assert found == [(name, False) for name in spawned], what


def test_a_run_begins_with_the_workers_that_joined_though_its_engine_does_not_answer() -> None:
    ready = [worker(0, WorkerStatus.WAITING), worker(1, WorkerStatus.WAITING)]

    assert [type(action) for action in decided(starting(*ready, **SILENT))] == [Begin]


@pytest.mark.parametrize(
    ("workers", "more", "reason"),
    [
        ([asked_for(0), asked_for(1)], SILENT, f"waiting for 2 workers: engine a does not answer ({DOWN})"),
        ([refused(0), worker(1, WorkerStatus.WAITING)], {}, f"waiting for 1 worker: {FULL}"),
        (
            [asked_for(0), asked_for(1)],
            SILENT | {"engine": "a,b"},
            f"waiting for 2 workers: one of the engines a,b does not answer ({DOWN})",
        ),
    ],
)
def test_after_the_start_limit_the_run_fails_with_what_it_waited_for(
    workers: list[Worker], more: dict[str, Any], reason: str
) -> None:
    late = {"started_at": NOW - 61 * SECOND}

    [stop] = [action for action in decided(starting(*workers, **(more | late))) if isinstance(action, StopLoad)]

    assert stop.completion_reason == "START_TIMEOUT"
    assert stop.reason == f"Worker registration timeout: not ready after 60.16 s: {reason}"


@pytest.mark.parametrize(("usual_start", "limit"), [(1, 60), (20, 60), (120, 360)])
def test_a_slow_engine_has_three_times_its_usual_start(usual_start: int, limit: int) -> None:
    workers = [asked_for(0), asked_for(1)]
    for seconds, reasons in ((limit, []), (limit + 1, ["START_TIMEOUT"])):
        seen = starting(*workers, usual_start=usual_start * SECOND, started_at=NOW - seconds * SECOND)

        assert [each.completion_reason for each in decided(seen) if isinstance(each, StopLoad)] == reasons


def test_a_worker_that_was_refused_is_neither_lost_nor_replaced() -> None:
    seen = starting(replace(refused(0), created_at=NOW - 500 * SECOND), worker(1, WorkerStatus.WAITING))

    assert not [action for action in decided(seen) if isinstance(action, MarkLost | SpawnBenchWorker | StopLoad)]


def test_a_running_run_fails_if_one_more_worker_is_refused_for_too_long() -> None:
    bounded = Scaling(mode=ScalingMode.BOUNDED, min_workers=2, max_workers=2, cap=4)
    plan = replace(PLAN, load_mode=LoadMode.CONCURRENCY, scaling=bounded, connections=8)
    for seconds, reasons in ((60, []), (61, [f"worker-1 could not be started within 60 s: {FULL}"])):
        one_more = replace(refused(1), created_at=NOW - seconds * SECOND)

        stops = [each for each in decided(view([worker(0), one_more], plan=plan)) if isinstance(each, StopLoad)]

        assert [(each.completion_reason, each.reason) for each in stops] == [("START_TIMEOUT", reason) for reason in reasons]


@pytest.mark.parametrize(
    ("provider", "reason"),
    [("a", ("ERROR", "worker-1 could not be started at a: no such image")), ("local", ("WORKER_LOST", None))],
)
def test_a_worker_that_an_engine_elsewhere_never_starts_fails_the_run_at_once(
    provider: str, reason: tuple[str, str | None]
) -> None:
    failed = {"spawn_failed": True, "cause": "bad_request"}
    gone = worker(1, WorkerStatus.TERMINATED, provider=provider, error="no such image", meta=failed)
    gone = replace(gone, heartbeat_at=None)

    [stop] = [each for each in decided(starting(worker(0, WorkerStatus.WAITING), gone)) if isinstance(each, StopLoad)]

    assert (stop.completion_reason, stop.reason) == (reason[0], reason[1] or stop.reason)


STOPPING: dict[str, Any] = {"status": RunStatus.STOPPING, "phase": Phase.COOLDOWN, "state": ControllerState(ending=FAILED)}


def test_a_run_ends_though_its_engine_does_not_confirm_that_its_workers_are_gone() -> None:
    waits = asked_for(0, unanswered=DOWN)
    closed = replace(waits, status=WorkerStatus.TERMINATED, ended_at=NOW)

    closing = decided(view([waits], **(STOPPING | SILENT)))
    leaving = decided(view([closed], **(STOPPING | SILENT)))
    last = decided(view([closed], **(STOPPING | SILENT | {"phase": Phase.PROCESSING})))

    assert [action_type(action) for action in closing] == ["MarkFailed"]
    assert [action_type(action) for action in leaving] == ["EnterPhase", "Reap"]
    assert [action_type(action) for action in last] == ["Conclude", "Reap"], "the result is stored before the engine is asked"


def test_workers_that_joined_are_asked_to_leave_though_their_engine_does_not_answer() -> None:
    [asked] = decided(view([worker(0)], **(STOPPING | SILENT)))

    assert isinstance(asked, AskWorkersToDrain)


def test_while_a_run_goes_on_an_engine_that_does_not_answer_is_not_asked_to_end_workers() -> None:
    left = worker(1, WorkerStatus.TERMINATED, reaped_at=None, drain_deadline=NOW)

    actions = decided(view([worker(0), left], **SILENT))

    assert not [action for action in actions if isinstance(action, Reap)]
