"""Record when each trigger last fired and with which outcome, as a note in the store."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drumbeat.core.errors import DrumbeatError
from drumbeat.core.note import Note
from drumbeat.store.interface import Notes
from drumbeat.triggers.model import Firing, RunBeats

log = logging.getLogger(__name__)

_PREFIX = "trigger/"
_MOST_POOLS = 20
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LastFired:
    """When and with which outcome a trigger last fired, by the store's clock."""

    at: datetime
    ok: bool  #: whether every beat and every action in it succeeded
    outcome: str  #: a summary for each pool, or the error


async def run_and_record(notes: Notes, run: RunBeats, firing: Firing) -> Mapping[str, Any]:
    """Run a trigger's beat and record its outcome. Raises what the beat raises; an error while recording is only logged."""
    try:
        beats = await run(firing)
    except DrumbeatError as exc:
        await _note(notes, firing, ok=False, outcome=str(exc))
        raise
    ok = all(report["ok"] for report in beats.values())
    await _note(notes, firing, ok=ok, outcome=outcome_of(beats))
    return beats


async def last_fired(notes: Notes) -> Mapping[str, LastFired]:
    """Return when and with which outcome triggers last fired, by name. Triggers that never fired are left out."""
    return {note.name.removeprefix(_PREFIX): _read(note) for note in await notes.list(_PREFIX)}


def outcome_of(beats: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe in one line what the beats of a fired trigger did: actions, errors, or why nothing was done."""
    if not beats:
        return "no pool found"
    outcomes = [f"{pool}: {_outcome(report)}" for pool, report in list(beats.items())[:_MOST_POOLS]]
    more = len(beats) - len(outcomes)
    return "; ".join(outcomes) + (f"; and {more} more" if more else "")


def _outcome(report: Mapping[str, Any]) -> str:
    if report.get("error"):
        return f"failed: {report['error']}"
    actions = report.get("actions") or ()
    if actions:
        count = f"{len(actions)} action{'s' if len(actions) > 1 else ''}"
        failed = [action["error"] for action in actions if "error" in action]
        return f"{count}, {len(failed)} failed: {failed[0]}" if failed else count
    return str(report.get("why_not") or "nothing to do")


async def _note(notes: Notes, firing: Firing, *, ok: bool, outcome: str) -> None:
    try:
        await notes.put(f"{_PREFIX}{firing.trigger}", {"ok": ok, "outcome": outcome[:_LONGEST]})
    except DrumbeatError as exc:
        log.warning("trigger %s fired, but failed to record its outcome: %s", firing.trigger, exc)


def _read(note: Note) -> LastFired:
    return LastFired(at=note.updated_at, ok=bool(note.value.get("ok")), outcome=str(note.value.get("outcome", "")))
