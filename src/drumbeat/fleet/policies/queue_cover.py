"""The policy ``queue_cover``: an idle or starting worker for every ready job."""

from math import ceil

from drumbeat.fleet.model import RuleWish
from drumbeat.fleet.policies.inputs import PolicyInput, PolicyResult, highest
from drumbeat.fleet.policies.queue_ratio import warm_buffer


def queue_cover(inputs: PolicyInput) -> PolicyResult:
    """Ask for the busy workers plus enough workers to run every ready job, or plus ``keep_idle`` workers if that is more."""
    policy, ready = inputs.policy, inputs.queue.ready
    free = inputs.busy * policy.concurrency - min(inputs.queue.claimed, inputs.busy * policy.concurrency)
    uncovered = max(ceil(ready * policy.headroom) - free, 0)
    workers = inputs.busy + ceil(uncovered / policy.concurrency)
    covered = inputs.idle + inputs.starting
    return highest(
        RuleWish(
            rule="queue",
            workers=workers,
            reason=f"{ready} ready jobs, {inputs.busy} busy workers, {covered} idle or starting",
        ),
        warm_buffer(inputs),
    )
