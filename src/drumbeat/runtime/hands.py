"""Doing what recovery decided, and starting workers: rows first, then the provider. Everything is safe to repeat."""

from functools import singledispatchmethod
from typing import Any

from drumbeat.core.errors import SpawnFailed, StaleWrite
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.recovery import EndOverdue, EndStray, MarkFailed, MarkLost, Reap, Recovery
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.spawn.interface import Order, Spawner
from drumbeat.store.interface import Change, Store


class Hands:
    """The hands of one pool's controller."""

    def __init__(self, store: Store, spawner: Spawner, pool_id: PoolId) -> None:
        self._store = store
        self._spawner = spawner
        self._pool_id = pool_id

    async def recover(self, action: Recovery, fence: Fence) -> None:
        """Do one action of recovery under the controller's fence."""
        await self._do(action, fence)

    @singledispatchmethod
    async def _do(self, action: Recovery, fence: Fence) -> None:
        raise TypeError(f"no way to do {type(action).__name__}")

    @_do.register
    async def _(self, action: MarkLost, fence: Fence) -> None:
        await self._store.workers.move(action.worker, WorkerStatus.LOST, action.reason, fence=fence)

    @_do.register
    async def _(self, action: MarkFailed, fence: Fence) -> None:
        to = WorkerStatus.TERMINATED if action.exit_code == 0 else WorkerStatus.ERROR
        change = Change(exit_code=action.exit_code, error=None if action.exit_code == 0 else action.reason)
        await self._store.workers.move(action.worker, to, action.reason, change, fence=fence)

    @_do.register
    async def _(self, action: Reap, fence: Fence) -> None:
        await self.check(fence)
        await self._spawner.terminate(self._pool_id, action.worker_id)
        await self._store.workers.mark_reaped(self._pool_id, action.worker_id, fence=fence)

    @_do.register
    async def _(self, action: EndStray, fence: Fence) -> None:
        await self.check(fence)
        await self._spawner.terminate(self._pool_id, action.worker_id)

    @_do.register
    async def _(self, action: EndOverdue, fence: Fence) -> None:
        change = Change(meta={"drain_timed_out": True}, error=action.reason)
        await self._store.workers.move(action.worker, WorkerStatus.TERMINATED, action.reason, change, fence=fence)

    async def start(self, row: Worker, group_count: int, fence: Fence, *, is_new: bool) -> None:
        """Make a worker's row, unless it is there already, then its instance. Raises SpawnFailed, with the row closed."""
        if is_new:
            await self._store.workers.add([row], fence=fence)
        else:
            await self.check(fence)
        order = Order(pool_id=self._pool_id, worker_id=row.worker_id, slot=row.slot, group_count=group_count)
        try:
            await self._spawner.spawn(order)
        except SpawnFailed as exc:
            await self._close(row, exc, fence)
            raise

    async def check(self, fence: Fence) -> None:
        """Raise Fenced before the provider is touched, where no row is written first: adding no events asks just that."""
        await self._store.events.append(self._pool_id, (), fence=fence)

    async def _close(self, row: Worker, refusal: SpawnFailed, fence: Fence) -> None:
        """A worker that could not be started leaves cleanly: it is its provider that failed, not the worker."""
        try:
            change = Change(error=str(refusal), meta={**row.meta, **_told(refusal)})
            await self._store.workers.move(row, WorkerStatus.TERMINATED, "could not be started", change, fence=fence)
        except StaleWrite:
            return


def _told(refusal: SpawnFailed) -> dict[str, Any]:
    """What a row keeps of its provider's refusal."""
    wait = {} if refusal.retry_after is None else {"retry_after_seconds": refusal.retry_after.total_seconds()}
    return {"spawn_failed": True, "cause": refusal.cause.value, **wait}
