"""A worker's legal moves, and how its silence is judged."""

from datetime import UTC, datetime, timedelta

import pytest

from drumbeat.core.errors import IllegalMove
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.worker import LIVE, MOVES, TERMINAL, Health, Worker, WorkerId, WorkerStatus, check_move, judge, silence

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BENCH = PRESETS[PoolKind.BENCH]

STATES = ("spawning", "starting", "waiting", "active", "draining", "terminated", "error", "lost")
DIAGRAM = {
    "spawning":   ".>...>>>",
    "starting":   "..>.>>>>",
    "waiting":    "...>>>>>",
    "active":     "....>>>>",
    "draining":   ".....>>>",
    "terminated": "........",
    "error":      "........",
    "lost":       "........",
}  # fmt: skip

ARROWS = [(before, after, row[n] == ">") for before, row in DIAGRAM.items() for n, after in enumerate(STATES)]


@pytest.mark.parametrize(("before", "after"), [(before, after) for before, after, legal in ARROWS if legal])
def test_a_move_along_an_arrow_is_legal(before: str, after: str) -> None:
    assert WorkerStatus(after) in MOVES[WorkerStatus(before)]
    check_move("w1", WorkerStatus(before), WorkerStatus(after))


@pytest.mark.parametrize(("before", "after"), [(before, after) for before, after, legal in ARROWS if not legal])
def test_a_move_without_an_arrow_is_refused(before: str, after: str) -> None:
    with pytest.raises(IllegalMove, match=f"w1 cannot move from {before} to {after}"):
        check_move("w1", WorkerStatus(before), WorkerStatus(after))


def test_the_diagram_has_every_state() -> None:
    assert set(STATES) == set(WorkerStatus) == set(MOVES)


def test_a_refusal_names_the_moves_there_are() -> None:
    with pytest.raises(IllegalMove, match="error, lost, starting, terminated"):
        check_move("w1", WorkerStatus.SPAWNING, WorkerStatus.ACTIVE)
    with pytest.raises(IllegalMove, match="end state"):
        check_move("w1", WorkerStatus.LOST, WorkerStatus.ACTIVE)


def test_a_state_is_live_or_an_end() -> None:
    assert set(WorkerStatus) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
    assert all(not MOVES[end] for end in TERMINAL)


def worker(status: str = "active", created: float | None = 1000, beaten: float | None = None) -> Worker:
    """A worker made and last heard of so many seconds ago."""
    return Worker(
        pool_id=PoolId("p"),
        worker_id=WorkerId("w1"),
        slot=0,
        status=WorkerStatus(status),
        created_at=None if created is None else NOW - timedelta(seconds=created),
        heartbeat_at=None if beaten is None else NOW - timedelta(seconds=beaten),
    )


@pytest.mark.parametrize("status", list(WorkerStatus))
def test_a_worker_is_live_in_a_live_state(status: WorkerStatus) -> None:
    assert worker(status).is_live is (status in LIVE)


@pytest.mark.parametrize(
    ("what", "subject", "seconds"),
    [
        ("since its heartbeat", worker(created=1000, beaten=7), 7),
        ("since its row was made, if it never beat", worker(created=90), 90),
        ("none, if nothing is known of it", worker(created=None), 0),
        ("none, if it beat after the view was taken", worker(beaten=-3), 0),
    ],
)
def test_silence_is_counted(what: str, subject: Worker, seconds: float) -> None:
    assert silence(subject, NOW) == timedelta(seconds=seconds), what


@pytest.mark.parametrize(
    ("what", "subject", "health"),
    [
        ("just heard of", worker(beaten=0), Health.HEALTHY),
        ("at the limit of stale", worker(beaten=30), Health.HEALTHY),
        ("past it", worker(beaten=30.001), Health.STALE),
        ("at the limit of lost", worker(beaten=60), Health.STALE),
        ("past it", worker(beaten=60.001), Health.LOST),
        ("starting is judged by its heartbeats", worker("starting", beaten=61), Health.LOST),
        ("so is waiting", worker("waiting", beaten=31), Health.STALE),
        ("and draining", worker("draining", beaten=61), Health.LOST),
        ("up, but never beat", worker("starting", created=61), Health.LOST),
        ("spawning has its time to start", worker("spawning", created=61), Health.HEALTHY),
        ("at the limit of starting", worker("spawning", created=120), Health.HEALTHY),
        ("past it", worker("spawning", created=120.001), Health.LOST),
        ("a clock ahead of ours", worker(beaten=-600), Health.HEALTHY),
    ],
)
def test_a_workers_silence_is_judged(what: str, subject: Worker, health: Health) -> None:
    assert judge(subject, NOW, BENCH) is health, what


@pytest.mark.parametrize(("kind", "stale", "lost"), [(PoolKind.JOBS, 61, 121), (PoolKind.FLEET, 61, 301)])
def test_each_kind_of_pool_has_its_own_patience(kind: PoolKind, stale: float, lost: float) -> None:
    judged = [judge(worker(beaten=seconds), NOW, PRESETS[kind]) for seconds in (stale - 2, stale, lost)]

    assert judged == [Health.HEALTHY, Health.STALE, Health.LOST]
