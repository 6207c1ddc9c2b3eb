"""Every queued job covered by an idle or starting worker: seed 003's rule and what production made of seed 004's (C51)."""

from math import ceil

from drumbeat.fleet.model import Wish
from drumbeat.fleet.policies.inputs import Opinion, PolicyInput, highest
from drumbeat.fleet.policies.queue_ratio import warm_buffer


def queue_cover(scene: PolicyInput) -> Opinion:
    """The busy ones, and one place for each ready job. Buffer and demand are one need, not two: the greater counts."""
    policy, ready = scene.policy, scene.queue.ready
    free = scene.busy * policy.concurrency - min(scene.queue.claimed, scene.busy * policy.concurrency)
    uncovered = max(ceil(ready * policy.headroom) - free, 0)
    workers = scene.busy + ceil(uncovered / policy.concurrency)
    covered = scene.idle + scene.starting
    return highest(
        Wish(
            rule="queue",
            workers=workers,
            reason=f"{ready} ready jobs beside {scene.busy} busy workers; {covered} could take one",
        ),
        warm_buffer(scene),
    )
