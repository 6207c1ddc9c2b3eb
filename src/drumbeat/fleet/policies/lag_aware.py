"""What will be needed once a worker asked for now is ready: spawn lag, service times and what busy workers free are inputs.

Up: a worker is asked for only where a job would otherwise wait longer than that worker takes to come. Down: the n-th worker is
kept for as long as keeping it is likely to cost less than starting it again.
"""

from math import ceil, floor, sqrt

from drumbeat.fleet.model import Wish
from drumbeat.fleet.policies.queue_ratio import warm_buffer
from drumbeat.fleet.policies.scene import Opinion, Scene, highest

ROUNDING = 0.5  #: less than half a worker's work starts nobody
SPARE = 1.2  #: how much of the usual spread of a flow of jobs (the root of its mean) is provided for


def lag_aware(scene: Scene) -> Opinion:
    """The most demanding of: what waits too long, what flows in, what is in use, what is worth keeping, the warm buffer."""
    return highest(uncovered(scene), flow(scene), in_use(scene), worth_keeping(scene), warm_buffer(scene))


def uncovered(scene: Scene) -> Wish:
    """Everyone here, and one for each job that would begin later than a new worker could begin it."""
    horizon = scene.lag + scene.policy.every.total_seconds()
    waiting = scene.queue.ready * scene.policy.headroom + scene.coming
    begun = sum(starts(scene, free, horizon) for free in scene.free_in if free <= horizon)
    each = starts(scene, scene.lag, horizon) * scene.policy.concurrency
    missing = max(ceil((waiting - begun) / each), 0)
    return Wish(
        rule="lag",
        workers=scene.capacity + missing if missing else 0,
        reason=f"{scene.queue.ready} ready and {scene.coming} to come; {begun} can begin in {horizon:.0f} s with who is here",
    )


def flow(scene: Scene) -> Wish:
    """As many as the jobs that may be counted on will keep busy, and some to spare: fewer, the sooner a new one would come."""
    service = scene.service or 0.0
    load = scene.rate * service / scene.policy.concurrency
    spare = SPARE * min(scene.lag / service, 1.0) * sqrt(load) if load else 0.0
    workers = max(ceil(load + spare - ROUNDING), 0)
    return Wish(rule="flow", workers=workers, reason=f"{scene.rate * 3600:.0f} jobs an hour keep {load:.1f} workers busy")


def starts(scene: Scene, free: float, horizon: float) -> int:
    """How many jobs one place begins until the horizon."""
    if not scene.service:
        return 1
    return 1 + floor((horizon - free) / scene.service)


def in_use(scene: Scene) -> Wish:
    """Those who hold a job, and those whom a ready job awaits."""
    waiting = ceil(scene.queue.ready / scene.policy.concurrency)
    needed = scene.busy + min(waiting, scene.idle + scene.starting)
    return Wish(rule="use", workers=needed, reason=f"{scene.busy} are busy, {scene.queue.ready} jobs are ready")


def worth_keeping(scene: Scene) -> Wish:
    """Those whose next use is likely to come before keeping them has cost as much as starting anew."""
    needed = in_use(scene).workers
    kept = next((n for n in range(len(scene.levels), 0, -1) if scene.levels[n - 1].idle < scene.levels[n - 1].keep), 0)
    workers = min(needed + kept, scene.capacity)
    return Wish(rule="keep", workers=workers, reason=f"{workers - needed} beyond those in use are worth keeping for now")
