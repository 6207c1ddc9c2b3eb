"""Carries out what a pool's checker decided: starts workers, takes jobs back. Every action is safe to repeat."""

from datetime import datetime

from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.errors import NotFound, SpawnCause, SpawnError, StaleWrite
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker
from drumbeat.pool.model import Action, ExpireLeases, SpawnJobWorker, TakeBackJobs
from drumbeat.runtime.recovery import RecoveryActor
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store


class PoolActor:
    """Carries out the actions that the checker or the reaper of one pool has decided on."""

    def __init__(self, store: Store, spawner: Spawner, pool_id: PoolId) -> None:
        self._store = store
        self._pool_id = pool_id
        self._provider = spawner.traits.name
        self._recovery = RecoveryActor(store, spawner, pool_id)
        self._refused: tuple[datetime, SpawnError] | None = None  #: time of the decision whose start last failed, and its error

    async def act(self, action: Action, fence: Fence) -> None:
        """Carry out one action. The store refuses it if another checker has taken over the lease (``fence``) meanwhile."""
        match action:
            case SpawnJobWorker():
                await self._start(action, fence)
            case TakeBackJobs():
                await self._release(action, fence)
            case ExpireLeases():
                await self._recovery.check(fence)
                await self._store.queue.expire()
            case _:
                await self._recovery.recover(action, fence)

    async def _start(self, action: SpawnJobWorker, fence: Fence) -> None:
        """Start a worker. If another start of the same beat was refused, raise SpawnError without trying."""
        if self._refused is not None and self._refused[0] == action.at:
            earlier = self._refused[1]
            raise SpawnError(f"not tried: an earlier start in this beat failed: {earlier}", cause=earlier.cause)
        try:
            await self._recovery.start(self._row(action), action.group_count, fence, is_new=action.is_new, keep_refused=True)
        except SpawnError as exc:
            refuses_all = self._provider != DEFAULT_ENGINE or exc.cause is SpawnCause.NO_CAPACITY
            self._refused = (action.at, exc) if refuses_all and action.at is not None else None
            raise

    async def _release(self, action: TakeBackJobs, fence: Fence) -> None:
        """Take back the jobs of an ended worker. Raises StaleWrite if the worker is alive after all and keeps its jobs.

        Does nothing if the worker has no row: its jobs return to the queue when their leases run out.
        """
        try:
            row = await self._store.workers.get(self._pool_id, action.worker_id)
        except NotFound:
            return
        if row.is_live:
            raise StaleWrite(f"jobs of worker {action.worker_id} not taken back: it is {row.status} after a new heartbeat")
        await self._store.queue.release(row.holder, action.reason, charge=row.has_crashed, fence=fence)

    def _row(self, action: SpawnJobWorker) -> Worker:
        return Worker(
            pool_id=self._pool_id,
            worker_id=action.worker_id,
            slot=action.slot,
            provider=self._provider,
            capabilities=action.capabilities,
        )
