"""A store that is opened when it is first needed."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import AlreadyExists, InvalidSettings
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool
from drumbeat.settings import Settings, absolute
from drumbeat.store.interface import PoolChange, Store


class LazyStore:
    """One store, given as a URL or already open, and the pools of it that are known to exist.

    A store that came open is left open; one that was opened here ends with ``close``.
    """

    def __init__(self, where: str | Store, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self._given = None if isinstance(where, str) else where
        url = absolute(where) if isinstance(where, str) else "memory:"
        self._settings = replace(settings or Settings(), store=url)
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._plane: ControlPlane | None = None
        self._opening = asyncio.Lock()
        self._known: set[PoolId] = set()

    @property
    def is_reachable(self) -> bool:
        """Whether another connection sees the same store: it was given by a URL, and is not in this process's memory."""
        return self._given is None and not self._settings.store.startswith("memory:")

    def twin(self) -> "LazyStore":
        """The same store by connections of its own, for another thread."""
        return LazyStore(self._settings.store, self._settings, self._clock)

    async def plane(self) -> ControlPlane:
        async with self._opening:
            if self._plane is None:
                self._plane = await self._open()
            return self._plane

    async def store(self) -> Store:
        return (await self.plane()).store

    async def pool(self, name: str, thresholds: Thresholds | None = None) -> PoolId:
        """The pool of that name, made if it is not there yet. Raises InvalidSettings for one of another kind."""
        pool_id = PoolId(name)
        if pool_id not in self._known:
            await self._expect_jobs(pool_id, thresholds or PRESETS[PoolKind.JOBS])
            self._known.add(pool_id)
        return pool_id

    async def bear_with(self, name: str, thresholds: Thresholds) -> None:
        """See that a pool does not give up workers that beat more slowly than it was made for."""
        pools = (await self.store()).pools
        found = await pools.get(await self.pool(name, thresholds))
        if found.thresholds.stale_after < thresholds.stale_after:
            await pools.change(found.pool_id, PoolChange(thresholds=thresholds))

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
            raise InvalidSettings(f"expected pool {pool_id!r} to be one of jobs, got a {found.kind} pool; choose another name")

    async def __aenter__(self) -> "LazyStore":
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self.close()


def _make_folder(url: str) -> None:
    """A SQLite file's folder, as the package's own backends make it."""
    if url.startswith("sqlite:///"):
        Path(unquote(url.removeprefix("sqlite:///").partition("?")[0])).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
