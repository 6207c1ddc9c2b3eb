"""One worker for so many queued jobs: seed 004's rule, with its deadlock and its double cold start mended (C70-C72)."""

from math import ceil

from drumbeat.fleet.model import Wish
from drumbeat.fleet.policies.inputs import Opinion, PolicyInput, highest


def queue_ratio(scene: PolicyInput) -> Opinion:
    """The queue divided by what one worker is worth, at least one while anything is queued, and the warm buffer."""
    policy, ready = scene.policy, scene.queue.ready
    worth = max(ceil(ready * policy.headroom / policy.tasks_per_worker), 1 if ready else 0)
    return highest(
        Wish(rule="queue", workers=worth, reason=f"{ready} ready jobs, {policy.tasks_per_worker} to a worker"),
        warm_buffer(scene),
    )


def warm_buffer(scene: PolicyInput) -> Wish:
    """So many idle beyond the busy ones, if any are to be kept."""
    keep = scene.policy.keep_idle
    return Wish(
        rule="warm", workers=scene.busy + keep if keep else 0, reason=f"{scene.busy} are busy, {keep} more are to be kept warm"
    )
