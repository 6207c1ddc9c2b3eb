"""Recorded beats decided again, under the same policy or another: what would have been done otherwise. Pure.

Each beat is judged by what it saw then: what another decision would have changed about the next beat is not in its view. For
that, simulate.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import Action, FleetPolicy, FleetView

Spell = Callable[[Action], Mapping[str, Any]]  #: an action as a beat keeps it
Change = Callable[[FleetPolicy], FleetPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBeat:
    """What a beat saw and what it wanted done."""

    n: int
    at: datetime
    view: FleetView
    actions: tuple[Mapping[str, Any], ...]  #: each with its type


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDifference:
    """A beat that would do something else now."""

    n: int
    at: datetime
    before: tuple[str, ...]  #: actions that are not wanted now
    after: tuple[str, ...]  #: actions that were not wanted then
    wanted: int  #: workers it would want now


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What became of recorded beats."""

    beats: int = 0
    same: int = 0
    spawns_before: int = 0
    spawns_after: int = 0
    drains_before: int = 0
    drains_after: int = 0
    differences: tuple[ReplayDifference, ...] = ()

    def __add__(self, later: "Replay") -> "Replay":
        """The same with what became of later beats: a long record is decided again a page at a time."""
        return Replay(
            beats=self.beats + later.beats,
            same=self.same + later.same,
            spawns_before=self.spawns_before + later.spawns_before,
            spawns_after=self.spawns_after + later.spawns_after,
            drains_before=self.drains_before + later.drains_before,
            drains_after=self.drains_after + later.drains_after,
            differences=self.differences + later.differences,
        )

    @property
    def share(self) -> float:
        """How many of the beats decide as they did."""
        return self.same / self.beats if self.beats else 1.0


def replay(beats: Sequence[RecordedBeat], spell: Spell, change: Change | None = None) -> Replay:
    """Decide each beat again; with ``change``, under the policy it makes of the recorded one."""
    again = [_decided(beat, spell, change) for beat in beats]
    differences = tuple(found for _, found in again if found is not None)
    before = [action["type"] for beat in beats for action in beat.actions]
    after = [action["type"] for actions, _ in again for action in actions]
    return Replay(
        beats=len(beats),
        same=len(beats) - len(differences),
        spawns_before=before.count("Spawn"),
        spawns_after=after.count("Spawn"),
        drains_before=before.count("AskToDrain"),
        drains_after=after.count("AskToDrain"),
        differences=differences,
    )


def _decided(beat: RecordedBeat, spell: Spell, change: Change | None) -> tuple[list[dict[str, Any]], ReplayDifference | None]:
    policy = change(beat.view.policy) if change else beat.view.policy
    decision = decide(replace(beat.view, policy=policy))
    now = [_as_kept(spell(action)) for action in decision.actions]
    then = [_as_kept(action) for action in beat.actions]
    if now == then:
        return now, None
    return now, ReplayDifference(
        n=beat.n,
        at=beat.at,
        before=tuple(_say(action) for action in then if action not in now),
        after=tuple(_say(action) for action in now if action not in then),
        wanted=int(decision.summary["wanted"]),
    )


def _as_kept(action: Mapping[str, Any]) -> dict[str, Any]:
    """An action as its row has it, without what became of it."""
    kept: dict[str, Any] = json.loads(json.dumps({name: value for name, value in action.items() if name != "error"}))
    return kept


def _say(action: Mapping[str, Any]) -> str:
    subject = action.get("worker_id") or (action.get("worker") or {}).get("worker_id") or ""
    return f"{action['type']} {subject}: {action['reason']}" if subject else f"{action['type']}: {action['reason']}"
