"""What somebody should look at: many starts at once, a queue that jumps, a limit that nobody can keep."""

from dataclasses import replace

import pytest

from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import FleetState, FleetView
from fleet.given import job, queued, ready_worker, seconds


def after(before: int | None, ready: int) -> FleetView:
    """One busy worker that is all there may be, so that nobody is started; a queue that was and is."""
    seen = queued(ready_worker(0), ready=ready, held=(job("j0", 0),), max_workers=1)
    return replace(seen, state=FleetState(ready=before))


@pytest.mark.parametrize(
    ("before", "ready", "told"),
    [
        (0, 11, ["the queue jumped from 0 to 11 ready jobs since the last beat"]),
        (0, 10, []),
        (2, 20, ["the queue jumped from 2 to 20 ready jobs since the last beat"]),
        (2, 19, []),
        (1, 10, []),
        (None, 500, []),
    ],
)
def test_a_queue_that_jumps_is_told(before: int | None, ready: int, told: list[str]) -> None:
    assert decide(after(before, ready)).summary.get("alarms", []) == told


@pytest.mark.parametrize(("most", "told"), [(2, []), (3, ["3 workers are started in one beat"])])
def test_many_starts_at_once_are_told(most: int, told: list[str]) -> None:
    assert decide(queued(ready=100, max_workers=most)).summary.get("alarms", []) == told


@pytest.mark.parametrize("told", [None, 260, 300])
def test_a_heartbeat_timeout_that_workers_can_keep_is_no_alarm(told: float | None) -> None:
    seen = queued(heartbeat_timeout=None if told is None else seconds(told))

    assert "alarms" not in decide(seen).summary


def test_one_that_they_cannot_keep_is_told_with_what_is_heeded() -> None:
    assert decide(queued(heartbeat_timeout=seconds(20))).summary["alarms"] == [
        "heartbeat_timeout is 20 s, but workers of this pool beat every 20 s and end themselves after 240 s of silence: "
        "260 s are heeded"
    ]


def test_what_was_ready_is_known_to_the_next_beat() -> None:
    assert decide(queued(ready=7)).summary["state"]["ready"] == 7
