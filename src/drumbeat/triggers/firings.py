"""When a trigger last fired and what came of it: one note of each in the store, written by whoever ran its beat."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drumbeat.core.errors import DrumbeatError
from drumbeat.core.note import Note
from drumbeat.store.interface import Notes
from drumbeat.triggers.model import Firing, Run

log = logging.getLogger(__name__)

_PREFIX = "trigger/"
_MOST_POOLS = 20
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LastFired:
    """The last time one was pulled, by the store's clock."""

    at: datetime
    ok: bool  #: whether every beat it woke went well
    outcome: str  #: by pool, or what went wrong


async def noted(notes: Notes, run: Run, firing: Firing) -> Mapping[str, Any]:
    """Run a trigger's beat, and note what came of it. Raises what the beat raises; never for the note."""
    try:
        beats = await run(firing)
    except DrumbeatError as exc:
        await _note(notes, firing, ok=False, outcome=str(exc))
        raise
    ok = not any(report.get("error") for report in beats.values())
    await _note(notes, firing, ok=ok, outcome=outcome_of(beats))
    return beats


async def last_fired(notes: Notes) -> Mapping[str, LastFired]:
    """By the triggers' names. One that never fired is not among them."""
    return {note.name.removeprefix(_PREFIX): _read(note) for note in await notes.list(_PREFIX)}


def outcome_of(beats: Mapping[str, Mapping[str, Any]]) -> str:
    """What the beats of one firing came to, in a line."""
    if not beats:
        return "there is no pool to look after"
    said = [f"{pool}: {_did(report)}" for pool, report in list(beats.items())[:_MOST_POOLS]]
    more = len(beats) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")


def _did(report: Mapping[str, Any]) -> str:
    if report.get("error"):
        return f"failed: {report['error']}"
    actions = report.get("actions") or ()
    if actions:
        return f"{len(actions)} action{'s' if len(actions) > 1 else ''}"
    return str(report.get("why_not") or "nothing to do")


async def _note(notes: Notes, firing: Firing, *, ok: bool, outcome: str) -> None:
    try:
        await notes.put(f"{_PREFIX}{firing.trigger}", {"ok": ok, "outcome": outcome[:_LONGEST]})
    except DrumbeatError as exc:
        log.warning("trigger %s fired, and that could not be noted: %s", firing.trigger, exc)


def _read(note: Note) -> LastFired:
    return LastFired(at=note.updated_at, ok=bool(note.value.get("ok")), outcome=str(note.value.get("outcome", "")))
