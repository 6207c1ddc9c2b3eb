"""The job itself: echo what came, after a while. Claiming, completing and the rest are the ``pool`` hook's."""

import asyncio
from typing import Any

from flatmachines import MachineHooks


class EchoHooks(MachineHooks):
    """``action: echo``. A job may ask for a ``delay`` in seconds, and to ``fail`` with a text."""

    async def on_action(self, state_name: str, action_name: str, context: dict[str, Any]) -> dict[str, Any]:
        if action_name != "echo":
            return context
        job = context["job"]
        await asyncio.sleep(job.get("delay", 0))
        if job.get("fail"):
            raise RuntimeError(job["fail"])
        return context | {"echoed": job}
