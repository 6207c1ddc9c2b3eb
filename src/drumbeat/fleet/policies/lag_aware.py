"""What will be needed once a worker asked for now is ready: spawn lag, service times and what busy workers free are inputs.

Up: a worker is asked for where it would find a restart's worth of work that the others do not get to in time, and where jobs
that come as they do would too often wait for long. Down: the n-th worker is kept for as long as that is likely to cost less
than to be without it, and for a restart's worth at least.
"""

from math import ceil, exp, floor, sqrt

from drumbeat.fleet.model import Wish
from drumbeat.fleet.policies.inputs import Opinion, PolicyInput, highest
from drumbeat.fleet.policies.queue_ratio import warm_buffer

LATE = 0.05  #: share of the jobs that may wait longer than they should
PATIENCE = 2.0  #: a job should wait no longer than so many times what it takes
FIRST = 2  #: workers for the first job, of which nothing is known: the sooner it is
USE = 1.0  #: restarts' worth of work that a worker must find in the backlog to be started for it
BET = 4  #: workers for any number of jobs of which nothing is known, at most
_NEARLY = 1e-9


def lag_aware(scene: PolicyInput) -> Opinion:
    """The most demanding of: what waits too long, what flows in, what is in use, what is worth having, the warm buffer."""
    return highest(uncovered(scene), flow(scene), pressure(scene), in_use(scene), worth_keeping(scene), warm_buffer(scene))


def bearable(scene: PolicyInput) -> float:
    """Seconds that a job may well wait: half a start and a beat, but no longer than twice what it takes."""
    most = scene.policy.every.total_seconds() + scene.lag / 2
    return most if scene.service is None else min(most, PATIENCE * max(scene.service, 0.001))


def uncovered(scene: PolicyInput) -> Wish:
    """Everyone here, and as many as find a restart's worth of work in what would begin later than that."""
    if scene.service is None:
        return bet(scene)
    use, ready = USE * scene.restart, scene.queue.ready
    horizon = scene.restart + use
    going_on = scene.sure * horizon if ready else 0.0
    waiting = ready * scene.policy.headroom + scene.coming + going_on
    begun = scene.free * starts(scene, horizon)
    begun += sum([starts(scene, horizon - free) for free in scene.free_in if free <= horizon])
    missing = ceil((waiting - begun) / (starts(scene, use) * scene.policy.concurrency) - _NEARLY)
    return Wish(
        rule="lag",
        workers=scene.capacity + missing if missing > 0 else 0,
        reason=f"{ready} ready and {scene.coming + going_on:.0f} to come; {begun} can begin in {horizon:.0f} s by who is here",
    )


def bet(scene: PolicyInput) -> Wish:
    """A few workers to find out how long jobs take, however many are ready."""
    known = scene.queue.ready + scene.coming
    places = min(max(known, FIRST), BET * scene.policy.concurrency) if known else 0
    reason = f"{known} jobs are ready or due, and nothing tells yet how long they take; {BET} workers at most find out"
    return Wish(rule="lag", workers=max(ceil(places / scene.policy.concurrency), min(places, FIRST)), reason=reason)


def starts(scene: PolicyInput, span: float) -> int:
    """How many jobs one place begins in a time; before it is known, as many as the policy says a worker is worth."""
    return 1 + floor(span / scene.service) if scene.service else scene.policy.tasks_per_worker


def soon(scene: PolicyInput) -> int:
    """How many jobs one free place begins until the next beat."""
    return starts(scene, scene.policy.every.total_seconds())


def flow(scene: PolicyInput) -> Wish:
    """The fewest with whom hardly any job waits longer than it should, if they go on coming as of late.

    Where a worker comes sooner than a job is done, less is to spare. Whether a single one is worth having while it is mostly
    idle is for ``worth_keeping`` to say.
    """
    service = scene.service or 0.0
    load, places = scene.rate * service, places_for(scene, bearable(scene))
    spare = (places - load) * min(scene.lag / service, 1.0) if places > 1 else 0.0
    workers = ceil((load + spare) / scene.policy.concurrency - _NEARLY) if spare else 0
    coming = f"{scene.rate * 3600:.0f} jobs an hour keep {load:.1f} places busy"
    return Wish(rule="flow", workers=workers, reason=f"{coming}; 95 in 100 are to begin within {bearable(scene):.0f} s")


def places_for(scene: PolicyInput, wait: float) -> int:
    """The fewest places with which no more than so many jobs wait longer (the tail of a queue M/G/m, approximately)."""
    service = scene.service or 0.0
    load = scene.rate * service
    if not load:
        return 0
    swing = (1 + scene.variance / service**2) * service
    places = floor(load) + 1
    while (load / places) ** sqrt(2 * (places + 1)) * exp(-2 * (places - load) * wait / swing) > LATE:
        places += 1
    return places


def pressure(scene: PolicyInput) -> Wish:
    """Enough to begin all that is ready within a restart's worth, or in bearable time; at most twice the workers ready now."""
    ready, here = scene.queue.ready, scene.busy + scene.idle
    span = max(bearable(scene), USE * scene.restart)
    places = ready * (scene.service or 0.0) / span
    workers = min(ceil(places / scene.policy.concurrency), 2 * here)
    return Wish(rule="pressure", workers=workers, reason=f"{ready} jobs are ready, to begin in {span:.0f} s")


def in_use(scene: PolicyInput) -> Wish:
    """Those who hold a job, and those whom ready jobs await."""
    waiting = ceil(scene.queue.ready / (soon(scene) * scene.policy.concurrency))
    workers = scene.busy + min(waiting, scene.idle + scene.starting)
    return Wish(rule="use", workers=workers, reason=f"{scene.busy} are busy, {scene.queue.ready} jobs are ready")


def worth_keeping(scene: PolicyInput) -> Wish:
    """Those whose next use is likely to come before having them has cost as much as being without."""
    kept = next((n for n in range(len(scene.levels), 0, -1) if scene.levels[n - 1].idle < scene.levels[n - 1].keep), 0)
    return Wish(
        rule="keep", workers=scene.needed + kept, reason=f"{kept} beyond the {scene.needed} of use now are worth having for now"
    )
