"""What somebody should look at: many starts at once, a queue that jumps, a limit that nobody can keep."""

from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import BreakerState, FleetPolicy, FleetState, FleetView
from drumbeat.fleet.outcome import with_outcome
from fleet.given import NOW, job, queued, ready_worker, seconds, worker


def after(before: int | None, ready: int) -> FleetView:
    """One busy worker that is all there may be, so that nobody is started; a queue that was and is."""
    seen = queued(ready_worker(0), ready=ready, held=(job("j0", 0),), max_workers=1)
    return replace(seen, state=FleetState(ready=before))


@pytest.mark.parametrize(
    ("before", "ready", "told"),
    [
        (0, 11, ["the queue grew from 0 to 11 ready jobs since the last beat"]),
        (0, 10, []),
        (2, 20, ["the queue grew from 2 to 20 ready jobs since the last beat"]),
        (2, 19, []),
        (1, 10, []),
        (None, 500, []),
    ],
)
def test_a_queue_that_jumps_is_told(before: int | None, ready: int, told: list[str]) -> None:
    assert decide(after(before, ready)).summary.get("alarms", []) == told


def deeds(*errors: str | None) -> list[dict[str, Any]]:
    return [
        {"type": "Spawn", "worker_id": f"worker-{n}", "is_new": True, **({"error": error} if error else {})}
        for n, error in enumerate(errors)
    ]


@pytest.mark.parametrize(
    ("done", "told", "counted"),
    [
        (deeds(None, None), [], (2, 0)),
        (deeds(None, None, None), ["3 workers were started in one beat"], (3, 0)),
        (
            deeds("worker-0: HTTP 401: no", "not tried: it failed", "not tried: it failed"),
            ["3 workers could not be started: worker-0: HTTP 401: no"],
            (0, 1),
        ),
        (
            [*deeds(None, "worker-1: full"), {"type": "Reap", "worker_id": "worker-7", "error": "the provider refused"}],
            ["1 worker could not be started: worker-1: full", "1 other action failed: Reap worker-7: the provider refused"],
            (1, 1),
        ),
    ],
)
def test_alarms_tell_what_became_of_starts(done: list[dict[str, Any]], told: list[str], counted: tuple[int, int]) -> None:
    found = with_outcome(decide(queued(ready=100, max_workers=3)).summary, done)

    assert found.get("alarms", []) == told
    assert (found["actions"]["workers_spawned"], found["spawns_failed"]) == counted


def test_a_provider_that_gives_no_list_is_told() -> None:
    told = decide(queued(ready_worker(0), instances_partial=True, unlisted="RunPod: GET /v2/pods: HTTP 401: no")).summary

    assert told["alarms"] == ["the provider failed to list its instances: RunPod: GET /v2/pods: HTTP 401: no"]
    assert told["provider_error"] == "RunPod: GET /v2/pods: HTTP 401: no"


@pytest.mark.parametrize("told", [None, 260, 300])
def test_a_heartbeat_timeout_that_workers_can_keep_is_no_alarm(told: float | None) -> None:
    seen = queued(heartbeat_timeout=None if told is None else seconds(told))

    assert "alarms" not in decide(seen).summary


def test_one_that_they_cannot_keep_is_told_with_what_is_heeded() -> None:
    assert decide(queued(heartbeat_timeout=seconds(20))).summary["alarms"] == [
        "heartbeat_timeout of 20 s is too short: workers of this pool send a heartbeat every 20 s and stop after 240 s "
        "without contact; using 260 s instead"
    ]


def test_what_was_ready_is_known_to_the_next_beat() -> None:
    assert decide(queued(ready=7)).summary["state"]["ready"] == 7


REST = FleetPolicy().breaker_rest.total_seconds()


@pytest.mark.parametrize(
    ("opened_ago", "ready", "trial", "alarms"),
    [(0, 0, None, 1), (REST - 1, 0, None, 1), (REST, 0, None, 0), (REST, 9, None, 1), (REST, 0, "worker-0", 1)],
    ids=["it opens", "it rests", "nobody is missed", "a worker is wanted", "one is on trial"],
)
def test_an_open_breaker_is_an_alarm_while_it_holds_anybody_back(
    opened_ago: float, ready: int, trial: str | None, alarms: int
) -> None:
    breaker = BreakerState(opened_at=NOW - seconds(opened_ago), faults=6, starts=6, trial=WorkerId(trial) if trial else None)
    here = (worker(0, status=WorkerStatus.SPAWNING, silent=1),) if trial else ()

    found = decide(queued(*here, ready=ready, state=FleetState(breaker=breaker, ready=ready))).summary.get("alarms", [])

    assert len(found) == alarms
    assert all(f"the breaker opened at {breaker.opened_at:%Y-%m-%d %H:%M:%S}" in each for each in found)
