"""One worker's claims: everything it asks of the queue, in its own name."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from drumbeat.core.job import Job, JobStatus, Token, Verdict
from drumbeat.core.pool import PoolId
from drumbeat.core.recovery import stays
from drumbeat.core.worker import Holder
from drumbeat.store.interface import Claiming, Jobs, Queue, Renewed, Settled, Workers

_MOST_HELD = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Who claims what, and for how long."""

    queue: Queue
    jobs: Jobs
    workers: Workers
    pool_id: PoolId
    holder: Holder  #: who claims: a worker of this pool, and its process
    lease: timedelta
    capabilities: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    async def settle(self, verdicts: Sequence[Verdict], limit: int) -> Settled:
        """Say what became of jobs and claim up to ``limit`` more, in one transaction."""
        asked = self._asking(limit) if limit > 0 else None
        if asked is not None and not verdicts:
            return Settled(stale=(), claimed=tuple(await self.queue.claim(asked)))
        return await self.queue.settle(self.holder, verdicts, asked)

    def _asking(self, limit: int) -> Claiming:
        return Claiming(
            pool_id=self.pool_id,
            holder=self.holder,
            lease=self.lease,
            limit=limit,
            capabilities=self.capabilities,
            types=self.types,
        )

    async def renew(self, tokens: Sequence[Token]) -> Renewed:
        return await self.queue.renew(self.holder, tokens, self.lease)

    async def held(self) -> Sequence[Job]:
        """What the store says this worker holds."""
        return await self.jobs.list(self.pool_id, statuses=[JobStatus.CLAIMED], holder=self.holder, limit=_MOST_HELD)

    async def to_stop(self) -> Sequence[Token]:
        """What somebody has asked to be stopped."""
        return await self.jobs.to_stop(self.holder)

    async def tell_progress(self, token: Token, share: float, note: str | None) -> bool:
        return await self.jobs.progress(self.holder, token, share, note)

    async def must_leave(self) -> bool:
        """Whether this worker was told to leave. Raises NotFound for one without a row."""
        return not stays(await self.workers.get(self.holder.pool_id, self.holder.worker_id))

    async def wait(self, within: timedelta) -> bool:
        return await self.queue.wait(self.pool_id, within)

    async def expire(self) -> int:
        """Take back what silent workers held, so that no reaper is needed while somebody works."""
        return len(await self.queue.expire())
