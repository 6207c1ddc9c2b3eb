"""A worker's heartbeat task. It runs in every state of the worker, and makes all store calls except those of the workload."""

import asyncio
import logging
from collections import deque
from datetime import timedelta
from typing import NamedTuple, Protocol

from drumbeat.core.clock import Clock
from drumbeat.core.errors import IllegalMove, StoreUnavailable
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.runtime.sampling import Sampling
from drumbeat.runtime.store_connection import StoreConnection
from drumbeat.runtime.timeouts import next_due, pause
from drumbeat.store.interface import Heartbeat, HeartbeatReply, JoinRequest, Store, WorkerChange

log = logging.getLogger(__name__)


class HeartbeatSource(Protocol):
    """Provides the content of a worker's heartbeats, and handles the replies."""

    def heartbeat(self, sample: Sample | None) -> Heartbeat:
        """Return the heartbeat to send now, with ``sample`` (what the worker measured in an interval) if it is not None."""
        ...

    def take_sample(self) -> None:
        """Take a sample of the work since the last one, if there is work to measure."""
        ...

    def handle_reply(self, reply: HeartbeatReply) -> None:
        """Apply every event of the reply; the next heartbeat tells the store that they were read."""
        ...


class _Move(NamedTuple):
    to: WorkerStatus
    reason: str
    change: WorkerChange | None = None


class HeartbeatLoop:
    """Sends state changes, heartbeats and samples, and receives events, one store call at a time.

    A heartbeat is sent every ``every``, and at once after a state change. During a store outage samples are still taken;
    they and the state changes are sent in order once the store answers again.
    """

    def __init__(
        self,
        store: Store,
        identity: JoinRequest,
        every: timedelta,
        source: HeartbeatSource,
        *,
        clock: Clock,
        connection: StoreConnection,
        samples: Sampling,
    ) -> None:
        self._store = store
        self._identity = identity
        self._every = every
        self._source = source
        self._clock = clock
        self._connection = connection
        self._samples = samples
        self._moves: deque[_Move] = deque()
        self._wake = asyncio.Event()

    async def join(self) -> Worker:
        """Join the pool as this worker. Raises WorkerGone, NotFound, and StoreUnavailable after too long an outage."""
        return await self._connection.ask_until_answered(lambda: self._store.membership.join(self._identity))

    def queue_move(self, to: WorkerStatus, reason: str, change: WorkerChange | None = None) -> None:
        """Queue a state change; it is written as soon as the store answers."""
        self._moves.append(_Move(to, reason, change))
        self._wake.set()

    def beat_now(self) -> None:
        """Send a heartbeat at once, because there might be new instructions."""
        self._wake.set()

    async def run(self) -> None:
        """Send heartbeats until cancelled. Raises WorkerGone if this worker's row says that it has ended, or belongs to another
        process; StoreUnavailable after a long outage."""
        due = self._clock.elapsed()
        woken = False
        while True:
            now = self._clock.elapsed()
            if is_due := now >= due:
                self._source.take_sample()
                due = next_due(due, self._every, now)
            if (is_due or woken or self._connection.is_silent) and not self._connection.retry_in:
                await self._beat()
            woken = await pause(self._clock, self._until_next_beat(due), self._wake)
            self._wake.clear()

    def _until_next_beat(self, due: timedelta) -> timedelta:
        rest = due - self._clock.elapsed()
        return min(rest, self._connection.retry_in) if self._connection.is_silent else rest

    async def _beat(self) -> None:
        try:
            await self._write_moves()
            await self._exchange()
            await self._send_waiting()
        except StoreUnavailable as exc:
            if self._connection.lost:
                raise
            log.warning("heartbeat failed: %s; retrying in %.0f s", exc, self._connection.retry_in.total_seconds())

    async def _write_moves(self) -> None:
        while self._moves:
            to, reason, change = self._moves[0]
            try:
                await self._connection.ask(self._move(to, reason, change))
            except IllegalMove as exc:
                log.warning("could not set this worker's status to %s: another process changed it in the store: %s", to, exc)
            self._moves.popleft()

    async def _exchange(self) -> None:
        """Send a heartbeat with the newest sample; send more while the reply says that there are more events."""
        sample = self._samples.newest
        while True:
            heartbeat = self._source.heartbeat(sample)
            reply = await self._connection.ask(self._store.membership.beat(heartbeat))
            if sample is not None:
                self._samples.mark_sent([sample])
            self._source.handle_reply(reply)
            if not reply.more:
                return
            sample = None

    async def _send_waiting(self) -> None:
        waiting = self._samples.waiting
        if waiting:
            me = self._identity
            await self._connection.ask(self._store.samples.append(me.pool_id, me.worker_id, me.instance, waiting))
            self._samples.mark_sent(waiting)

    async def leave(self, to: WorkerStatus, reason: str, change: WorkerChange) -> None:
        """Send the last heartbeat, the samples not yet sent, and the final status. Raises StoreUnavailable, WorkerGone."""
        sample = self._samples.newest
        await self._connection.ask(self._store.membership.beat(self._source.heartbeat(sample)))
        self._samples.mark_sent([sample] if sample else [])
        await self._send_waiting()
        await self._connection.ask(self._move(to, reason, change))

    async def _move(self, to: WorkerStatus, reason: str, change: WorkerChange | None = None) -> Worker:
        me = self._identity
        return await self._store.membership.move(me.pool_id, me.worker_id, me.instance, to, reason, change)
