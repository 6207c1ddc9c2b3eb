"""The policy ``lag_aware``: plans for the moment when a worker started now would be ready.

It adds workers if too many jobs would wait too long at the current arrival rate, or if the current workers cannot begin all
jobs in time and each new worker would find at least twice as much work as its start costs. It keeps a surplus worker at least
as long as a restart takes, and longer while keeping it is likely to cost less than the waits and the start it would save.
"""

from math import ceil, exp, floor, sqrt

from drumbeat.fleet.model import RuleWish
from drumbeat.fleet.policies.inputs import PolicyInput, PolicyResult, highest
from drumbeat.fleet.policies.queue_ratio import warm_buffer

LATE_SHARE = 0.05  #: acceptable share of jobs that wait longer than ``acceptable_wait``
FIRST_PROBES = 2  #: workers started for the first job while its service time is unknown; the one that is ready first takes it
MIN_RESTARTS = 2.0  #: minimum work that a new worker must find in the queue, as a multiple of the cost of a restart
MAX_PROBES = 4  #: maximum number of workers while the service time is unknown
_EPSILON = 1e-9


def lag_aware(inputs: PolicyInput) -> PolicyResult:
    """Apply all rules of this policy and ask for the largest number of workers that any of them wants."""
    return highest(
        uncovered(inputs), flow(inputs), pressure(inputs), in_use(inputs), worth_keeping(inputs), warm_buffer(inputs)
    )


def acceptable_wait(inputs: PolicyInput) -> float:
    """Return a job's acceptable wait in seconds: one beat and half a worker's start."""
    return inputs.policy.every.total_seconds() + inputs.lag / 2


def uncovered(inputs: PolicyInput) -> RuleWish:
    """Ask for new workers for jobs that the current workers cannot begin in time, if each new one finds enough work."""
    if inputs.service is None:
        return probe(inputs)
    min_work, ready = MIN_RESTARTS * inputs.restart, inputs.queue.ready
    horizon = inputs.restart + min_work
    arriving = inputs.steady_rate * horizon if ready else 0.0
    waiting = ready * inputs.policy.headroom + inputs.coming + arriving
    begun = inputs.free * starts(inputs, horizon)
    begun += sum([starts(inputs, horizon - free) for free in inputs.free_in if free <= horizon])
    missing = ceil((waiting - begun) / (starts(inputs, min_work) * inputs.policy.concurrency) - _EPSILON)
    return RuleWish(
        rule="lag",
        workers=inputs.capacity + missing if missing > 0 else 0,
        reason=f"{ready} jobs ready, {inputs.coming + arriving:.0f} expected; current workers begin {begun} in {horizon:.0f} s",
    )


def probe(inputs: PolicyInput) -> RuleWish:
    """While it is unknown how long jobs take, ask for only a few workers to find out, even if many jobs are ready."""
    known = inputs.queue.ready + inputs.coming
    slots = min(max(known, FIRST_PROBES), MAX_PROBES * inputs.policy.concurrency) if known else 0
    reason = f"{known} jobs are ready or due; until it is known how long they take, at most {MAX_PROBES} workers are started"
    return RuleWish(rule="lag", workers=max(ceil(slots / inputs.policy.concurrency), min(slots, FIRST_PROBES)), reason=reason)


def starts(inputs: PolicyInput, span: float) -> int:
    """Return how many jobs one job slot can begin in ``span`` seconds; ``tasks_per_worker`` if a job's duration is unknown."""
    return 1 + floor(span / inputs.service) if inputs.service else inputs.policy.tasks_per_worker


def flow(inputs: PolicyInput) -> RuleWish:
    """Ask for the fewest workers with which 95 % of jobs begin within the acceptable wait at the recent arrival rate.

    If workers start faster than a job takes, less spare capacity is needed. If one job slot is enough, ask for none: then
    the other rules of the policy decide whether a worker is started or kept.
    """
    service = inputs.service or 0.0
    load, slots = inputs.rate * service, slots_for(inputs, acceptable_wait(inputs))
    spare = (slots - load) * min(inputs.lag / service, 1.0) if slots > 1 else 0.0
    workers = ceil((load + spare) / inputs.policy.concurrency - _EPSILON) if spare else 0
    reason = f"{inputs.rate * 3600:.0f} jobs per hour keep {load:.1f} job slots busy; 95 % should begin within "
    return RuleWish(rule="flow", workers=workers, reason=f"{reason}{acceptable_wait(inputs):.0f} s")


def slots_for(inputs: PolicyInput, wait: float) -> int:
    """Return the fewest job slots with which at most ``LATE_SHARE`` of jobs wait longer than ``wait`` (M/G/m approximation)."""
    service = inputs.service or 0.0
    load = inputs.rate * service
    if not load:
        return 0
    spread = (1 + inputs.variance / service**2) * service
    slots = floor(load) + 1
    while (load / slots) ** sqrt(2 * (slots + 1)) * exp(-2 * (slots - load) * wait / spread) > LATE_SHARE:
        slots += 1
    return slots


def pressure(inputs: PolicyInput) -> RuleWish:
    """Ask for enough workers to begin all ready jobs within two restarts, but at most twice as many as are busy or idle."""
    ready, here = inputs.queue.ready, inputs.busy + inputs.idle
    span = MIN_RESTARTS * inputs.restart
    slots = ready * (inputs.service or 0.0) / span
    workers = min(ceil(slots / inputs.policy.concurrency), 2 * here)
    return RuleWish(rule="pressure", workers=workers, reason=f"{ready} jobs are ready and should begin within {span:.0f} s")


def in_use(inputs: PolicyInput) -> RuleWish:
    """Ask for as many workers as are in use: the busy ones, and the idle or starting ones that the ready jobs will occupy."""
    per_slot = starts(inputs, inputs.policy.every.total_seconds())  # until the next beat
    waiting = ceil(inputs.queue.ready / (per_slot * inputs.policy.concurrency))
    workers = inputs.busy + min(waiting, inputs.idle + inputs.starting)
    return RuleWish(rule="use", workers=workers, reason=f"{inputs.busy} workers are busy, {inputs.queue.ready} jobs are ready")


def worth_keeping(inputs: PolicyInput) -> RuleWish:
    """Ask for the workers in use, and for surplus ones that are cheaper to keep than to restart when they are needed again."""
    surplus = next((n for n in range(len(inputs.levels), 0, -1) if inputs.levels[n - 1].idle < inputs.levels[n - 1].keep), 0)
    reason = f"{inputs.needed} workers are in use, {surplus} more are worth keeping for now"
    return RuleWish(rule="keep", workers=inputs.needed + surplus, reason=reason)
