"""When triggers last fired: noted by whoever ran the beat, whatever came of it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import NotFound
from drumbeat.store.memory import MemoryStore
from drumbeat.triggers.firings import last_fired, outcome_of, run_and_record
from drumbeat.triggers.model import Firing

FIRING = Firing(trigger="often")


async def went_well(_: Firing) -> Mapping[str, Any]:
    return {"mail": {"actions": [{"type": "Spawn"}, {"type": "Spawn"}], "error": None, "ok": True}}


async def failed(_: Firing) -> Mapping[str, Any]:
    raise NotFound("no pool 'mail'")


async def test_a_trigger_that_never_fired_is_not_noted(store: MemoryStore) -> None:
    assert await last_fired(store.notes) == {}


async def test_the_last_firing_stands_with_its_time_and_outcome(store: MemoryStore, clock: ManualClock) -> None:
    beats = await run_and_record(store.notes, went_well, FIRING)
    await clock.advance(timedelta(minutes=5))
    with pytest.raises(NotFound):
        await run_and_record(store.notes, failed, Firing(trigger="seldom"))
    first = await last_fired(store.notes)
    await clock.advance(timedelta(minutes=5))
    await run_and_record(store.notes, went_well, Firing(trigger="seldom"))
    second = await last_fired(store.notes)

    assert beats == await went_well(FIRING)
    assert (first["often"].ok, first["often"].outcome) == (True, "mail: 2 actions")
    assert (first["seldom"].ok, first["seldom"].outcome) == (False, "no pool 'mail'")
    assert first["seldom"].at - first["often"].at == timedelta(minutes=5)
    assert second["seldom"].ok
    assert second["seldom"].at - first["seldom"].at == timedelta(minutes=5)


async def test_a_firing_whose_actions_failed_did_not_succeed(store: MemoryStore) -> None:
    async def start_failed(_: Firing) -> Mapping[str, Any]:
        return {"mail": {"actions": [{"type": "Spawn", "error": "no room"}], "error": None, "ok": False}}

    await run_and_record(store.notes, start_failed, FIRING)

    last = (await last_fired(store.notes))["often"]
    assert (last.ok, last.outcome) == (False, "mail: 1 action, 1 failed: no room")


async def test_a_beat_is_not_undone_by_a_note_that_cannot_be_written(store: MemoryStore) -> None:
    with store.unavailable():
        beats = await run_and_record(store.notes, went_well, FIRING)

    assert "mail" in beats
    assert await last_fired(store.notes) == {}


@pytest.mark.parametrize(
    ("beats", "says"),
    [
        ({}, "no pool found"),
        ({"a": {"actions": [{}]}}, "a: 1 action"),
        ({"a": {"actions": [{}, {"error": "no room"}, {"error": "x"}]}}, "a: 3 actions, 2 failed: no room"),
        ({"a": {"why_not": "paused"}, "b": {}}, "a: paused; b: nothing to do"),
        ({"a": {"error": "observe: gone", "actions": [{}]}}, "a: failed: observe: gone"),
        ({str(n): {} for n in range(23)}, "; and 3 more"),
    ],
)
def test_what_came_of_it_is_said_in_a_line(beats: dict[str, Any], says: str) -> None:
    assert outcome_of(beats).endswith(says)
