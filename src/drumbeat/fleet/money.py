"""What workers cost, and how many more may be started before a ceiling would be passed. Pure.

A worker is paid for from the making of its row until its instance is known to be gone, rounded up to the provider's granule.
Whoever stays is counted with what it will cost until it could be gone: a ceiling is kept by asking workers to leave in time.
What of that falls into the next hour, day or month must be within its ceiling too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil, floor, inf, isfinite

from drumbeat.core.worker import Worker, WorkerId
from drumbeat.fleet.model import FleetPolicy, FleetView, Provider, Spending

HOUR = timedelta(hours=1)
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """What a worker costs here, unless its row says otherwise."""

    price: float  #: per hour
    granule: timedelta

    def of(self, worker: Worker) -> float:
        told = worker.meta.get("price_per_hour")
        return float(told) if isinstance(told, int | float) else self.price


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One of the policy's limits on money, and the period it is for."""

    name: str
    most: float
    spent: float
    ends_in: timedelta  #: what is left of its period
    begins_in: timedelta = timedelta()  #: later, if it is the next one


def tariff(policy: FleetPolicy, provider: Provider) -> Tariff:
    """The policy's price and granule, or else the provider's."""
    price = provider.price_per_hour if policy.price_per_hour is None else policy.price_per_hour
    granule = provider.billing_granule if policy.billing_granule is None else policy.billing_granule
    return Tariff(price=price, granule=max(granule, timedelta(seconds=1)))


def paid_until(worker: Worker, now: datetime, granule: timedelta) -> datetime:
    """To when a worker is paid for: its end, or now, rounded up to the granule."""
    begun = worker.created_at or now
    used = max((worker.reaped_at or now) - begun, timedelta())
    return begun + granule * max(ceil(used / granule), 1)


def spend(workers: Iterable[Worker], now: datetime, at: Tariff) -> Spending:
    """What was spent in the running hour, day and month, on rows of any age."""
    hour, day, month = _hour(now), _day(now), _month(now)
    sums = [0.0, 0.0, 0.0]
    for worker in workers:
        if _was_billed(worker) and (price := at.of(worker)):
            until, begun = paid_until(worker, now, at.granule), worker.created_at or now
            for n, since in enumerate((hour, day, month)):
                sums[n] += price * (max(until - max(begun, since), timedelta()) / HOUR)
    return Spending(hour=sums[0], day=sums[1], month=sums[2])


def burn(workers: Sequence[Worker], at: Tariff) -> float:
    """Money per hour now: everyone whose instance may exist."""
    return sum(at.of(worker) for worker in workers if worker.reaped_at is None and _was_billed(worker))


def affordable(view: FleetView, staying: Sequence[Worker], uncounted: Sequence[Worker] = ()) -> tuple[int, str]:
    """How many of ``staying`` and of new workers together may be, and which ceiling says so.

    Nothing is reserved for ``uncounted``: they are asked to leave before any of ``staying``.
    """
    at = tariff(view.policy, view.provider)
    leaving = _leaving(view, (*staying, *uncounted))
    found = [_within(view, staying, leaving, at, ceiling) for ceiling in ceilings(view)]
    most, name = min(found, default=(inf, ""))
    return (int(most), name) if isfinite(most) else (1_000_000_000, "")


def ceilings(view: FleetView) -> list[Ceiling]:
    """The limits that are set."""
    now, policy, spent = view.now, view.policy, view.spent
    ends = {"hour": _hour(now) + HOUR, "day": _day(now) + timedelta(days=1), "month": _next_month(now)}
    most = {"hour": policy.max_per_hour, "day": policy.max_per_day, "month": policy.max_per_month}
    so_far = {"hour": spent.hour, "day": spent.day, "month": spent.month}
    limits = {name: limit for name, limit in most.items() if limit is not None}
    running = [Ceiling(name=name, most=limit, spent=so_far[name], ends_in=ends[name] - now) for name, limit in limits.items()]
    return [*running, *(_next(ceiling, view) for ceiling in running if ceiling.ends_in < _longest(view))]


def _next(running: Ceiling, view: FleetView) -> Ceiling:
    """That of the next period, of which nothing is spent: whoever is here when it begins spends it."""
    return replace(running, spent=0.0, begins_in=running.ends_in, ends_in=running.ends_in + _longest(view))


def _longest(view: FleetView) -> timedelta:
    """From now until a worker that is started now is gone for certain."""
    return _until_gone(view) + view.provider.usual_start


def _within(
    view: FleetView, staying: Sequence[Worker], leaving: Sequence[Worker], at: Tariff, ceiling: Ceiling
) -> tuple[float, str]:
    """How many workers one ceiling allows: of those here so many that any of them may be the ones kept, then new ones."""
    span, strays = _until_gone(view), _strays(view)
    costs = sorted((_to_come(view.now, at, worker, ceiling, span) for worker in staying), reverse=True)
    gone = sum(_to_come(view.now, at, worker, ceiling, span) for worker in leaving)
    gone += strays * at.price * (_unpaid(ceiling, span, timedelta(), at.granule) / HOUR)
    count, left = _fill(ceiling.most - ceiling.spent - gone + _EPSILON, costs)
    new = _new_one(at, ceiling, _longest(view))
    allowed = count if count < len(staying) else count + (floor(left / new) if new else inf)
    if ceiling.name == "hour" and at.price:
        allowed = min(allowed, floor((ceiling.most - burn(leaving, at) + _EPSILON) / at.price) - strays)
    return max(allowed, 0), ceiling.name


def _leaving(view: FleetView, staying: Sequence[Worker]) -> list[Worker]:
    kept = {worker.worker_id for worker in staying}
    return [each for each in view.workers if each.reaped_at is None and _was_billed(each) and each.worker_id not in kept]


def _strays(view: FleetView) -> int:
    """Instances that run without a row: they are being ended, and cost until they are."""
    known = {worker.worker_id for worker in view.workers if worker.reaped_at is None}
    return sum(each.running and each.worker_id not in known for each in view.instances)


def _fill(left: float, costs: Sequence[float]) -> tuple[int, float]:
    for n, cost in enumerate(costs):
        if cost > left:
            return n, left
        left -= cost
    return len(costs), left


def _to_come(now: datetime, at: Tariff, worker: Worker, ceiling: Ceiling, span: timedelta) -> float:
    """What a worker will still cost within this time and the ceiling's period, beyond what is paid for."""
    paid = max(paid_until(worker, now, at.granule) - now, timedelta())
    return at.of(worker) * (_unpaid(ceiling, span, paid, at.granule) / HOUR)


def _new_one(at: Tariff, ceiling: Ceiling, span: timedelta) -> float:
    least = timedelta() if ceiling.begins_in else at.granule
    return at.price * (max(_unpaid(ceiling, span, timedelta(), at.granule), least) / HOUR)


def _unpaid(ceiling: Ceiling, span: timedelta, paid: timedelta, granule: timedelta) -> timedelta:
    """Of this time, what is still to be paid for in the ceiling's period: whole granules, each where it begins."""
    until = _round_up(max(min(span, ceiling.ends_in) - paid, timedelta()), granule)
    if not ceiling.begins_in:
        return until
    return until - _round_up(max(min(span, ceiling.begins_in) - paid, timedelta()), granule)


def _until_gone(view: FleetView) -> timedelta:
    """From now until a worker that is asked to leave at the next beat is gone for certain, a late beat allowed for."""
    return view.cadence * 3 + view.policy.limits(view.thresholds).drain_within


def granule_left(worker: Worker, view: FleetView) -> timedelta:
    """How much of a worker's paid time is not used yet."""
    at = tariff(view.policy, view.provider)
    return paid_until(worker, view.now, at.granule) - view.now


def by_paid_time(view: FleetView) -> Callable[[Worker], tuple[timedelta, int, WorkerId]]:
    """The order in which idle workers leave: whose paid time ends next, then the highest slot."""
    at = tariff(view.policy, view.provider)
    return lambda worker: (paid_until(worker, view.now, at.granule) - view.now, -worker.slot, worker.worker_id)


def _round_up(span: timedelta, granule: timedelta) -> timedelta:
    return granule * ceil(span / granule)


def _was_billed(worker: Worker) -> bool:
    return not worker.meta.get("spawn_failed")


def _hour(now: datetime) -> datetime:
    return now.replace(minute=0, second=0, microsecond=0)


def _day(now: datetime) -> datetime:
    return _hour(now).replace(hour=0)


def _month(now: datetime) -> datetime:
    return _day(now).replace(day=1)


def _next_month(now: datetime) -> datetime:
    return _month(_month(now) + timedelta(days=32))
