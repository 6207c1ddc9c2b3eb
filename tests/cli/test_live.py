"""What is told of a run on a terminal, or without one."""

from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.cli.live import RunScreen
from drumbeat.core.beat import Beat
from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunId

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def beat(n: int, *reasons: str) -> Beat:
    actions: Any = [{"type": "Spawn", "worker_id": "w-1", "reason": reason} for reason in reasons]
    known: Any = {"pool_id": PoolId("r"), "n": n, "owner": "o", "epoch": 1, "duration": timedelta(), "summary": {}, "view": {}}
    return Beat(at=BEGAN + timedelta(seconds=n), actions=actions, **known)


def test_a_decision_made_at_every_beat_is_told_once() -> None:
    store: Any = None
    screen = RunScreen(store, RunId("r"), beats=[beat(n, "no room", "and again") for n in range(1, 300)])

    told = list(screen.new_decisions())
    screen.beats = [*screen.beats, beat(300, "no room"), beat(301, "room at last")][-100:]

    assert told == ["12:00:01  Spawn w-1: no room", "12:00:01  Spawn w-1: and again"]
    assert list(screen.new_decisions()) == ["12:05:01  Spawn w-1: room at last"]
    assert screen.decisions()[0][1] > 90
