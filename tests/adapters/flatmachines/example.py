"""An example's real command lines, with their data in a folder of the test's."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drumbeat.composition.plane import open_control_plane
from drumbeat.core.job import Job
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker
from drumbeat.settings import Settings

EXAMPLES = Path(__file__).parents[3] / "examples"
PATIENCE = 120


class Example:
    """Runs an example's scripts and looks at its pool."""

    def __init__(self, name: str, folder: Path, database: str, pool: str) -> None:
        self._scripts = EXAMPLES / name / "python"
        self._environment = {**os.environ, "EXAMPLE_DATA": str(folder)}
        self._environment.pop("DRUMBEAT_STORE", None)
        self._settings = Settings(store=f"sqlite:///{folder}/{database}", state_dir=folder)
        self._pool = PoolId(pool)

    async def start(self, script: str, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            self._scripts / f"{script}.py",
            *arguments,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, script: str, *arguments: str) -> Any:
        process = await self.start(script, *arguments)
        out, err = await process.communicate()
        assert process.returncode == 0, (script, err.decode())
        return json.loads(out)

    async def jobs(self) -> dict[str, Job]:
        async with open_control_plane(self._settings) as plane:
            return {job.job_id: job for job in await plane.store.jobs.list(self._pool, limit=10_000)}

    async def workers(self) -> dict[str, Worker]:
        async with open_control_plane(self._settings) as plane:
            return {row.worker_id: row for row in await plane.store.workers.list(self._pool)}

    async def holders(self, job_id: str) -> list[str]:
        """Who had a job, one after the other."""
        async with open_control_plane(self._settings) as plane:
            job = (await self.jobs())[job_id]
            return [attempt.worker_id for attempt in await plane.store.jobs.attempts(job.job_id)]

    async def until_jobs(self, look: Callable[[dict[str, Job]], bool]) -> dict[str, Job]:
        async with asyncio.timeout(PATIENCE):
            while not look(found := await self.jobs()):
                await asyncio.sleep(0.1)
            return found

    async def until_all_left(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while any(worker.is_live for worker in (await self.workers()).values()):
                await asyncio.sleep(0.1)
