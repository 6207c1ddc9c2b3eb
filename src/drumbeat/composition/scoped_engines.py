"""Opens a spawner whose engines need the id of the store, by which they tell its workers from those of other stores."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType

from drumbeat.runtime.store_id import StoreId
from drumbeat.spawn.interface import Spawner, SpawnerTraits


class ScopedSpawner:
    """A context manager that, when entered, reads the store's id, makes the spawner and opens it."""

    def __init__(
        self,
        store_id: Callable[[], Awaitable[StoreId]],
        make: Callable[[StoreId], Spawner],
        traits: SpawnerTraits,
    ) -> None:
        self._store_id, self._make = store_id, make
        self._stack = AsyncExitStack()
        self.traits = traits

    async def resolve(self) -> Spawner:
        """Return the spawner, not opened. It does not know workers that were started before the store had an id."""
        found = await self._store_id()
        return self._make(StoreId(value=found.value))

    async def __aenter__(self) -> Spawner:
        spawner = self._make(await self._store_id())
        return await self._stack.enter_async_context(spawner)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
