"""One engine of a group: it is not asked again at once if it hangs, and its invalid settings do not stop the other engines."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final, TypeVar

from drumbeat.core.errors import InvalidInput, InvalidSettings, NotFound, SpawnCause, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import (
    ExpandsVolumes,
    Instance,
    ListsPools,
    ListsReachable,
    Order,
    ReachableList,
    ReadsLogs,
    SilentPlace,
    Spawner,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

ENGINE_ANSWERS_WITHIN: Final = timedelta(seconds=15)  #: timeout for one engine's list, shorter than the one for all of them
_SLOW: Final = 1.0  #: seconds; an engine whose list fails faster than this can be asked at every start
_RESTS: Final = 4  #: otherwise the pause until it is asked again, as a multiple of the time that the failed list took


class GroupMember:
    """One engine of a group. If it cannot be used because of its settings, its methods raise SpawnError, and the next call
    tries to open it again."""

    def __init__(self, spawner: Spawner) -> None:
        self.spawner = spawner
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._unopened: SpawnError | None = None  #: why the engine could not be opened
        self._silence: tuple[float, SpawnError] | None = None  #: until when the engine is not asked for a list, and why
        self._logged = ""  #: the last problem with the settings that was logged

    @property
    def name(self) -> str:
        return self.spawner.traits.name

    async def open(self) -> SpawnError | None:
        """Open the engine. If its settings are invalid, logs and returns the error, and the next call tries again."""
        try:
            await self._stack.enter_async_context(self.spawner)
            self._unopened = None
        except InvalidInput as exc:
            self._unopened = self._unusable(exc)
        return self._unopened

    async def close(self) -> None:
        await self._stack.aclose()

    async def ask(self, work: Callable[[Spawner], Awaitable[T]]) -> T:
        """Return the result of a call of the engine. Raises Unanswered instead of InvalidSettings and InvalidInput."""
        await self._opened()
        try:
            return await work(self.spawner)
        except InvalidInput as exc:
            raise self._unusable(exc) from exc

    async def spawn(self, order: Order) -> Instance:
        """Start a worker. Raises the engine's errors, and SpawnFailed if the engine's settings are invalid."""
        try:
            await self._opened()
            return await self.spawner.spawn(order)
        except InvalidSettings as exc:
            refusal = self._unusable(exc)
            raise SpawnFailed(str(refusal), cause=refusal.cause) from exc
        except _Unusable as exc:
            raise SpawnFailed(str(exc), cause=exc.cause) from exc

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        return await self._listed(lambda spawner: spawner.list(pool_id))

    async def pools(self) -> Set[PoolId]:
        """Return the pools with instances at this engine; none if the engine cannot list pools."""

        async def pools(spawner: Spawner) -> Set[PoolId]:
            return await spawner.pools() if isinstance(spawner, ListsPools) else set()

        return await self._listed(pools)

    async def reach(self, pool_id: PoolId | None) -> ReachableList:
        """Return the instances of a pool, or of all pools. An engine that does not answer is a silent place in the result."""
        try:
            return await self._reached(pool_id)
        except SpawnError as exc:
            name = self.name
            place = SilentPlace(name=name, error=exc, may_hold=lambda row: not row.engine or name in row.engine.split(","))
            return ReachableList(instances=(), silent=[place], is_answered=False)

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await self.ask(lambda spawner: spawner.drain(pool_id, worker_id))

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await self.ask(lambda spawner: spawner.terminate(pool_id, worker_id))

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, lines: int) -> str:
        """Return the last lines of a worker's output. Raises NotFound, also if the engine keeps no output."""
        spawner = self.spawner
        if not isinstance(spawner, ReadsLogs):
            raise NotFound(f"engine {self.name} does not keep the output of its workers")
        read = spawner.logs
        return await self.ask(lambda _: read(pool_id, worker_id, lines=lines))

    @property
    def expands_volumes(self) -> bool:
        return isinstance(self.spawner, ExpandsVolumes) and self.spawner.traits.expands_volumes

    async def expand_volume(self, volume: str, to_gb: int, seen_gb: float) -> int:
        spawner = self.spawner
        assert isinstance(spawner, ExpandsVolumes)
        expand = spawner.expand_volume
        return await self.ask(lambda _: expand(volume, to_gb, seen_gb))

    async def _reached(self, pool_id: PoolId | None) -> ReachableList:
        spawner = self.spawner
        if isinstance(spawner, ListsReachable):
            asked = spawner.list_reachable
            return await self._listed(lambda _: asked(pool_id))
        pools = [pool_id] if pool_id is not None else await self.pools()
        return ReachableList(instances=[one for each in pools for one in await self.list(each)])

    async def _listed(self, work: Callable[[Spawner], Awaitable[T]]) -> T:
        """Return an engine's list. Raises Unanswered if it takes too long, so that the answers of other engines can be used.

        An engine whose list failed slowly is not asked again at once, because each start would wait for it."""
        now = asyncio.get_running_loop().time
        began = now()
        if self._silence is not None and began < self._silence[0]:
            raise self._silence[1]
        try:
            found = await _in_time(self.name, self.ask(work))
        except SpawnError as exc:
            if (took := now() - began) >= _SLOW:
                self._silence = now() + _RESTS * took, exc
            raise
        self._silence = None
        return found

    async def _opened(self) -> None:
        """Open the engine again if it could not be opened. Raises Unanswered."""
        async with self._opening:
            if self._unopened is not None and (problem := await self.open()) is not None:
                raise problem

    def _unusable(self, problem: InvalidInput) -> "_Unusable":
        """Return the error of an engine whose settings or credentials are invalid, and log each such problem once."""
        if str(problem) != self._logged:
            log.warning("engine %s cannot be used: %s; check it with: drumbeat engine check %s", self.name, problem, self.name)
            self._logged = str(problem)
        cause = SpawnCause.AUTH if isinstance(problem, InvalidSettings) else SpawnCause.BAD_REQUEST
        return _Unusable(str(problem), cause=cause)


class _Unusable(Unanswered):
    """An engine cannot be used because of its settings or credentials, so nothing is known about its workers."""


async def _in_time(engine: str, asked: Awaitable[T]) -> T:
    """Return an engine's answer. Raises Unanswered if it takes too long."""
    try:
        async with asyncio.timeout(ENGINE_ANSWERS_WITHIN.total_seconds()):
            return await asked
    except TimeoutError as exc:
        seconds = ENGINE_ANSWERS_WITHIN.total_seconds()
        raise Unanswered(f"engine {engine} did not answer within {seconds:g} s; trying again at the next beat") from exc
