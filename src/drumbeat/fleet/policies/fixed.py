"""Always the same number of workers."""

from drumbeat.fleet.model import Wish
from drumbeat.fleet.policies.scene import Opinion, Scene, highest


def fixed(scene: Scene) -> Opinion:
    """As many as were asked for."""
    return highest(Wish(rule="workers", workers=scene.policy.workers, reason=f"{scene.policy.workers} were asked for"))
