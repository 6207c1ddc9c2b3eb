"""Finds and ends workers that were started before their store had an id: their engine knows them by the store's URL."""

from collections.abc import Sequence, Set
from types import TracebackType
from typing import Self

from drumbeat.core.errors import NotFound, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, Order, ReadsLogs, Spawner, SpawnerTraits
from drumbeat.spawn.names import Name


class OlderWorkers:
    """Lists, drains and ends the workers of an engine that an earlier Drumbeat started under the store's URL (``names``).
    Starts no workers."""

    def __init__(self, spawner: Spawner, names: Set[Name]) -> None:
        self._spawner = spawner
        self._names = names

    @property
    def traits(self) -> SpawnerTraits:
        return self._spawner.traits

    async def spawn(self, order: Order) -> Instance:
        raise SpawnFailed(
            f"worker {order.worker_id} of {order.pool_id} was not started: it must be started under the store's id, not its URL"
        )

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        if pool_id not in await self.pools():
            return []
        return [one for one in await self._spawner.list(pool_id) if (one.pool_id, one.worker_id) in self._names]

    async def pools(self) -> Set[PoolId]:
        return {pool_id for pool_id, _ in self._names}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        if (pool_id, worker_id) in self._names:
            await self._spawner.drain(pool_id, worker_id)

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        if (pool_id, worker_id) in self._names:
            await self._spawner.terminate(pool_id, worker_id)

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        if (pool_id, worker_id) not in self._names or not isinstance(self._spawner, ReadsLogs):
            raise NotFound(f"no log of worker {worker_id} of pool {pool_id} among the workers that an earlier Drumbeat started")
        return await self._spawner.logs(pool_id, worker_id, lines=lines)

    async def __aenter__(self) -> Self:
        await self._spawner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._spawner.__aexit__(kind, error, trace)
