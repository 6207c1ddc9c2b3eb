"""Computes the cost of a run: hours of workers and of the database times their prices, also per operation. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from drumbeat.bench.model.plan import Prices
from drumbeat.bench.model.record import RunRecord, WorkerRecord

HOURS = ("worker_hours", "target_hours")  #: the hours used, as a run's result stores them with its cost
_HOUR = timedelta(hours=1)


class Method(StrEnum):
    """How the cost of a run was computed."""

    ACTUAL = "actual"  #: the hours used times the prices given
    UNAVAILABLE = "unavailable"  #: no price was given, or nothing ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a run, in the currency of its prices. A part without a price is None and not in the total."""

    method: Method
    currency: str = "USD"
    worker_hours: float = 0.0
    target_hours: float = 0.0
    workers: float | None = None
    target: float | None = None
    total: float | None = None
    per_hour: float | None = None  #: cost of an hour of this run
    per_operation: float | None = None  #: the cost of the whole run divided by its measured operations
    per_1000_operations: float | None = None
    qps_per_money: float | None = None  #: operations per second for an hourly cost of 1
    per_1000_qps: float | None = None  #: hourly cost of 1,000 operations per second


def cost_of(record: RunRecord) -> Cost:
    """Compute the cost of a run from its prices and the hours or credits used. For an ended run, the stored hours are
    used, because workers may have been deleted since."""
    stored = record.stored_metrics.get("cost") or {}
    worker_hours = stored.get("worker_hours", _worker_hours(record, stored))
    return cost(
        record.plan.prices,
        used_credits=credits_in(record.result.custom_metrics if record.result else {}),
        worker_hours=worker_hours,
        target_hours=stored.get("target_hours", _hours(record.origin, record.ended)),
        operations=record.whole.operations,
        qps=record.whole.qps,
    )


def _worker_hours(record: RunRecord, stored: Mapping[str, Any]) -> float:
    """Return the hours of a run's workers: their part of the ``stored`` cost divided by their price or, if that is not known,
    the sum of the workers' running times."""
    price = record.plan.prices.worker_hour
    if price and ("credits" in stored or "target" in stored):
        return float(stored["total"] - (stored.get("credits", stored.get("target")) or 0.0)) / price
    return sum(_lifetime(worker, record.ended) for worker in record.workers)


def credits_in(metrics: Mapping[str, Any]) -> float | None:
    """Return the Snowflake credits of a run, from its result's metrics; None if they are not known.

    There are two figures: an estimate for this run, and the metered credits, which include those of other users in the same
    hours and so are an upper limit. Returns the lower one, or the only one."""
    server = metrics.get("server")
    used = server.get("credits") if isinstance(server, Mapping) else None
    if not isinstance(used, Mapping):
        return None
    known = [float(used[name]) for name in ("estimated", "metered") if used.get(name) is not None]
    return min(known, default=None)


def with_credits(metrics: Mapping[str, Any], prices: Prices, used: Mapping[str, float], operations: int) -> Mapping[str, Any]:
    """Return a result's metrics with the cost of the credits ``used`` as the database's part of the cost. It replaces the part
    computed from hours or earlier credits. The metrics are unchanged if the credits or their price are unknown."""
    amount = credits_in({"server": {"credits": used}})
    if prices.credit is None or amount is None:
        return metrics
    before = metrics.get("cost") or {}
    part = amount * prices.credit
    replaced = before.get("credits", before.get("target"))
    total = float(before.get("total") or 0.0) - float(replaced or 0.0) + part
    each = total / operations * 1000 if operations else None
    known = {name: before[name] for name in HOURS if name in before}
    found = {"total": total, "currency": prices.currency, "per_1000_operations": each, "credits": part, **known}
    return {**metrics, "cost": found}


def cost(
    prices: Prices, *, worker_hours: float, target_hours: float, operations: int, qps: float, used_credits: float | None = None
) -> Cost:
    """Compute a cost. The database's part is credits × their price if both are known, otherwise hours × their price."""
    workers = None if prices.worker_hour is None else worker_hours * prices.worker_hour
    target = None if prices.target_hour is None else target_hours * prices.target_hour
    if prices.credit is not None and used_credits is not None:
        target = used_credits * prices.credit
    known = [part for part in (workers, target) if part is not None]
    if not known or not (worker_hours or target_hours):
        return Cost(method=Method.UNAVAILABLE, currency=prices.currency, worker_hours=worker_hours, target_hours=target_hours)
    total = sum(known)
    per_hour = total / target_hours if target_hours else None
    each = total / operations if operations else None
    return Cost(
        method=Method.ACTUAL,
        currency=prices.currency,
        worker_hours=worker_hours,
        target_hours=target_hours,
        workers=workers,
        target=target,
        total=total,
        per_hour=per_hour,
        per_operation=each,
        per_1000_operations=None if each is None else each * 1000,
        qps_per_money=qps / per_hour if per_hour else None,
        per_1000_qps=per_hour / qps * 1000 if per_hour and qps else None,
    )


def _lifetime(worker: WorkerRecord, until: datetime | None) -> float:
    return _hours(worker.began, worker.ended or until)


def _hours(began: datetime | None, ended: datetime | None) -> float:
    return max((ended - began) / _HOUR, 0.0) if began and ended else 0.0
