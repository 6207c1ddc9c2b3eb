"""One block of machines at work: the stores they use, the claims and workers of this process, and its heartbeats."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from json import dumps
from pathlib import Path
from typing import Any
from uuid import uuid4

from drumbeat.adapters.flatmachines.heartbeat import MachineHeartbeat, heartbeat_for
from drumbeat.adapters.flatmachines.lazy_store import LazyStore
from drumbeat.adapters.flatmachines.registration import DrumbeatRegistrationBackend, PoolWorkerRegistration
from drumbeat.adapters.flatmachines.settings import thresholds_for
from drumbeat.adapters.flatmachines.work import DrumbeatWorkBackend
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import Refused
from drumbeat.core.job import AttemptOutcome
from drumbeat.settings import Settings, load_settings
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_MODULE = "drumbeat.adapters.flatmachines"
_LEAST_LEASE = timedelta(seconds=60)  #: of a claim that is renewed at each heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the running machine came from, so that what it launches finds the same files."""

    config: Path | None = None
    machines: Mapping[str, str] = field(default_factory=dict)  #: a machine's name → its file
    hooks: Mapping[str, str] = field(default_factory=dict)  #: a hook's name → module:factory

    def command(self, machine: str, given: Mapping[str, Any], execution_id: str, parent: str | None) -> tuple[str, ...]:
        """The command line that runs another machine as a process of its own."""
        place = ("--config", str(self.config)) if self.config else ()
        named = [f"--machines={name}={file}" for name, file in self.machines.items()]
        hooks = [f"--hooks={name}={factory}" for name, factory in self.hooks.items()]
        ids = ("--execution-id", execution_id, *(("--parent-id", parent) if parent else ()))
        return (sys.executable, "-m", _MODULE, *place, "--machine", machine, *named, *hooks, "--input", dumps(given), *ids)


class PoolClaims:
    """The backends of one pair of stores, and the workers that live by them."""

    def __init__(
        self, work: DrumbeatWorkBackend, registration: DrumbeatRegistrationBackend, tasks: asyncio.TaskGroup, clock: Clock
    ) -> None:
        self.work = work
        self.registration = registration
        self.clock = clock
        self._tasks = tasks
        self._hearts: dict[str, MachineHeartbeat] = {}

    async def enroll(self, worker_id: str, pool_id: str, capabilities: Any, every: timedelta | None) -> str:
        """Register a worker, and beat for it from now on if there is an interval. Answers with its status."""
        if every is not None:
            await self.registration.place.bear_with(pool_id, thresholds_for(every))
            self.work.lease = max(thresholds_for(every).lost_after, _LEAST_LEASE)
        given = PoolWorkerRegistration(
            worker_id=worker_id, pid=os.getpid(), capabilities=list(capabilities or ()), pool_id=pool_id
        )
        record = await self.registration.register(given)
        if (holder := self.registration.holder(worker_id)) is not None:
            self.work.register(holder)
        if every is not None and worker_id not in self._hearts:
            self._hearts[worker_id] = heartbeat_for(self._tasks, self.clock, self.registration, self.work, worker_id, every)
        status: str = record.status
        return status

    async def beat(self, worker_id: str) -> None:
        """A heartbeat, and the worker's claims renewed. KeyError once it was given up."""
        await self.registration.heartbeat(worker_id)
        await self.work.renew(worker_id)

    async def leave(self, worker_id: str, status: str, error: str | None = None) -> None:
        """End a worker's row, and its heartbeat with it. One that was given up meanwhile stays as it is."""
        if beating := self._hearts.pop(worker_id, None):
            await beating.stop()
        try:
            await self.registration.update_status(worker_id, status, error)
        except Refused as exc:
            log.warning("worker %s could not leave as %s: %s", worker_id, status, exc)

    async def fail(self, worker_id: str, error: str) -> None:
        """A machine failed: so have the jobs it held, and its worker (C54)."""
        await self.work.settle_all(worker_id, AttemptOutcome.FAILED, error)
        if worker_id in self.registration.own():
            await self.leave(worker_id, "error", error)

    async def abandon(self, error: str | None) -> None:
        """Whoever is still at work here has failed, or, without an error, was told to stop and gives its jobs back."""
        for worker_id in self.work.holders() | self.registration.own():
            if error is not None:
                await self.fail(worker_id, error)
                continue
            await self.work.settle_all(worker_id, AttemptOutcome.RELEASED, None)
            if worker_id in self.registration.own():
                await self.leave(worker_id, "terminated")

    async def stop(self) -> None:
        for beating in self._hearts.values():
            await beating.stop()


class MachineSession:
    """Every desk of one block. Hooks of one machine share it, so that a job claimed by one is completed by another."""

    def __init__(self, where: str | Store, settings: Settings, tasks: asyncio.TaskGroup, clock: Clock, origin: Origin) -> None:
        self.origin = origin
        self._where = where
        self._settings = settings
        self._tasks = tasks
        self._clock = clock
        self._places: dict[str | None, LazyStore] = {}
        self._desks: dict[tuple[str | None, str | None], PoolClaims] = {}

    def desk(self, work: str | None = None, registration: str | None = None) -> PoolClaims:
        """The desk of these stores; None is the one this session was given."""
        key = (work, registration or work)
        if key not in self._desks:
            self._desks[key] = PoolClaims(
                DrumbeatWorkBackend(self._place(key[0])),
                DrumbeatRegistrationBackend(self._place(key[1])),
                self._tasks,
                self._clock,
            )
        return self._desks[key]

    def desks(self) -> tuple[PoolClaims, ...]:
        """Those that were asked for so far."""
        return tuple(self._desks.values())

    async def abandon(self, error: str | None) -> None:
        for desk in self._desks.values():
            await desk.abandon(error)

    async def close(self) -> None:
        for desk in self._desks.values():
            await desk.stop()
        for place in self._places.values():
            await place.close()

    def _place(self, url: str | None) -> LazyStore:
        if url not in self._places:
            self._places[url] = LazyStore(self._where if url is None else url, self._settings, self._clock)
        return self._places[url]


@asynccontextmanager
async def open_session(
    where: str | Store | None = None,
    *,
    settings: Settings | None = None,
    clock: Clock | None = None,
    origin: Origin | None = None,
) -> AsyncIterator[MachineSession]:
    """A session over a store (a URL, an open one, or the settings'), for as long as the block lasts."""
    known = settings or load_settings(os.environ)
    known = replace(known, store=where) if isinstance(where, str) else known
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        session = MachineSession(where or known.store, known, tasks, clock or SystemClock(), origin or Origin())
        try:
            yield session
        except Exception as exc:
            failure = exc  # raised outside the group, so that it comes as it is
        finally:
            await session.close()
    if failure is not None:
        raise failure


def new_worker_id(pool_id: str) -> str:
    """A name no other worker of any pool has (C60)."""
    return f"{pool_id}-machine-{uuid4().hex[:12]}"
