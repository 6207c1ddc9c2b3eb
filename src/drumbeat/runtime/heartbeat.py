"""A worker's pulse: the one task that talks to the store, in every state of the worker's life."""

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
from drumbeat.store.interface import Heartbeat, HeartbeatReply, Joining, Store, WorkerChange

log = logging.getLogger(__name__)


class HeartbeatSource(Protocol):
    """Whose pulse it is."""

    def heartbeat(self, sample: Sample | None) -> Heartbeat:
        """A sign of life as of now."""
        ...

    def take_sample(self) -> None:
        """End an interval, if there is work to measure."""
        ...

    def hear(self, orders: HeartbeatReply) -> None:
        """Obey every event; the next heartbeat says it has read them."""
        ...


class _Move(NamedTuple):
    to: WorkerStatus
    reason: str


class HeartbeatLoop:
    """Moves, heartbeats, samples and events, one call at a time.

    A beat is due every ``every``, and at once after a move. While the store is away intervals are still cut, and what was
    measured and moved meanwhile is sent, in order, once it is back.
    """

    def __init__(
        self,
        store: Store,
        identity: Joining,
        every: timedelta,
        body: HeartbeatSource,
        *,
        clock: Clock,
        line: StoreConnection,
        samples: Sampling,
    ) -> None:
        self._store = store
        self._identity = identity
        self._every = every
        self._body = body
        self._clock = clock
        self._line = line
        self._samples = samples
        self._moves: deque[_Move] = deque()
        self._nudge = asyncio.Event()

    async def join(self) -> Worker:
        """Take our row. Raises StoreUnavailable after too long a silence, WorkerGone, NotFound."""
        return await self._line.insist(lambda: self._store.membership.join(self._identity))

    def tell(self, to: WorkerStatus, reason: str) -> None:
        """Have a move written as soon as the store takes it."""
        self._moves.append(_Move(to, reason))
        self._nudge.set()

    def hurry(self) -> None:
        """Beat now: there may be orders."""
        self._nudge.set()

    async def run(self) -> None:
        """Beat until cancelled. Raises WorkerGone when our row is closed, StoreUnavailable after too long a silence."""
        due = self._clock.elapsed()
        nudged = False
        while True:
            now = self._clock.elapsed()
            if is_due := now >= due:
                self._body.take_sample()
                due = next_due(due, self._every, now)
            if (is_due or nudged or self._line.is_silent) and not self._line.retry_in:
                await self._beat()
            nudged = await pause(self._clock, self._rest(due), self._nudge)
            self._nudge.clear()

    def _rest(self, due: timedelta) -> timedelta:
        rest = due - self._clock.elapsed()
        return min(rest, self._line.retry_in) if self._line.is_silent else rest

    async def _beat(self) -> None:
        try:
            await self._write_moves()
            await self._exchange()
            await self._send_waiting()
        except StoreUnavailable as exc:
            if self._line.lost:
                raise
            log.warning("%s; trying again in %.0f s", exc, self._line.retry_in.total_seconds())

    async def _write_moves(self) -> None:
        while self._moves:
            to, reason = self._moves[0]
            try:
                await self._line.ask(self._move(to, reason))
            except IllegalMove as exc:
                log.warning("our row has moved without us: %s", exc)
            self._moves.popleft()

    async def _exchange(self) -> None:
        """Beat, with the newest sample, and again as long as there are more events."""
        sample = self._samples.newest
        while True:
            heartbeat = self._body.heartbeat(sample)
            orders = await self._line.ask(self._store.membership.beat(heartbeat))
            if sample is not None:
                self._samples.sent([sample])
            self._body.hear(orders)
            if not orders.more:
                return
            sample = None

    async def _send_waiting(self) -> None:
        waiting = self._samples.waiting
        if waiting:
            me = self._identity
            await self._line.ask(self._store.samples.append(me.pool_id, me.worker_id, me.instance, waiting))
            self._samples.sent(waiting)

    async def leave(self, to: WorkerStatus, reason: str, change: WorkerChange) -> None:
        """The last words: what was still to be sent, and the end. One try."""
        sample = self._samples.newest
        await self._store.membership.beat(self._body.heartbeat(sample))
        self._samples.sent([sample] if sample else [])
        await self._send_waiting()
        await self._move(to, reason, change)

    async def _move(self, to: WorkerStatus, reason: str, change: WorkerChange | None = None) -> Worker:
        me = self._identity
        return await self._store.membership.move(me.pool_id, me.worker_id, me.instance, to, reason, change)
