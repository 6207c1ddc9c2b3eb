"""Always the same number of workers."""

from drumbeat.fleet.model import Wish
from drumbeat.fleet.policies.inputs import Opinion, PolicyInput, highest


def fixed(scene: PolicyInput) -> Opinion:
    """As many as were asked for."""
    return highest(Wish(rule="workers", workers=scene.policy.workers, reason=f"{scene.policy.workers} were asked for"))
