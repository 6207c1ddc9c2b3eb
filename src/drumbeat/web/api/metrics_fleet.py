"""Figures of fleets for Prometheus, from their last beats: no provider is asked, so a server without its key has them too."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.beat import Beat
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.pool import PoolRow

Line = tuple[str, Mapping[str, str], float]

FLEET_HELP = {
    "drumbeat_workers_wanted": "Workers the last beat of a fleet wanted.",
    "drumbeat_breaker_open": "Whether a fleet starts no workers because too many failed.",
    "drumbeat_breaker_failed_workers": "Workers that had failed when the breaker opened; 0 while it is closed.",
    "drumbeat_provider_faults": "How often in a row a fleet's provider failed to start a worker.",
    "drumbeat_provider_backoff_seconds": "How long a fleet's provider is still left alone after it failed.",
    "drumbeat_spawns_failed": "Workers that the provider failed to start in a fleet's last beat.",
    "drumbeat_spawns_failed_total": "Workers that the provider failed to start, as long as a fleet's beats remember.",
    "drumbeat_alarms": "Alarms of a fleet's last beat.",
    "drumbeat_spent": "Money spent by a fleet in the running hour, day and month (UTC).",
    "drumbeat_burn_per_hour": "Money a fleet costs an hour now.",
}


async def fleet_lines(plane: ControlPlane, pool: PoolRow, now: datetime) -> list[Line]:
    """A fleet's own figures, by its last decision: a beat that failed to look tells nothing of them.

    Before its first decision there is only its money.
    """
    last = await plane.fleet(pool.pool_id).last_decision()
    seen = [] if last is None else _decided(str(pool.pool_id), last, now)
    return [*seen, *await _money(plane, pool, last)]


def _decided(name: str, last: Beat, now: datetime) -> list[Line]:
    """What the last decision wanted, and what kept it from getting it."""
    summary, state = last.summary, last.summary.get("state") or {}
    breaker, backoff = state.get("breaker") or {}, state.get("backoff") or {}
    failed = summary.get("spawns_failed", 0)
    is_open = breaker.get("opened_at") is not None
    figures = {
        "drumbeat_workers_wanted": summary.get("wanted"),
        "drumbeat_breaker_open": is_open,
        "drumbeat_breaker_failed_workers": breaker.get("faults", 0) if is_open else 0,
        "drumbeat_provider_faults": backoff.get("faults", 0),
        "drumbeat_provider_backoff_seconds": _left(backoff.get("until"), now),
        "drumbeat_spawns_failed": failed,
        "drumbeat_spawns_failed_total": state.get("failed_spawns", 0) + failed,
        "drumbeat_alarms": len(summary.get("alarms", ())),
    }
    return [(metric, {"pool": name}, float(value)) for metric, value in figures.items() if value is not None]


def _left(until: Any, now: datetime) -> float:
    return 0.0 if until is None else max((datetime.fromisoformat(until) - now).total_seconds(), 0.0)


async def _money(plane: ControlPlane, pool: PoolRow, last: Beat | None) -> list[Line]:
    """Of fleets whose workers cost something; a policy that cannot be read costs nothing here."""
    try:
        found = await plane.fleet(pool.pool_id).spent_by(last)
    except DrumbeatError:
        return []
    if not (found.price_per_hour or found.spent.month):
        return []
    name = str(pool.pool_id)
    spent: list[Line] = [
        ("drumbeat_spent", {"pool": name, "period": each}, getattr(found.spent, each)) for each in ("hour", "day", "month")
    ]
    return [*spent, ("drumbeat_burn_per_hour", {"pool": name}, found.burn_per_hour)]
