"""A session: the stores, claims, workers and heartbeats that all FlatMachines state machines of a process share."""

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
_LEAST_LEASE = timedelta(seconds=60)  #: shortest lease of a claim that heartbeats renew


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The state machine files and hooks given to this process, which it passes on to the processes that it starts."""

    config: Path | None = None
    machines: Mapping[str, str] = field(default_factory=dict)  #: a machine's name → its file
    hooks: Mapping[str, str] = field(default_factory=dict)  #: a hook's name → module:factory

    def command(self, machine: str, given: Mapping[str, Any], execution_id: str, parent: str | None) -> tuple[str, ...]:
        """Return the command line that runs the state machine named ``machine`` in a separate process."""
        config = ("--config", str(self.config)) if self.config else ()
        machines = [f"--machines={name}={file}" for name, file in self.machines.items()]
        hooks = [f"--hooks={name}={factory}" for name, factory in self.hooks.items()]
        ids = ("--execution-id", execution_id, *(("--parent-id", parent) if parent else ()))
        runner = (sys.executable, "-m", _MODULE, *config, "--machine", machine)
        return (*runner, *machines, *hooks, "--input", dumps(given), *ids)


class PoolClaims:
    """Lets workers of this process claim jobs (backend ``work``), register (backend ``registration``) and send heartbeats."""

    def __init__(
        self, work: DrumbeatWorkBackend, registration: DrumbeatRegistrationBackend, tasks: asyncio.TaskGroup, clock: Clock
    ) -> None:
        self.work = work
        self.registration = registration
        self.clock = clock
        self._tasks = tasks
        self._heartbeats: dict[str, MachineHeartbeat] = {}

    async def enroll(self, worker_id: str, pool_id: str, capabilities: Any, every: timedelta | None) -> str:
        """Register a worker; if ``every`` is given, send its heartbeats in the background. Returns its status."""
        if every is not None:
            await self.registration.place.allow_slower_heartbeats(pool_id, thresholds_for(every))
            self.work.lease = max(thresholds_for(every).lost_after, _LEAST_LEASE)
        given = PoolWorkerRegistration(
            worker_id=worker_id, pid=os.getpid(), capabilities=list(capabilities or ()), pool_id=pool_id
        )
        record = await self.registration.register(given)
        if (holder := self.registration.holder(worker_id)) is not None:
            self.work.register(holder)
        if every is not None and worker_id not in self._heartbeats:
            self._heartbeats[worker_id] = heartbeat_for(self._tasks, self.clock, self.registration, self.work, worker_id, every)
        status: str = record.status
        return status

    async def heartbeat(self, worker_id: str) -> None:
        """Send a heartbeat and renew the worker's claims. Raises KeyError if the worker has ended or was marked lost."""
        await self.registration.heartbeat(worker_id)
        await self.work.renew(worker_id)

    async def deregister(self, worker_id: str, status: str, error: str | None = None) -> None:
        """Stop a worker's heartbeats and end it with this status. If the worker has ended or was marked lost, only log that."""
        if heartbeat := self._heartbeats.pop(worker_id, None):
            await heartbeat.stop()
        try:
            await self.registration.update_status(worker_id, status, error)
        except Refused as exc:
            log.warning("could not set the status of worker %s to %s; its row is unchanged: %s", worker_id, status, exc)

    async def fail(self, worker_id: str, error: str) -> None:
        """After a state machine failed: fail all jobs of its worker, and set the worker's status to error."""
        await self.work.settle_all(worker_id, AttemptOutcome.FAILED, error)
        if worker_id in self.registration.own():
            await self.deregister(worker_id, "error", error)

    async def abandon(self, error: str | None) -> None:
        """Give up the claimed jobs and end the workers. With ``error``, jobs and workers fail; else jobs are queued again."""
        for worker_id in self.work.holders() | self.registration.own():
            if error is not None:
                await self.fail(worker_id, error)
                continue
            await self.work.settle_all(worker_id, AttemptOutcome.RELEASED, None)
            if worker_id in self.registration.own():
                await self.deregister(worker_id, "terminated")

    async def stop(self) -> None:
        for heartbeat in self._heartbeats.values():
            await heartbeat.stop()


class MachineSession:
    """The connections to stores that this process's state machines use. All hooks share them, so that one hook can complete
    a job that another hook has claimed."""

    def __init__(self, where: str | Store, settings: Settings, tasks: asyncio.TaskGroup, clock: Clock, origin: Origin) -> None:
        self.origin = origin
        self._where = where
        self._settings = settings
        self._tasks = tasks
        self._clock = clock
        self._places: dict[str | None, LazyStore] = {}
        self._backends: dict[tuple[str | None, str | None], PoolClaims] = {}

    def backends(self, work: str | None = None, registration: str | None = None) -> PoolClaims:
        """Return the backends for jobs (``work``) and for workers (``registration``) on the stores with these URLs.

        ``registration`` defaults to ``work``, and ``work`` to the store on which this session was opened.
        """
        key = (work, registration or work)
        if key not in self._backends:
            self._backends[key] = PoolClaims(
                DrumbeatWorkBackend(self._place(key[0])),
                DrumbeatRegistrationBackend(self._place(key[1])),
                self._tasks,
                self._clock,
            )
        return self._backends[key]

    def all_backends(self) -> tuple[PoolClaims, ...]:
        """Return all backends that were used so far."""
        return tuple(self._backends.values())

    async def abandon(self, error: str | None) -> None:
        for backends in self._backends.values():
            await backends.abandon(error)

    async def close(self) -> None:
        for backends in self._backends.values():
            await backends.stop()
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
    """Open a session on a store: a URL, an open store or, by default, the store of the settings."""
    loaded = settings or load_settings(os.environ)
    loaded = replace(loaded, store=where) if isinstance(where, str) else loaded
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        session = MachineSession(where or loaded.store, loaded, tasks, clock or SystemClock(), origin or Origin())
        try:
            yield session
        except Exception as exc:
            failure = exc  # raised outside the group, so that it is not wrapped in an ExceptionGroup
        finally:
            await session.close()
    if failure is not None:
        raise failure


def new_worker_id(pool_id: str) -> str:
    """Return a new worker id, which is unique in all pools."""
    return f"{pool_id}-machine-{uuid4().hex[:12]}"
