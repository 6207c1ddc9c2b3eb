"""A pool of jobs on one clock: a memory store, a fake provider, and workers that do as they are told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from drumbeat.core.clock import ManualClock
from drumbeat.core.job import AttemptOutcome, Job, JobOutcome, JobStatus, NewJob
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.worker import Holder, Worker, WorkerId, WorkerStatus
from drumbeat.pool.checker import Checker
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import ClaimRequest, Heartbeat, JoinRequest
from drumbeat.store.memory import MemoryStore
from pool.seen import LIMITS, POOL, seconds

LEASE = seconds(60)


def holder(worker_id: WorkerId) -> Holder:
    """As whom a worker of the stage holds jobs: its process is named as the worker is."""
    return Holder(pool_id=POOL, worker_id=worker_id, instance=worker_id)


@dataclass(slots=True)
class Stage:
    """Everything is told by hand: nobody beats, claims or leaves unless a test says so."""

    clock: ManualClock = field(default_factory=ManualClock)
    store: MemoryStore = field(init=False)
    spawner: FakeSpawner = field(init=False)
    checks: int = 0

    def __post_init__(self) -> None:
        self.store, self.spawner = MemoryStore(self.clock), FakeSpawner(self.clock)

    async def open(self, **policy: object) -> "Stage":
        await self.store.pools.create(pool(POOL, PoolKind.JOBS, LIMITS, **policy))
        return self

    @property
    def checker(self) -> Checker:
        return Checker(self.store, self.clock, self._owner, lambda engine: self.spawner)

    def _owner(self) -> str:
        self.checks += 1
        return f"check-{self.checks}"

    async def push(self, count: int, **options: object) -> None:
        await self.store.queue.push(POOL, [NewJob(payload={"n": n}, **options) for n in range(count)])  # type: ignore[arg-type]

    async def join(self, worker_id: WorkerId, slot: int = 0) -> Worker:
        """Its process is there, and works."""
        joining = JoinRequest(pool_id=POOL, worker_id=worker_id, slot=slot, instance=worker_id, host="h", pid=1)
        row = await self.store.membership.join(joining)
        for to in (WorkerStatus.WAITING, WorkerStatus.ACTIVE):
            row = await self.store.membership.move(POOL, worker_id, worker_id, to, "it goes on")
        return row

    async def beat(self, worker_id: WorkerId) -> None:
        await self.store.membership.beat(Heartbeat(pool_id=POOL, worker_id=worker_id, instance=worker_id, read_to=0))

    async def claim(self, worker_id: WorkerId, lease: timedelta = LEASE) -> Job | None:
        claimed = await self.store.queue.claim(ClaimRequest(pool_id=POOL, holder=holder(worker_id), lease=lease, alone=True))
        return claimed[0] if claimed else None

    async def finish(self, job: Job) -> bool:
        """Whether the result was taken."""
        assert job.holder is not None
        verdict = JobOutcome(token=job.token, outcome=AttemptOutcome.DONE)
        return not (await self.store.queue.settle(job.holder, [verdict])).stale

    async def leave(self, worker_id: WorkerId) -> None:
        await self.store.membership.move(POOL, worker_id, worker_id, WorkerStatus.TERMINATED, "the work is done")
        self.spawner.end(POOL, worker_id, exit_code=0)

    async def workers(self, *, live: bool = True) -> Sequence[Worker]:
        return await self.store.workers.list(POOL, live=live)

    async def jobs(self, *statuses: JobStatus) -> Sequence[Job]:
        return await self.store.jobs.list(POOL, statuses=statuses)

    async def spawned(self) -> list[WorkerId]:
        return [row.worker_id for row in await self.workers() if row.status is WorkerStatus.SPAWNING]
