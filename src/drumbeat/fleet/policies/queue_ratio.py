"""The policy ``queue_ratio``: one worker for every ``tasks_per_worker`` ready jobs, as in the earlier RunPod orchestrator."""

from math import ceil

from drumbeat.fleet.model import RuleWish
from drumbeat.fleet.policies.inputs import PolicyInput, PolicyResult, highest


def queue_ratio(inputs: PolicyInput) -> PolicyResult:
    """Ask for one worker per ``tasks_per_worker`` ready jobs, or for the busy workers plus ``keep_idle`` if that is more."""
    policy, ready = inputs.policy, inputs.queue.ready
    worth = max(ceil(ready * policy.headroom / policy.tasks_per_worker), 1 if ready else 0)
    return highest(
        RuleWish(rule="queue", workers=worth, reason=f"{ready} ready jobs, {policy.tasks_per_worker} per worker"),
        warm_buffer(inputs),
    )


def warm_buffer(inputs: PolicyInput) -> RuleWish:
    """Ask for the busy workers plus ``keep_idle`` idle workers. If ``keep_idle`` is 0, this rule is off and asks for none."""
    keep = inputs.policy.keep_idle
    reason = f"{inputs.busy} workers are busy, keep_idle is {keep}"
    return RuleWish(rule="warm", workers=inputs.busy + keep if keep else 0, reason=reason)
