"""The job: echo the input after a delay. The ``pool`` hook claims and completes jobs."""

import asyncio
from typing import Any

from flatmachines import MachineHooks


class EchoHooks(MachineHooks):
    """``action: echo``. A job may have a ``delay`` in seconds, and a text to ``fail`` with."""

    async def on_action(self, state_name: str, action_name: str, context: dict[str, Any]) -> dict[str, Any]:
        if action_name != "echo":
            return context
        job = context["job"]
        await asyncio.sleep(job.get("delay", 0))
        if job.get("fail"):
            raise RuntimeError(job["fail"])
        return context | {"echoed": job}
