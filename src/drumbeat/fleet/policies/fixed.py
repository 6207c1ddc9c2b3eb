"""The policy ``fixed``: always the same number of workers."""

from drumbeat.fleet.model import RuleWish
from drumbeat.fleet.policies.inputs import PolicyInput, PolicyResult, highest


def fixed(inputs: PolicyInput) -> PolicyResult:
    """Ask for as many workers as the policy's setting ``workers`` says."""
    workers = inputs.policy.workers
    return highest(RuleWish(rule="workers", workers=workers, reason=f"the policy sets workers={workers}"))
