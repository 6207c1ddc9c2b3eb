"""What became of a beat's actions: its summary counts what was done, and its alarms tell what was not. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MANY_STARTS = 3  #: new workers in one beat
_NAMED = 3  #: failed actions that are named

Deed = Mapping[str, Any]  #: an action as a beat keeps it, with its error if it was not done


def with_outcome(summary: Mapping[str, Any], deeds: Sequence[Deed]) -> dict[str, Any]:
    """A decision's summary after its actions were tried."""
    if "actions" not in summary:
        return dict(summary)
    spawned = [deed for deed in deeds if deed["type"] == "Spawn"]
    done = sum("error" not in deed for deed in spawned)
    counted = {"actions": {**summary["actions"], "workers_spawned": done}, "spawns_failed": sum(map(was_refused, spawned))}
    alarms = [*summary.get("alarms", ()), *_starts(spawned), *_failures(deeds)]
    return {**summary, **counted, **({"alarms": alarms} if alarms else {})}


def was_refused(deed: Deed) -> bool:
    """Whether the provider was asked for it in vain; what was not tried was not asked."""
    return "error" in deed and not str(deed["error"]).startswith("not ")


def _starts(spawned: Sequence[Deed]) -> Iterator[str]:
    started = [deed for deed in spawned if deed.get("is_new") and "error" not in deed]
    if len(started) >= MANY_STARTS:
        yield f"{len(started)} workers were started in one beat"


def _failures(deeds: Sequence[Deed]) -> Iterator[str]:
    """One sentence for the workers that could not be started, and one for all else."""
    failed = [deed for deed in deeds if "error" in deed]
    unborn = [deed for deed in failed if deed["type"] == "Spawn"]
    others = [deed for deed in failed if deed["type"] != "Spawn"]
    if unborn:
        yield f"{_workers(len(unborn))} could not be started: {unborn[0]['error']}"
    if others:
        named = "; ".join(f"{deed['type']} {_subject(deed)}: {deed['error']}".replace(" :", ":") for deed in others[:_NAMED])
        count = "1 other action" if len(others) == 1 else f"{len(others)} other actions"
        yield f"{count} failed: {named}" + ("; and more" if len(others) > _NAMED else "")


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _subject(deed: Deed) -> str:
    return str(deed.get("worker_id") or (deed.get("worker") or {}).get("worker_id") or "")
