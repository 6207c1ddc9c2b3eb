"""List current and past workers: ``python worker_registry.py``."""

import asyncio
from typing import Any

from example import POOL, registration_backend, say

from drumbeat.adapters.flatmachines import PoolWorkerFilter


async def workers() -> list[dict[str, Any]]:
    async with registration_backend() as registry:
        return [record.to_dict() for record in await registry.list(PoolWorkerFilter(pool_id=POOL))]


if __name__ == "__main__":
    say(asyncio.run(workers()))
