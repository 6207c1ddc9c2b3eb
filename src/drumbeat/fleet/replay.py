"""Repeat the decisions of recorded beats, with the same policy or another, and list what differs. Pure.

Each beat is decided from what it observed when it was recorded, even if the beats before it are now decided differently. Only a
simulation (``fleet simulate``) shows how one decision affects the next."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import Action, FleetPolicy, FleetView

EncodeAction = Callable[[Action], Mapping[str, Any]]  #: converts an action to the form in which a beat records it
Change = Callable[[FleetPolicy], FleetPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBeat:
    """A recorded beat: what it observed (its view), and its actions."""

    n: int
    at: datetime
    view: FleetView
    actions: tuple[Mapping[str, Any], ...]  #: recorded actions, each with its ``type``


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDifference:
    """A recorded beat that is decided differently now, and how."""

    n: int
    at: datetime
    before: tuple[str, ...]  #: recorded actions that are no longer decided
    after: tuple[str, ...]  #: actions that are decided now but were not recorded
    wanted: int  #: workers wanted now


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of repeating the decisions of recorded beats: how many are the same, and what differs."""

    beats: int = 0
    same: int = 0
    spawns_before: int = 0
    spawns_after: int = 0
    drains_before: int = 0
    drains_after: int = 0
    differences: tuple[ReplayDifference, ...] = ()

    def __add__(self, later: "Replay") -> "Replay":
        """Return the sums of both replays. A long history is replayed in parts, whose results are added."""
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
        """The share of beats that are decided as recorded, from 0 to 1."""
        return self.same / self.beats if self.beats else 1.0


def replay(beats: Sequence[RecordedBeat], encode: EncodeAction, change: Change | None = None) -> Replay:
    """Repeat the decision of each recorded beat and compare. ``change`` turns the recorded policy into the policy to use."""
    replayed = [_replayed(beat, encode, change) for beat in beats]
    differences = tuple(found for _, found in replayed if found is not None)
    before = [action["type"] for beat in beats for action in beat.actions]
    after = [action["type"] for actions, _ in replayed for action in actions]
    return Replay(
        beats=len(beats),
        same=len(beats) - len(differences),
        spawns_before=before.count("Spawn"),
        spawns_after=after.count("Spawn"),
        drains_before=before.count("AskToDrain"),
        drains_after=after.count("AskToDrain"),
        differences=differences,
    )


def _replayed(
    beat: RecordedBeat, encode: EncodeAction, change: Change | None
) -> tuple[list[dict[str, Any]], ReplayDifference | None]:
    policy = change(beat.view.policy) if change else beat.view.policy
    decision = decide(replace(beat.view, policy=policy))
    actions = [dict(encode(action)) for action in decision.actions]
    now, then = [_comparable(action) for action in actions], [_comparable(action) for action in beat.actions]
    if now == then:
        return actions, None
    return actions, ReplayDifference(
        n=beat.n,
        at=beat.at,
        before=tuple(_describe(action) for action, plain in zip(beat.actions, then, strict=True) if plain not in now),
        after=tuple(_describe(action) for action, plain in zip(actions, now, strict=True) if plain not in then),
        wanted=int(decision.summary["wanted"]),
    )


def _comparable(action: Mapping[str, Any]) -> Any:
    """Return an action as JSON without error and reason, since versions of Drumbeat can word the same reason differently."""
    return json.loads(json.dumps({name: value for name, value in action.items() if name not in ("error", "cause", "reason")}))


def _describe(action: Mapping[str, Any]) -> str:
    subject = action.get("worker_id") or (action.get("worker") or {}).get("worker_id") or ""
    return f"{action['type']} {subject}: {action['reason']}" if subject else f"{action['type']}: {action['reason']}"
