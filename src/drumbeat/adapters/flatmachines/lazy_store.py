"""A store that is opened when it is first used."""

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from drumbeat.composition.base import private_folder
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import AlreadyExists, InvalidSettings
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool
from drumbeat.settings import Settings, absolute, load_settings
from drumbeat.store.interface import PoolChange, Store


class LazyStore:
    """One store, given as a URL or already open. Remembers which pools exist, so that each is looked up once.

    ``close`` closes the store if it was given as a URL; a store that was given open stays open.
    """

    def __init__(self, where: str | Store, settings: Settings | None = None, clock: Clock | None = None) -> None:
        """Without ``settings``, those of the environment and of drumbeat.toml are used. Raises InvalidSettings."""
        self._given = None if isinstance(where, str) else where
        url = absolute(where) if isinstance(where, str) else "memory:"
        self._settings = replace(settings or load_settings(os.environ), store=url)
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._plane: ControlPlane | None = None
        self._opening = asyncio.Lock()
        self._known: set[PoolId] = set()

    @property
    def can_be_cloned(self) -> bool:
        """Whether ``clone`` can open this store again for another thread: the store was given as a URL and is not in memory."""
        return self._given is None and not self._settings.store.startswith("memory:")

    def clone(self) -> "LazyStore":
        """Return the same store, with separate connections for use in another thread."""
        return LazyStore(self._settings.store, self._settings, self._clock)

    async def plane(self) -> ControlPlane:
        async with self._opening:
            if self._plane is None:
                self._plane = await self._open()
            return self._plane

    async def store(self) -> Store:
        return (await self.plane()).store

    async def pool(self, name: str, thresholds: Thresholds | None = None) -> PoolId:
        """Return the id of the pool with this name; create it if missing. Raises InvalidSettings if it is not a job pool."""
        pool_id = PoolId(name)
        if pool_id not in self._known:
            await self._expect_jobs(pool_id, thresholds or PRESETS[PoolKind.JOBS])
            self._known.add(pool_id)
        return pool_id

    async def allow_slower_heartbeats(self, name: str, thresholds: Thresholds) -> None:
        """Replace a pool's thresholds by ``thresholds``, but only if ``thresholds`` allow more time between heartbeats. Its
        ``lost_after`` is never lowered: live workers without contact to the store may go on for almost as long."""
        pools = (await self.store()).pools
        found = await pools.get(await self.pool(name, thresholds))
        if found.thresholds.stale_after < thresholds.stale_after:
            lost_after = max(found.thresholds.lost_after, thresholds.lost_after)
            await pools.change(found.pool_id, PoolChange(thresholds=replace(thresholds, lost_after=lost_after)))

    async def close(self) -> None:
        async with self._opening:
            self._plane = None
            await self._stack.aclose()

    async def _open(self) -> ControlPlane:
        if self._given is not None:
            return ControlPlane(self._settings, self._given, self._clock)
        _make_folder(self._settings.store)
        return await self._stack.enter_async_context(open_control_plane(self._settings, create=True, clock=self._clock))

    async def _expect_jobs(self, pool_id: PoolId, thresholds: Thresholds) -> None:
        pools = (await self.store()).pools
        found = await pools.find(pool_id)
        if found is None:
            try:
                found = await pools.create(pool(pool_id, PoolKind.JOBS, thresholds))
            except AlreadyExists:
                found = await pools.get(pool_id)
        if found.kind is not PoolKind.JOBS:
            raise InvalidSettings(f"expected pool {pool_id!r} to be a job pool, got a {found.kind} pool; choose another name")

    async def __aenter__(self) -> "LazyStore":
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self.close()


def _make_folder(url: str) -> None:
    """Create the folder of a SQLite file if it is missing, as FlatMachines' backends do."""
    if url.startswith("sqlite:///"):
        private_folder(Path(unquote(url.removeprefix("sqlite:///").partition("?")[0])).parent)
