"""Prometheus metrics of fleets, from the last pass of each autoscaler. The provider is not asked, so no API key is needed."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.beat import Beat
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.pool import PoolRow

Line = tuple[str, Mapping[str, str], float]

FLEET_HELP = {
    "drumbeat_workers_wanted": "Number of workers that a fleet's last beat wanted.",
    "drumbeat_breaker_open": "Whether the circuit breaker is open: a fleet starts no workers because too many failed.",
    "drumbeat_breaker_failed_workers": "Workers that had failed when the breaker opened; 0 while it is closed.",
    "drumbeat_provider_faults": "Consecutive failures of a fleet's provider to start a worker.",
    "drumbeat_provider_backoff_seconds": "Seconds until a fleet asks its provider again after a failure.",
    "drumbeat_spawns_failed": "Workers that the provider failed to start in a fleet's last beat.",
    "drumbeat_spawns_failed_total": "Workers that the provider failed to start so far.",
    "drumbeat_alarms": "Alarms of a fleet's last beat.",
    "drumbeat_spent": "Money spent by a fleet in the current hour, day and month (UTC).",
    "drumbeat_burn_per_hour": "Current cost of a fleet per hour.",
}


async def fleet_lines(plane: ControlPlane, pool: PoolRow, now: datetime) -> list[Line]:
    """Return a fleet's metrics, from the last decision of its autoscaler; only its costs if it has made no decision yet."""
    last = await plane.fleet(pool.pool_id).last_decision()
    decided = [] if last is None else _decided(str(pool.pool_id), last, now)
    return [*decided, *await _money(plane, pool, last)]


def _decided(name: str, last: Beat, now: datetime) -> list[Line]:
    """Return metrics of an autoscaler's last decision: wanted workers, breaker, backoff, failed starts and alarms."""
    summary, state = last.summary, last.summary.get("state") or {}
    breaker, backoff = state.get("breaker") or {}, state.get("backoff") or {}
    failed = summary.get("spawns_failed", 0)
    is_open = breaker.get("opened_at") is not None
    figures = {
        "drumbeat_workers_wanted": summary.get("wanted"),
        "drumbeat_breaker_open": is_open,
        "drumbeat_breaker_failed_workers": breaker.get("faults", 0) if is_open else 0,
        "drumbeat_provider_faults": backoff.get("faults", 0),
        "drumbeat_provider_backoff_seconds": _seconds_left(backoff.get("until"), now),
        "drumbeat_spawns_failed": failed,
        "drumbeat_spawns_failed_total": state.get("failed_spawns", 0) + failed,
        "drumbeat_alarms": len(summary.get("alarms", ())),
    }
    return [(metric, {"pool": name}, float(value)) for metric, value in figures.items() if value is not None]


def _seconds_left(until: Any, now: datetime) -> float:
    return 0.0 if until is None else max((datetime.fromisoformat(until) - now).total_seconds(), 0.0)


async def _money(plane: ControlPlane, pool: PoolRow, last: Beat | None) -> list[Line]:
    """Return the costs of a fleet; empty if its workers have no price or its policy cannot be read."""
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
