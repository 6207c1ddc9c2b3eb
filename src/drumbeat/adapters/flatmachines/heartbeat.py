"""A worker's heartbeat while its machine is at work, if it can from a thread: a state that computes must not starve it."""

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
    """Beats until it is stopped, or its worker is given up."""

    async def stop(self) -> None: ...


async def beat(registration: DrumbeatRegistrationBackend, work: DrumbeatWorkBackend, worker_id: str) -> bool:
    """A heartbeat, and the worker's claims renewed. False once it was given up."""
    try:
        await registration.heartbeat(worker_id)
        await work.renew(worker_id)
    except KeyError:
        return False
    except DrumbeatError as exc:
        log.warning("a heartbeat of %s was missed: %s", worker_id, exc)
    return True


class LoopHeartbeat:
    """Beats from the machine's own event loop: for a store that was given open, and so belongs to it."""

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
        self._task = tasks.create_task(self._live(worker_id, every), name=f"beat-{worker_id}")

    async def stop(self) -> None:
        self._task.cancel()

    async def _live(self, worker_id: str, every: timedelta) -> None:
        await self._clock.sleep(every)
        while await beat(self._registration, self._work, worker_id):
            await self._clock.sleep(every)


class ThreadHeartbeat:
    """Beats from a thread with an event loop and connections of its own."""

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
            asyncio.run(self._live())
        except DrumbeatError:
            log.exception("nobody beats for worker %s any more: it will look silent", self._worker_id)

    async def _live(self) -> None:
        async with self._registration.twin() as registration, self._work.twin() as work:
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
    """The heart these stores allow: those that another connection can reach are beaten from a thread."""
    if registration.place.is_reachable and work.place.is_reachable:
        return ThreadHeartbeat(registration, work, worker_id, every)
    return LoopHeartbeat(tasks, clock, registration, work, worker_id, every)
