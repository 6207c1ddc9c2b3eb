"""What workers cost, and how many workers the money ceilings allow. Pure.

A worker is paid for from the creation of its row until its instance is gone, rounded up to whole granules (the shortest time
that the provider bills). A ceiling per hour, day or month must cover the money already spent in that period, and the money that
each worker still costs in that period until it is drained. So the ceiling is not exceeded while workers drain."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil, floor, inf, isfinite

from drumbeat.core.worker import Worker, WorkerId
from drumbeat.fleet.model import FleetPolicy, FleetView, Provider, SettledSpending, Spending, Tariff

HOUR = timedelta(hours=1)
_SETTLED_AFTER = HOUR  #: how long a reaped worker's row is still read, in case a clock goes back or a late write changes it
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One of the policy's money ceilings in the current or next period: an hour, a day or a month."""

    name: str
    most: float
    spent: float
    ends_in: timedelta  #: time until the period ends
    begins_in: timedelta = timedelta()  #: time until the period begins; 0 for the current one


def tariff(policy: FleetPolicy, provider: Provider) -> Tariff:
    """Return the policy's price and billing granule, or the provider's where the policy sets none."""
    price = provider.price_per_hour if policy.price_per_hour is None else policy.price_per_hour
    granule = provider.billing_granule if policy.billing_granule is None else policy.billing_granule
    return Tariff(price=price, granule=max(granule, timedelta(seconds=1)), unpriced=policy.price_per_hour or 0.0)


def paid_until(worker: Worker, now: datetime, granule: timedelta) -> datetime:
    """Return the time until which a worker is paid for: its end, or now if it may still run, rounded up to whole granules."""
    begun = worker.created_at or now
    used = max((worker.reaped_at or now) - begun, timedelta())
    return begun + granule * max(ceil(used / granule), 1)


def spend(workers: Iterable[Worker], now: datetime, rates: Tariff) -> Spending:
    """Sum the money spent on workers in the current hour, day and month."""
    hour, day, month = _hour(now), _day(now), _month(now)
    sums = [0.0, 0.0, 0.0]
    for worker in workers:
        if _was_billed(worker) and (price := rates.of(worker)):
            until, begun = paid_until(worker, now, rates.granule), worker.created_at or now
            for n, since in enumerate((hour, day, month)):
                sums[n] += price * (max(until - max(begun, since), timedelta()) / HOUR)
    return Spending(hour=sums[0], day=sums[1], month=sums[2])


def settle(before: SettledSpending | None, workers: Sequence[Worker], now: datetime, rates: Tariff) -> SettledSpending:
    """Add the cost of workers that were reaped over an hour ago to the spending that earlier beats settled (``before``).

    ``workers``: at least those that are not reaped or were reaped since ``before.until``; all, if ``before`` is None. A worker
    that was reaped earlier costs nothing in an hour, day or month that began since: its paid time ended before that."""
    at = max(now, before.at) if before else now
    until = at - _SETTLED_AFTER - rates.granule
    gone = [each for each in workers if each.reaped_at and each.reaped_at < until]
    if before is None:
        return SettledSpending(at=at, until=until, rates=rates, spent=spend(gone, at, rates))
    new = spend([each for each in gone if each.reaped_at and each.reaped_at >= before.until], at, rates)
    spent = Spending(
        hour=new.hour + (before.spent.hour if _hour(at) == _hour(before.at) else 0.0),
        day=new.day + (before.spent.day if _day(at) == _day(before.at) else 0.0),
        month=new.month + (before.spent.month if _month(at) == _month(before.at) else 0.0),
    )
    return SettledSpending(at=at, until=until, rates=rates, spent=spent)


def spend_since(settled: SettledSpending, workers: Iterable[Worker]) -> Spending:
    """Return the money spent in the hour, day and month of ``settled.at``: the settled sum plus the cost of other workers."""
    rest = spend((each for each in workers if not each.reaped_at or each.reaped_at >= settled.until), settled.at, settled.rates)
    old = settled.spent
    return Spending(hour=old.hour + rest.hour, day=old.day + rest.day, month=old.month + rest.month)


def burn(workers: Sequence[Worker], rates: Tariff) -> float:
    """Return the current cost per hour of all workers that might still run."""
    return sum(rates.of(worker) for worker in workers if worker.reaped_at is None and _was_billed(worker))


def affordable(view: FleetView, staying: Sequence[Worker], uncounted: Sequence[Worker] = ()) -> tuple[int, str]:
    """Return how many workers (``staying`` and new) the money ceilings allow, and the name of the ceiling that allows fewest.

    No money is reserved for the workers in ``uncounted``, which are drained before any worker in ``staying``."""
    rates = tariff(view.policy, view.provider)
    leaving = _leaving(view, (*staying, *uncounted))
    found = [_within(view, staying, leaving, rates, ceiling) for ceiling in ceilings(view)]
    most, name = min(found, default=(inf, ""))
    return (int(most), name) if isfinite(most) else (1_000_000_000, "")


def ceilings(view: FleetView) -> list[Ceiling]:
    """Return the money ceilings that are set, for the current period, and for the next if a worker could still run then."""
    now, policy, spent = view.now, view.policy, view.spent
    ends = {"hour": _hour(now) + HOUR, "day": _day(now) + timedelta(days=1), "month": _next_month(now)}
    most = {"hour": policy.max_per_hour, "day": policy.max_per_day, "month": policy.max_per_month}
    so_far = {"hour": spent.hour, "day": spent.day, "month": spent.month}
    limits = {name: limit for name, limit in most.items() if limit is not None}
    running = [Ceiling(name=name, most=limit, spent=so_far[name], ends_in=ends[name] - now) for name, limit in limits.items()]
    return [*running, *(_next(ceiling, view) for ceiling in running if ceiling.ends_in < _longest_life(view))]


def _next(running: Ceiling, view: FleetView) -> Ceiling:
    """Return the same money ceiling for the next hour, day or month, in which nothing is spent yet."""
    return replace(running, spent=0.0, begins_in=running.ends_in, ends_in=running.ends_in + _longest_life(view))


def _longest_life(view: FleetView) -> timedelta:
    """Return how long a worker that is started now runs at most, if the next beat drains it."""
    return _until_gone(view) + view.provider.usual_start


def _within(
    view: FleetView, staying: Sequence[Worker], leaving: Sequence[Worker], rates: Tariff, ceiling: Ceiling
) -> tuple[float, str]:
    """Return how many workers a money ceiling allows, and the ceiling's name. Money for the workers in ``leaving`` is reserved
    first; the rest pays for the workers in ``staying``, then for new ones."""
    span, strays = _until_gone(view), _strays(view)
    costs = sorted((_future_cost(view.now, rates, worker, ceiling, span) for worker in staying), reverse=True)
    gone = sum(_future_cost(view.now, rates, worker, ceiling, span) for worker in leaving)
    gone += strays * rates.price * (_unpaid_time(ceiling, span, timedelta(), rates.granule) / HOUR)
    count, left = _count_affordable(ceiling.most - ceiling.spent - gone + _EPSILON, costs)
    new = _cost_of_new(rates, ceiling, _longest_life(view))
    allowed = count if count < len(staying) else count + (floor(left / new) if new else inf)
    if ceiling.name == "hour":
        room = ceiling.most - burn(leaving, rates) - strays * rates.price
        allowed = min(allowed, _allowed_at_once(room + _EPSILON, staying, rates))
    return max(allowed, 0), ceiling.name


def _allowed_at_once(room: float, staying: Sequence[Worker], rates: Tariff) -> float:
    """Return how many workers (``staying`` and new ones) may run at once if together they may cost ``room`` per hour."""
    count, left = _count_affordable(room, sorted((burn([each], rates) for each in staying), reverse=True))
    if count < len(staying):
        return count
    return count + floor(left / rates.price) if rates.price else inf


def _leaving(view: FleetView, staying: Sequence[Worker]) -> list[Worker]:
    ids = {worker.worker_id for worker in staying}
    return [each for each in view.workers if each.reaped_at is None and _was_billed(each) and each.worker_id not in ids]


def _strays(view: FleetView) -> int:
    """Count instances that run without a row: they cost money until they are terminated."""
    known = {worker.worker_id for worker in view.workers if worker.reaped_at is None}
    return sum(each.running and each.worker_id not in known for each in view.instances)


def _count_affordable(left: float, costs: Sequence[float]) -> tuple[int, float]:
    for n, cost in enumerate(costs):
        if cost > left:
            return n, left
        left -= cost
    return len(costs), left


def _future_cost(now: datetime, rates: Tariff, worker: Worker, ceiling: Ceiling, span: timedelta) -> float:
    """Return what a worker will cost in the next ``span``, beyond what is paid already, and only in the ceiling's period."""
    paid = max(paid_until(worker, now, rates.granule) - now, timedelta())
    return rates.of(worker) * (_unpaid_time(ceiling, span, paid, rates.granule) / HOUR)


def _cost_of_new(rates: Tariff, ceiling: Ceiling, span: timedelta) -> float:
    least = timedelta() if ceiling.begins_in else rates.granule
    return rates.price * (max(_unpaid_time(ceiling, span, timedelta(), rates.granule), least) / HOUR)


def _unpaid_time(ceiling: Ceiling, span: timedelta, paid: timedelta, granule: timedelta) -> timedelta:
    """Return how much of the next ``span`` is billed in the ceiling's period (hour, day or month), in whole granules.

    The first ``paid`` of ``span`` is paid already. A granule (billing unit) counts for the period in which it begins."""
    until = _round_up(max(min(span, ceiling.ends_in) - paid, timedelta()), granule)
    if not ceiling.begins_in:
        return until
    return until - _round_up(max(min(span, ceiling.begins_in) - paid, timedelta()), granule)


def _until_gone(view: FleetView) -> timedelta:
    """Return the longest time until a worker is gone if the next beat drains it, even if that beat comes late."""
    return view.cadence * 3 + view.policy.limits(view.thresholds).drain_within


def granule_left(worker: Worker, view: FleetView) -> timedelta:
    """Return how much time of a worker's current billing unit (granule), which is paid in full, is left."""
    rates = tariff(view.policy, view.provider)
    return paid_until(worker, view.now, rates.granule) - view.now


def by_paid_time(view: FleetView) -> Callable[[Worker], tuple[timedelta, int, WorkerId]]:
    """Return a sort key for draining idle workers: the earliest end of paid time first, then the highest slot."""
    rates = tariff(view.policy, view.provider)
    return lambda worker: (paid_until(worker, view.now, rates.granule) - view.now, -worker.slot, worker.worker_id)


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
