"""Makes sure that a program that was asked to stop ends within seconds, even if an engine does not answer."""

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from drumbeat.core.clock import Clock
from drumbeat.core.errors import SpawnAmbiguous, SpawnError, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.runtime.timeouts import LostRace, race
from drumbeat.spawn.interface import Instance, ListsReachable, Order, ReachableList, Spawner, SpawnerTraits

T = TypeVar("T")

_FIRST_WAIT = timedelta(seconds=2)  #: how long a call that runs when ``stop`` is set may still take
_EACH_WAIT = timedelta(milliseconds=500)  #: how long each later call may take
_OPTIONAL = ("expand_volume", "pools", "logs", "forget_refusals")  #: methods that only some spawners have


class PromptSpawner:
    """Passes calls on to another spawner. Once ``stop`` is set, it waits only briefly for answers, and starts no workers."""

    def __init__(self, spawner: Spawner, stop: asyncio.Event, clock: Clock) -> None:
        self._spawner = spawner
        self._stop = stop
        self._clock = clock
        self._stopped_at: timedelta | None = None
        self.silence: str | None = None  #: why the engine gave no answer to the last call; None if it answered
        for name in _OPTIONAL:
            if hasattr(spawner, name):
                setattr(self, name, getattr(spawner, name))
        if isinstance(spawner, ListsReachable):
            self.list_reachable = partial(self._list_reachable, spawner)

    @property
    def traits(self) -> SpawnerTraits:
        return self._spawner.traits

    async def spawn(self, order: Order) -> Instance:
        """Start a worker. Raises Unanswered without asking the engine once the program was asked to stop."""
        if self._stop.is_set():
            raise Unanswered("no worker was started: this program was asked to stop")
        try:
            return await self._answered(self._spawner.spawn(order))
        except _Interrupted as exc:
            raise SpawnAmbiguous(f"worker {order.worker_id}: {exc}; the worker might have been started") from None

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        return await self._answered(self._spawner.list(pool_id))

    async def _list_reachable(self, spawner: ListsReachable, pool_id: PoolId | None) -> ReachableList:
        found = await self._answered(spawner.list_reachable(pool_id))
        self.silence = found.problem if found.silent else None
        return found

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await self._answered(self._spawner.drain(pool_id, worker_id))

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await self._answered(self._spawner.terminate(pool_id, worker_id))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def _answered(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            answer = await race(self._until_waited_long_enough(), call)
        except LostRace:
            self.silence = f"engine {self.traits.name} gave no answer in time"
            raise _Interrupted(self.silence) from None
        except (Unanswered, SpawnAmbiguous) as exc:
            self.silence = str(exc)
            raise
        except SpawnError:
            self.silence = None
            raise
        self.silence = None
        return answer

    async def _until_waited_long_enough(self) -> None:
        """Return after the program was asked to stop and has then waited long enough for the engine's answer."""
        await self._stop.wait()
        now = self._clock.elapsed()
        if self._stopped_at is None:
            self._stopped_at = now
        await self._clock.sleep(max(self._stopped_at + _FIRST_WAIT - now, _EACH_WAIT))


class _Interrupted(Unanswered):
    """The program was asked to stop, and did not wait for the engine's answer."""
