"""The policy ``fixed``: always the same number of workers."""

from drumbeat.fleet.model import Wish
from drumbeat.fleet.policies.inputs import Opinion, PolicyInput, highest


def fixed(inputs: PolicyInput) -> Opinion:
    """Ask for as many workers as the policy's setting ``workers`` says."""
    workers = inputs.policy.workers
    return highest(Wish(rule="workers", workers=workers, reason=f"the policy sets workers={workers}"))
