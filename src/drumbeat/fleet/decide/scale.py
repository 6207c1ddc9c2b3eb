"""Who is started and who is asked to leave, once it is known how many there shall be. Never both in one beat."""

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

USUAL = FleetPolicy()


def respawn(view: FleetView, crew: Classified, guarded: BoundedDecision) -> list[Spawn]:
    """Rows whose instance was never started: a controller died between the two, or the provider gave no answer.

    One that was is not started again, however many lists leave it out: if it does not join in time, another replaces it.
    """
    rows = [worker for worker in unstarted(view, crew) if not worker.provider_ref]
    rows = rows[: max(min(guarded.calls, guarded.room + len(rows)), 0)]
    return [_spawn(view, worker.worker_id, worker.slot, "asked for, but no instance is there", is_new=False) for worker in rows]


def spawn(view: FleetView, crew: Classified, guarded: BoundedDecision, calls: int) -> list[Spawn]:
    """New workers for the lowest free slots, as many as are missing and may be asked for."""
    here, desired = len(crew.staying), guarded.verdict.desired
    count = min(max(desired - here, 0), calls)
    if not count:
        return []
    slots = _free_slots(view, crew, count, desired)
    first = _first_number(view, crew)
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


def _first_number(view: FleetView, crew: Classified) -> int:
    """One above every number in use. Where the highest of all rows is known, only instances without a row can have a higher."""
    if view.last_number < 0:
        return next_number(view.sight)
    if not crew.missing and len(view.instances) == len(crew.living):
        return view.last_number + 1
    rows = {worker.worker_id for worker in view.workers}
    strays = tuple(seen for seen in view.instances if seen.worker_id not in rows)
    return max(next_number(replace(view.sight, workers=(), instances=strays)), view.last_number + 1)


def _free_slots(view: FleetView, crew: Classified, count: int, desired: int) -> list[int]:
    taken = {worker.slot for worker in crew.staying} | {worker.slot for worker in crew.exempt}
    most = desired + len(crew.exempt) if not has_queue(view) else len(taken) + count
    first = len(taken) if max(taken, default=-1) < len(taken) else 0  # nobody has left: only those above are free
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


def drain(view: FleetView, crew: Classified, guarded: BoundedDecision) -> list[AskToDrain]:
    """Workers beyond what is wanted, and exempt ones beyond what may be spent."""
    return [*_drain_surplus(view, crew, guarded), *_drain_exempt(view, crew)]


def _drain_exempt(view: FleetView, crew: Classified) -> list[AskToDrain]:
    """Exempt workers that would pass a money ceiling even if all others left."""
    if not crew.exempt:
        return []
    allowed, name = affordable(view, crew.exempt, crew.staying)
    within = view.policy.limits(view.thresholds).drain_within
    reason = f"{len(crew.exempt)} exempt workers are here, {allowed} are within the ceiling per {name}"
    return [
        AskToDrain(worker_id=worker.worker_id, within=_grace(crew, worker, within), reason=reason)
        for worker in sorted(crew.exempt, key=by_paid_time(view))[: max(len(crew.exempt) - allowed, 0)]
    ]


def _drain_surplus(view: FleetView, crew: Classified, guarded: BoundedDecision) -> list[AskToDrain]:
    """Workers beyond what is wanted. A fixed fleet gives up its highest slots; others only who has nothing to do."""
    desired, here = guarded.verdict.desired, len(crew.staying)
    if here <= desired:
        return []
    reason = f"{here} workers are here, {desired} are wanted"
    within = view.policy.limits(view.thresholds).drain_within
    if not has_queue(view):
        by_slot = sorted(crew.staying, key=lambda worker: worker.slot)
        return [AskToDrain(worker_id=worker.worker_id, within=within, reason=reason) for worker in by_slot[desired:]]
    return [
        AskToDrain(worker_id=worker.worker_id, within=_grace(crew, worker, within), reason=f"{reason}; {why}")
        for worker, why in [*_surplus(view, crew, guarded)][: here - desired]
    ]


def _grace(crew: Classified, worker: Worker, within: timedelta) -> timedelta:
    """One that has not joined cannot hear: it is ended at the next beat."""
    unheard = worker.status is WorkerStatus.SPAWNING and worker.worker_id not in crew.bundles
    return timedelta() if unheard else within


def _surplus(view: FleetView, crew: Classified, guarded: BoundedDecision) -> Iterator[tuple[Worker, str]]:
    """Who may leave, in this order: not ready yet, idle by the end of its paid time, and above the bound the busy too."""
    above = len(crew.staying) > guarded.bound
    limit, unpaid = idle_limit(view, above=above), len(crew.staying) - len(crew.starting) - guarded.paid
    for worker in sorted(crew.starting, key=_newest(view.now)):
        if above or _may_be_given_up(view, worker):
            yield worker, "it is not ready and no longer needed"
    spare = _spare(view, crew, guarded, above=above)
    for n, worker in enumerate(sorted(_tried(view, crew.idle, above=above), key=by_paid_time(view))[:spare]):
        idle = view.now - guarded.state.idle_since.get(worker.worker_id, view.now)
        if n < unpaid or (idle >= limit and (above or _paid_time_ends(view, worker))):
            yield worker, f"idle for {idle.total_seconds():.0f} s"
    if above:
        yield from _even_busy(view, crew, guarded)


def _may_be_given_up(view: FleetView, worker: Worker) -> bool:
    """Whether a starting worker may leave: after its grace; and where each is weighed, only if it takes far too long."""
    age = view.now - (worker.created_at or view.now)
    weighed = view.policy.policy is PolicyName.LAG_AWARE
    return age >= max(view.policy.spawning_grace, 2 * restart(view) if weighed else timedelta())


def _tried(view: FleetView, idle: Sequence[Worker], *, above: bool) -> Sequence[Worker]:
    """The idle workers; where each is weighed, only those that have been ready for a restart's worth."""
    if above or view.policy.policy is not PolicyName.LAG_AWARE:
        return idle
    since = view.now - restart(view)
    return [worker for worker in idle if worker.ready_at is None or worker.ready_at <= since]


def _even_busy(view: FleetView, crew: Classified, guarded: BoundedDecision) -> Iterator[tuple[Worker, str]]:
    """Only as many as the bound demands beyond those who have nothing to do; they may finish within their grace."""
    excess = len(crew.staying) - guarded.bound - len(crew.starting) - len(crew.idle)
    since = {name: max(each.claimed_at for each in held) for name, held in crew.bundles.items()}
    latest = sorted(crew.busy, key=lambda worker: (since[worker.worker_id], worker.worker_id), reverse=True)
    for worker in latest[: max(excess, 0)]:
        yield worker, "more are here than may be; it may finish what it holds"


def _newest(now: datetime) -> Callable[[Worker], tuple[timedelta, int]]:
    return lambda worker: (now - (worker.created_at or now), -worker.slot)


def _spare(view: FleetView, crew: Classified, guarded: BoundedDecision, *, above: bool) -> int:
    """How many of the idle may leave: one that is ready is not given up for one that still starts, if each is weighed."""
    if above or view.policy.policy is not PolicyName.LAG_AWARE:
        return len(crew.idle)
    return max(len(crew.busy) + len(crew.idle) - guarded.verdict.desired, 0)


def idle_limit(view: FleetView, *, above: bool) -> timedelta:
    """How long one must have been idle. Where the policy weighs the keeping itself, only a time that was set says so."""
    told = view.policy.overcapacity_idle_timeout if above else view.policy.idle_timeout
    usual = USUAL.overcapacity_idle_timeout if above else USUAL.idle_timeout
    return timedelta() if view.policy.policy is PolicyName.LAG_AWARE and told == usual else told


def _paid_time_ends(view: FleetView, worker: Worker) -> bool:
    """Whether what is paid for is used up before the beat after next. What is paid by the second always is."""
    soon = view.cadence * 2
    return tariff(view.policy, view.provider).granule <= soon or granule_left(worker, view) <= soon


def rotate(view: FleetView, crew: Classified, guarded: BoundedDecision) -> list[AskToDrain]:
    """One worker at a time that is too old, or was made under another contract; of a fleet without a queue only exempt ones."""
    if not crew.sure:
        return []
    idle_first = [*crew.exempt, *crew.idle, *crew.busy] if _may_replace(view, crew, guarded) else crew.exempt
    within = view.policy.limits(view.thresholds).drain_within
    old = [(worker, why) for worker in idle_first if (why := _outdated(view, worker, exempt=worker in crew.exempt))]
    return [AskToDrain(worker_id=worker.worker_id, within=within, reason=why) for worker, why in old[:1]]


def _may_replace(view: FleetView, crew: Classified, guarded: BoundedDecision) -> bool:
    """Whether age or contract may end a worker that counts: not before the last one is replaced."""
    ages = view.policy.max_lifetime is not None or view.policy.contract is not None
    return ages and has_queue(view) and not crew.starting and not (crew.outgoing and guarded.room <= 0)


def _outdated(view: FleetView, worker: Worker, *, exempt: bool) -> str | None:
    age, policy = view.now - (worker.created_at or view.now), view.policy
    most = policy.exempt_max_lifetime if exempt else policy.max_lifetime
    if most is not None and age > most:
        return f"it is {age.total_seconds():.0f} s old, {most.total_seconds():g} s at most"
    made = worker.meta.get("contract")
    if policy.contract is not None and made != policy.contract and not exempt:
        return f"it was made under contract {made}, now it is {policy.contract}"
    return None


def trial_of(spawned: Sequence[Spawn]) -> WorkerId | None:
    """The worker on which the breaker's trial rests."""
    return spawned[0].worker_id if spawned else None
