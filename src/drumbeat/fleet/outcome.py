"""Add the results of a beat's actions to its summary: counts of successful ones, and alarms about failed ones. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MANY_STARTS = 3  #: this many new workers in one beat raise an alarm
_MAX_NAMED = 3  #: maximum number of failed actions named in one alarm

RecordedAction = Mapping[str, Any]  #: an action as a beat records it, with its error if it failed


def with_outcome(summary: Mapping[str, Any], actions: Sequence[RecordedAction]) -> dict[str, Any]:
    """Return a beat's summary with the results of its actions added."""
    if "actions" not in summary:
        return dict(summary)
    spawned = [action for action in actions if action["type"] == "Spawn"]
    done = sum("error" not in action for action in spawned)
    counted = {"actions": {**summary["actions"], "workers_spawned": done}, "spawns_failed": sum(map(was_refused, spawned))}
    alarms = [*summary.get("alarms", ()), *_starts(spawned), *_failures(actions)]
    return {**summary, **counted, **({"alarms": alarms} if alarms else {})}


def was_refused(action: RecordedAction) -> bool:
    """Whether an action was tried and failed. An error that begins with ``not`` says that the action was not tried."""
    return "error" in action and not str(action["error"]).startswith("not ")


def _starts(spawned: Sequence[RecordedAction]) -> Iterator[str]:
    started = [action for action in spawned if action.get("is_new") and "error" not in action]
    if len(started) >= MANY_STARTS:
        yield f"{len(started)} workers were started in one beat"


def _failures(actions: Sequence[RecordedAction]) -> Iterator[str]:
    """Yield one sentence about workers that could not be started, and one about all other failed actions."""
    failed = [action for action in actions if "error" in action]
    unstarted = [action for action in failed if action["type"] == "Spawn"]
    others = [action for action in failed if action["type"] != "Spawn"]
    if unstarted:
        yield f"{_workers(len(unstarted))} could not be started: {unstarted[0]['error']}"
    if others:
        named = "; ".join(map(_describe, others[:_MAX_NAMED]))
        count = "1 other action" if len(others) == 1 else f"{len(others)} other actions"
        yield f"{count} failed: {named}" + ("; and more" if len(others) > _MAX_NAMED else "")


def _describe(action: RecordedAction) -> str:
    return f"{action['type']} {_subject(action)}: {action['error']}".replace(" :", ":")


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _subject(action: RecordedAction) -> str:
    return str(action.get("worker_id") or (action.get("worker") or {}).get("worker_id") or "")
