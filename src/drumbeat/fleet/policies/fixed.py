"""Always the same number of workers."""

from drumbeat.fleet.model import Wish
from drumbeat.fleet.policies.inputs import Opinion, PolicyInput, highest


def fixed(inputs: PolicyInput) -> Opinion:
    """As many workers as the policy's ``workers``."""
    workers = inputs.policy.workers
    return highest(Wish(rule="workers", workers=workers, reason=f"the policy sets workers={workers}"))
