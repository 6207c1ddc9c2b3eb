"""Choose which workers to start or to drain, given how many are wanted. One beat never does both."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import filterfalse, islice

from drumbeat.core.recovery import next_number
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.decide.classify import Classified, has_queue, unstarted
from drumbeat.fleet.decide.learned import restart
from drumbeat.fleet.decide.limits import BoundedDecision
from drumbeat.fleet.model import AskToDrain, FleetPolicy, FleetView, PolicyName, Spawn
from drumbeat.fleet.money import affordable, by_paid_time, granule_left, tariff

DEFAULTS = FleetPolicy()


def respawn(view: FleetView, classified: Classified, bounded: BoundedDecision) -> list[Spawn]:
    """Start the instances of workers that have only a row: a controller died before the start, or the provider did not answer.

    An instance that was started once is not started again, even if the provider does not list it: if it does not join in
    time, another worker replaces it."""
    rows = [worker for worker in unstarted(view, classified) if not worker.provider_ref]
    rows = rows[: max(min(bounded.calls, bounded.room + len(rows)), 0)]
    reason = "its row exists, but its instance was never started"
    return [_spawn(view, worker.worker_id, worker.slot, reason, is_new=False) for worker in rows]


def spawn(view: FleetView, classified: Classified, bounded: BoundedDecision, calls: int) -> list[Spawn]:
    """Start the missing workers in the lowest free slots (positions), but at most ``calls``."""
    here, desired = len(classified.staying), bounded.verdict.desired
    count = min(max(desired - here, 0), calls)
    if not count:
        return []
    slots = _free_slots(view, classified, count, desired)
    first = _first_number(view, classified)
    return [
        _spawn(
            view,
            WorkerId(f"worker-{first + n}"),
            slot,
            f"{here} of {desired} workers are here; slot {slot} is free",
            is_new=True,
        )
        for n, slot in enumerate(slots)
    ]


def _first_number(view: FleetView, classified: Classified) -> int:
    """Return the next unused worker number: above the numbers of all rows and of instances without a row."""
    if view.last_number < 0:
        return next_number(view.snapshot)
    if not classified.missing and len(view.instances) == len(classified.living):
        return view.last_number + 1
    rows = {worker.worker_id for worker in view.workers}
    strays = tuple(each for each in view.instances if each.worker_id not in rows)
    return max(next_number(replace(view.snapshot, workers=(), instances=strays)), view.last_number + 1)


def _free_slots(view: FleetView, classified: Classified, count: int, desired: int) -> list[int]:
    taken = {worker.slot for worker in classified.staying} | {worker.slot for worker in classified.exempt}
    most = desired + len(classified.exempt) if not has_queue(view) else len(taken) + count
    first = len(taken) if max(taken, default=-1) < len(taken) else 0  # no gaps: only higher slots are free
    return [*islice(filterfalse(taken.__contains__, range(first, most)), count)]


def _spawn(view: FleetView, worker_id: WorkerId, slot: int, reason: str, *, is_new: bool) -> Spawn:
    usual = view.policy.max_workers if has_queue(view) else view.policy.workers
    price = view.provider.price_per_hour if view.policy.price_per_hour is None else view.policy.price_per_hour
    return Spawn(
        worker_id=worker_id,
        slot=slot,
        group_count=max(usual, slot + 1),
        reason=reason,
        is_new=is_new,
        at=view.now,
        price_per_hour=price or None,
        contract=view.policy.contract,
    )


def drain(view: FleetView, classified: Classified, bounded: BoundedDecision) -> list[AskToDrain]:
    """Drain surplus workers, and exempt workers (which do not count as wanted) if the money ceilings do not allow them."""
    return [*_drain_surplus(view, classified, bounded), *_drain_exempt(view, classified)]


def _drain_exempt(view: FleetView, classified: Classified) -> list[AskToDrain]:
    """Drain exempt workers (which do not count as wanted) if the money ceilings would not allow all of them even in a fleet
    without other workers."""
    if not classified.exempt:
        return []
    allowed, name = affordable(view, classified.exempt, classified.staying)
    within = view.policy.limits(view.thresholds).drain_within
    reason = f"{len(classified.exempt)} exempt workers are here, the money ceiling per {name} allows {allowed}"
    return [
        AskToDrain(worker_id=worker.worker_id, within=_grace(classified, worker, within), reason=reason)
        for worker in sorted(classified.exempt, key=by_paid_time(view))[: max(len(classified.exempt) - allowed, 0)]
    ]


def _drain_surplus(view: FleetView, classified: Classified, bounded: BoundedDecision) -> list[AskToDrain]:
    """Drain surplus workers: in a fixed fleet those with the highest slots, otherwise starting, then idle, then busy ones."""
    desired, here = bounded.verdict.desired, len(classified.staying)
    if here <= desired:
        return []
    reason = f"{here} workers are here, {desired} are wanted"
    within = view.policy.limits(view.thresholds).drain_within
    if not has_queue(view):
        by_slot = sorted(classified.staying, key=lambda worker: worker.slot)
        return [AskToDrain(worker_id=worker.worker_id, within=within, reason=reason) for worker in by_slot[desired:]]
    return [
        AskToDrain(worker_id=worker.worker_id, within=_grace(classified, worker, within), reason=f"{reason}; {why}")
        for worker, why in [*_surplus(view, classified, bounded)][: here - desired]
    ]


def _grace(classified: Classified, worker: Worker, within: timedelta) -> timedelta:
    """Return the time limit for a worker's drain; 0 if it has not joined yet, since the request cannot reach it."""
    not_joined = worker.status is WorkerStatus.SPAWNING and worker.worker_id not in classified.jobs_by_worker
    return timedelta() if not_joined else within


def _surplus(view: FleetView, classified: Classified, bounded: BoundedDecision) -> Iterator[tuple[Worker, str]]:
    """Yield workers to drain, with reasons: starting, then idle ones; busy ones only if the limits allow fewer workers."""
    above = len(classified.staying) > bounded.bound
    limit, unpaid = idle_limit(view, above=above), len(classified.staying) - len(classified.starting) - bounded.paid
    for worker in sorted(classified.starting, key=_newest_first(view.now)):
        if above or _may_stop_starting(view, worker):
            yield worker, "still starting and no longer needed"
    spare = _spare_count(view, classified, bounded, above=above)
    for n, worker in enumerate(sorted(_drainable_idle(view, classified.idle, above=above), key=by_paid_time(view))[:spare]):
        idle = view.now - bounded.state.idle_since.get(worker.worker_id, view.now)
        if n < unpaid or (idle >= limit and (above or _paid_time_ends(view, worker))):
            yield worker, f"idle for {idle.total_seconds():.0f} s"
    if above:
        yield from _busy_surplus(view, classified, bounded)


def _may_stop_starting(view: FleetView, worker: Worker) -> bool:
    """Whether a starting worker is old enough to be drained: its age is at least ``spawning_grace`` and, with ``lag_aware``,
    also at least twice the time of a start and a beat."""
    age = view.now - (worker.created_at or view.now)
    weighed = view.policy.policy is PolicyName.LAG_AWARE
    return age >= max(view.policy.spawning_grace, 2 * restart(view) if weighed else timedelta())


def _drainable_idle(view: FleetView, idle: Sequence[Worker], *, above: bool) -> Sequence[Worker]:
    """Return the idle workers that can be drained: usually all. Under ``lag_aware``, only workers that have been ready for some
    time, unless the fleet has more workers than its limits allow (``above``)."""
    if above or view.policy.policy is not PolicyName.LAG_AWARE:
        return idle
    since = view.now - restart(view)
    return [worker for worker in idle if worker.ready_at is None or worker.ready_at <= since]


def _busy_surplus(view: FleetView, classified: Classified, bounded: BoundedDecision) -> Iterator[tuple[Worker, str]]:
    """If more workers are busy than the limits allow, yield the excess to be drained; they finish their jobs first."""
    excess = len(classified.staying) - bounded.bound - len(classified.starting) - len(classified.idle)
    since = {name: max(each.claimed_at for each in held) for name, held in classified.jobs_by_worker.items()}
    latest = sorted(classified.busy, key=lambda worker: (since[worker.worker_id], worker.worker_id), reverse=True)
    for worker in latest[: max(excess, 0)]:
        yield worker, "more workers are here than the limits allow; this one finishes its jobs first"


def _newest_first(now: datetime) -> Callable[[Worker], tuple[timedelta, int]]:
    return lambda worker: (now - (worker.created_at or now), -worker.slot)


def _spare_count(view: FleetView, classified: Classified, bounded: BoundedDecision, *, above: bool) -> int:
    """Return how many idle workers can be drained: usually all. Under ``lag_aware``, only the surplus over the wanted number,
    unless the fleet has more workers than its limits allow (``above``)."""
    if above or view.policy.policy is not PolicyName.LAG_AWARE:
        return len(classified.idle)
    return max(len(classified.busy) + len(classified.idle) - bounded.verdict.desired, 0)


def idle_limit(view: FleetView, *, above: bool) -> timedelta:
    """Return how long a worker must be idle before it is drained. The policy has one time for a fleet with more workers than
    its limits allow (``above``), and one for other fleets; under ``lag_aware`` both are 0 by default."""
    limit = view.policy.overcapacity_idle_timeout if above else view.policy.idle_timeout
    usual = DEFAULTS.overcapacity_idle_timeout if above else DEFAULTS.idle_timeout
    return timedelta() if view.policy.policy is PolicyName.LAG_AWARE and limit == usual else limit


def _paid_time_ends(view: FleetView, worker: Worker) -> bool:
    """Whether the time already paid for a worker ends within two beats; always true if a billing unit is at most two beats."""
    soon = view.cadence * 2
    return tariff(view.policy, view.provider).granule <= soon or granule_left(worker, view) <= soon


def rotate(view: FleetView, classified: Classified, bounded: BoundedDecision) -> list[AskToDrain]:
    """Drain one worker that is too old, or that was started with another version label (``contract``) than the policy's."""
    if not classified.may_drain:
        return []
    replaceable = [*classified.idle, *classified.busy] if _may_replace(view, classified, bounded) else []
    idle_first = [*classified.exempt, *replaceable]
    within = view.policy.limits(view.thresholds).drain_within
    old = [(worker, why) for worker in idle_first if (why := _outdated(view, worker, exempt=worker in classified.exempt))]
    return [AskToDrain(worker_id=worker.worker_id, within=within, reason=why) for worker, why in old[:1]]


def _may_replace(view: FleetView, classified: Classified, bounded: BoundedDecision) -> bool:
    """Whether a worker can be replaced now for its age or version label: only after the previous replacement is complete."""
    ages = view.policy.max_lifetime is not None or view.policy.contract is not None
    return ages and has_queue(view) and not classified.starting and not (classified.outgoing and bounded.room <= 0)


def _outdated(view: FleetView, worker: Worker, *, exempt: bool) -> str | None:
    age, policy = view.now - (worker.created_at or view.now), view.policy
    most = policy.exempt_max_lifetime if exempt else policy.max_lifetime
    if most is not None and age > most:
        return f"{age.total_seconds():.0f} s old, limit {most.total_seconds():g} s"
    contract = worker.meta.get("contract")
    if policy.contract is not None and contract != policy.contract and not exempt:
        return f"started with contract {contract}, the policy's is {policy.contract}"
    return None
