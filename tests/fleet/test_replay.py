"""Replay: recorded beats decide as they did, to the last one, and another policy's differences are told."""

import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from drumbeat.core.beat import Beat
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId
from drumbeat.fleet.decide import decide, decide_step
from drumbeat.fleet.model import FleetView
from drumbeat.fleet.recorded import recorded
from drumbeat.fleet.replay import replay
from drumbeat.fleet.settings import with_settings
from drumbeat.fleet.simulate import SimulatedLoad, SimulatedProvider, deciding
from drumbeat.fleet.simulate_files import policy_for, simulate_load
from drumbeat.runtime.beat import encode, encode_action

WEEK = 7 * 24 * 3600.0


def kept(n: int, view: FleetView) -> Beat:
    """A beat's row after it has been through a store's JSON."""
    decision = decide(view)
    actions = [encode_action(action) for action in decision.actions]
    if actions:
        actions[0] = {**actions[0], "error": "not done: no capacity"}
    row: Mapping[str, Any] = json.loads(json.dumps({"view": encode(view), "actions": actions}))
    return Beat(pool_id=PoolId("p"), n=n, at=view.now, owner="me", epoch=1, view=row["view"], actions=row["actions"])


def _noted(views: list[FleetView], view: FleetView) -> FleetView:
    views.append(view)
    return view


@pytest.fixture(scope="module")
def week() -> list[Beat]:
    """A week's beats of a fleet that worked now and then."""
    chance, views = Random(7), list[FleetView]()
    bursts = [(day * 24 * 3600.0 + chance.random() * 3600, n) for day in range(7) for n in (3, 8)]
    jobs = sorted((at + chance.random() * 300, chance.uniform(20, 200)) for at, count in bursts for _ in range(count))
    load = SimulatedLoad(arrivals=[at for at, _ in jobs], durations=[lasts for _, lasts in jobs])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "decide_step", lambda view: decide_step(_noted(views, view)))
        simulate_load(load, policy_for("lag_aware", {"max_workers": 20}), SimulatedProvider())
    return [kept(n, view) for n, view in enumerate(views, 1)]


def test_a_reason_in_other_words_is_no_difference(week: list[Beat]) -> None:
    """Beats recorded by an earlier version have its wording."""
    reworded = [replace(beat, actions=[{**action, "reason": "said before"} for action in beat.actions]) for beat in week]

    found = replay(recorded(reworded), encode_action)

    assert (found.share, found.differences) == (1.0, ())


def test_a_recorded_week_decides_as_it_did(week: list[Beat]) -> None:
    found = replay(recorded(week), encode_action)

    assert found.beats == len(week) > 100
    assert (found.share, found.differences) == (1.0, ())
    assert found.spawns_before == found.spawns_after > 10


def test_another_policy_tells_what_it_would_do_otherwise(week: list[Beat]) -> None:
    found = replay(recorded(week), encode_action, lambda policy: with_settings(policy, {"max_workers": 2}))

    assert found.share < 1
    assert found.spawns_after < found.spawns_before
    first = found.differences[0]
    assert any(line.startswith("Spawn worker-") for line in (*first.before, *first.after))
    assert first.wanted <= 2


def test_beats_that_saw_nothing_are_left_out(week: list[Beat]) -> None:
    blind = Beat(pool_id=PoolId("p"), n=999_999, at=week[0].at, owner="me", epoch=1, view=None, error="observe: no answer")

    assert replay(recorded([blind]), encode_action).beats == 0
    assert replay(recorded([*week[:3], blind]), encode_action).beats == 3


def test_a_beat_of_something_else_is_named() -> None:
    bench = Beat(pool_id=PoolId("p"), n=4, at=None, owner="me", epoch=1, view={"run": 1})  # type: ignore[arg-type]

    with pytest.raises(InvalidInput, match="this Drumbeat version cannot read what beat 4 of p observed: "):
        recorded([bench])
