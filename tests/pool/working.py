"""What tests of job workers begin with: a store and a clock of their own, a pool, and workers that live in it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import ManualClock
from drumbeat.core.job import Job, JobStatus
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool
from drumbeat.core.worker import ExitCode, Holder, WorkerId, WorkerStatus
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.assemble import job_workload
from drumbeat.pool.worker.handlers import describe
from drumbeat.pool.worker.options import Mode, WorkPlan
from drumbeat.pool.worker.workload import JobWorkload
from drumbeat.runtime.worker import WorkerLifecycle
from drumbeat.store.interface import JoinRequest
from drumbeat.store.memory import MemoryStore

POOL = PoolId("papers")
ME = WorkerId("w1")
NO_WAIT = timedelta()


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


async def settle(turns: int = 200) -> None:
    """Let every task run until it waits for the clock or for a thread."""
    for _ in range(turns):
        await asyncio.sleep(0)


def me(worker_id: str = ME) -> Holder:
    """As whom a worker of the shop holds jobs."""
    return Holder(pool_id=POOL, worker_id=WorkerId(worker_id), instance=worker_id)


class Shop:
    """A pool of jobs in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.desk = Pool(self.store, self.clock, POOL, "somebody")
        self.home: PoolRow = pool(POOL, PoolKind.JOBS)

    async def opened(self) -> "Shop":
        self.home = await self.store.pools.create(self.home)
        return self

    def workload(self, *functions: Callable[..., Any], worker_id: str = ME, **plan: Any) -> JobWorkload:
        """A worker's work, with one function for every type, or each for the type of its name."""
        found = [describe(function) for function in functions]
        handlers = {"": found[0]} if len(found) == 1 else {each.call.__name__: each for each in found}
        wanted = WorkPlan(**{"gather": NO_WAIT, "mode": Mode.LOOP, **plan})
        return job_workload(self.store, self.home, me(worker_id), wanted, self.clock, handlers=handlers, chance=lambda: 0.5)

    def life(self, workload: JobWorkload, worker_id: str = ME) -> WorkerLifecycle:
        joining = JoinRequest(pool_id=POOL, worker_id=WorkerId(worker_id), slot=0, instance=worker_id, host="h", pid=1)
        return WorkerLifecycle(self.store, joining, self.home.thresholds, workload, clock=self.clock, gated=False)

    @asynccontextmanager
    async def working(self, workload: JobWorkload, worker_id: str = ME) -> AsyncIterator[WorkerLifecycle]:
        """The worker, alive for as long as the block; then it drains and leaves."""
        life = self.life(workload, worker_id)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(life.run())
            await self.begun(worker_id)
            try:
                yield life
            finally:
                life.request_stop("the test is over")
                for _ in range(100):
                    await settle()
                    if task.done():
                        break
                    await self.clock.advance(seconds(10))

    async def work(self, workload: JobWorkload, worker_id: str = ME) -> ExitCode:
        """Live until the work is done."""
        life = self.life(workload, worker_id)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(life.run())
            await self.begun(worker_id)
            for _ in range(100):
                await settle()
                await asyncio.sleep(0.001)
                if task.done():
                    break
                await self.clock.advance(seconds(1))
        return task.result()

    async def begun(self, worker_id: str = ME) -> None:
        """Return once the worker has begun, or ended: its handlers are loaded in a thread, which takes real time."""
        deadline = time.monotonic() + 60
        early = (None, WorkerStatus.SPAWNING, WorkerStatus.STARTING, WorkerStatus.WAITING)
        while await self._status(worker_id) in early:
            assert time.monotonic() < deadline, "the worker never began"
            await asyncio.sleep(0.001)
        await settle()

    async def _status(self, worker_id: str) -> WorkerStatus | None:
        rows = await self.store.workers.list(POOL)
        return next((row.status for row in rows if row.worker_id == worker_id), None)

    async def job(self, job_id: str) -> Job:
        return await self.desk.job(job_id)

    async def status(self, job_id: str) -> JobStatus:
        return (await self.job(job_id)).status

    async def passes(self, duration: float) -> None:
        await self.clock.advance(seconds(duration), settle=100)
        await settle()
