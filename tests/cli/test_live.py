"""What is told of a run on a terminal, or without one."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from drumbeat.bench.results.judgement import NO_LEADER, TAKEN_OVER_WITHIN, read_judgement
from drumbeat.cli.live import RunScreen, not_started
from drumbeat.core.beat import Beat
from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import Run, RunId, RunStatus
from drumbeat.store.interface import RunChange
from drumbeat.store.memory import MemoryStore

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


async def test_watching_says_once_that_no_orchestrator_leads_the_run_until_one_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    run = await store.runs.create(Run(run_id=RunId("r"), name="r", config={}), pool("r", PoolKind.BENCH))
    await store.runs.update(run, RunChange(status=RunStatus.STARTING, phase="PREPARING", started=True))
    screen = RunScreen(store, RunId("r"), partial(read_judgement, store))
    printed = []

    for _ in range(3):
        await screen.refresh()
        screen.print_changes()
        printed.append(capsys.readouterr().out.splitlines())
        await clock.advance(TAKEN_OVER_WITHIN)
    drawn = screen.waiting()
    await store.leases.acquire("r", "another", timedelta(seconds=10))
    await screen.refresh()

    assert printed == [["• PREPARING"], [f"  {NO_LEADER}"], []]
    assert (drawn, screen.waiting(), screen.ended.is_set()) == (NO_LEADER, None, False)


async def test_watching_says_once_that_the_run_was_not_started_until_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    store = MemoryStore(ManualClock())
    run = await store.runs.create(Run(run_id=RunId("r"), name="r", config={}), pool("r", PoolKind.BENCH))
    screen = RunScreen(store, RunId("r"), partial(read_judgement, store))
    printed = []

    for _ in range(2):
        await screen.refresh()
        screen.print_changes()
        printed.append(capsys.readouterr().out.splitlines())
    drawn = screen.waiting()
    await store.runs.update(run, RunChange(status=RunStatus.STARTING, phase="PREPARING"))
    await screen.refresh()

    assert printed == [[f"  {not_started(RunId('r'))}"], []]
    assert (drawn, screen.waiting(), screen.ended.is_set()) == (not_started(RunId("r")), None, False)
