"""List the jobs with their results: ``python work_pool.py``."""

import asyncio
from typing import Any

from example import POOL, say, work_backend

from drumbeat.core.pool import PoolId


async def jobs() -> list[dict[str, Any]]:
    async with work_backend() as work:
        await work.pool(POOL).size()
        store = await work.place.store()
        found = await store.jobs.list(PoolId(POOL), limit=10_000)
        return [
            {
                "id": job.job_id,
                "status": job.status.value,
                "attempts": job.attempts,
                "claimed_by": job.lease_owner,
                "result": job.result,
                "error": job.last_error,
                "workers": [attempt.worker_id for attempt in await store.jobs.attempts(job.job_id)],
            }
            for job in found
        ]


if __name__ == "__main__":
    say(asyncio.run(jobs()))
