"""Sends heartbeats while a state machine runs, from a thread if possible, so that a long computation does not delay them."""

import asyncio
import logging
from datetime import timedelta
from threading import Event, Thread
from typing import Protocol

from drumbeat.adapters.flatmachines.registration import DrumbeatRegistrationBackend
from drumbeat.adapters.flatmachines.work import DrumbeatWorkBackend
from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError

log = logging.getLogger(__name__)


class MachineHeartbeat(Protocol):
    """Sends a worker's heartbeats until it is stopped or the worker is marked lost."""

    async def stop(self) -> None: ...


async def beat(registration: DrumbeatRegistrationBackend, work: DrumbeatWorkBackend, worker_id: str) -> bool:
    """Send a heartbeat and renew the worker's claims. Returns False if the worker has ended or was marked lost."""
    try:
        await registration.heartbeat(worker_id)
        await work.renew(worker_id)
    except KeyError:
        return False
    except DrumbeatError as exc:
        log.warning("failed to send a heartbeat of worker %s: %s; trying again at the next interval", worker_id, exc)
    return True


class LoopHeartbeat:
    """Sends heartbeats from the state machine's event loop, because an already open store can only be used in that loop."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        registration: DrumbeatRegistrationBackend,
        work: DrumbeatWorkBackend,
        worker_id: str,
        every: timedelta,
    ) -> None:
        self._clock = clock
        self._registration, self._work = registration, work
        self._task = tasks.create_task(self._beat_until_lost(worker_id, every), name=f"beat-{worker_id}")

    async def stop(self) -> None:
        self._task.cancel()

    async def _beat_until_lost(self, worker_id: str, every: timedelta) -> None:
        await self._clock.sleep(every)
        while await beat(self._registration, self._work, worker_id):
            await self._clock.sleep(every)


class ThreadHeartbeat:
    """Sends heartbeats from a thread with a separate event loop and separate connections."""

    def __init__(
        self, registration: DrumbeatRegistrationBackend, work: DrumbeatWorkBackend, worker_id: str, every: timedelta
    ) -> None:
        self._registration, self._work = registration, work
        self._worker_id, self._every = worker_id, every
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"beat-{worker_id}", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            asyncio.run(self._beat_until_stopped())
        except DrumbeatError:
            log.exception("the heartbeat thread of worker %s failed; the worker will be marked lost", self._worker_id)

    async def _beat_until_stopped(self) -> None:
        async with self._registration.clone() as registration, self._work.clone() as work:
            while not await asyncio.to_thread(self._stopping.wait, self._every.total_seconds()):
                if not await beat(registration, work, self._worker_id):
                    return


def heartbeat_for(
    tasks: asyncio.TaskGroup,
    clock: Clock,
    registration: DrumbeatRegistrationBackend,
    work: DrumbeatWorkBackend,
    worker_id: str,
    every: timedelta,
) -> MachineHeartbeat:
    """Start sending heartbeats: from a thread if the stores can be opened a second time, otherwise in the event loop."""
    if registration.place.can_be_cloned and work.place.can_be_cloned:
        return ThreadHeartbeat(registration, work, worker_id, every)
    return LoopHeartbeat(tasks, clock, registration, work, worker_id, every)
