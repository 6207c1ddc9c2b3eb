"""Sends log lines to the store in the background, without blocking the work."""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import msgspec

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.log import LONGEST_MESSAGE, NewLog
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.runtime.store_connection import FIRST_PAUSE, LONGEST_PAUSE
from drumbeat.runtime.timeouts import describe, pause, truncate, with_timeout
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

CAPACITY = 10_000
FLUSH_EVERY = timedelta(seconds=5)
BATCH = 500
_ANSWER_WITHIN = timedelta(seconds=5)
_LONGEST = LONGEST_MESSAGE - len("...(truncated)")
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@dataclass(frozen=True, slots=True)
class _PendingLine:
    line: NewLog
    logged_at: timedelta


class StoreLogHandler(logging.Handler):
    """Buffers log lines from any thread for the LogShipper. When full, it drops the oldest lines and counts them."""

    def __init__(self, clock: Clock, worker_id: WorkerId | None = None, capacity: int = CAPACITY) -> None:
        super().__init__(logging.INFO)
        self._clock = clock
        self._worker_id = worker_id
        self._capacity = capacity
        self._pending: deque[_PendingLine] = deque()
        self._guard = threading.Lock()
        self._dropped = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.urgent = asyncio.Event()  #: set when a line of level WARNING or above is waiting

    def set_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Set the event loop in which a line of level WARNING or above sets the event ``urgent``; None: no line sets it."""
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == log.name:
            return
        try:
            pending = _PendingLine(self._line(record), self._clock.elapsed())
        except Exception:
            self.handleError(record)
            return
        self._keep(pending)
        if record.levelno >= logging.WARNING:
            self._wake_shipper()

    def _line(self, record: logging.LogRecord) -> NewLog:
        return NewLog(
            level=record.levelname,
            logger=record.name,
            message=truncate(record.getMessage(), _LONGEST),
            worker_id=self._worker_id,
            details=_details(record),
        )

    def _keep(self, pending: _PendingLine) -> None:
        with self._guard:
            if len(self._pending) >= self._capacity:
                self._pending.popleft()
                self._dropped += 1
            self._pending.append(pending)

    def _wake_shipper(self) -> None:
        if (loop := self._loop) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is already closed
                loop.call_soon_threadsafe(self.urgent.set)

    def fetch(self, most: int) -> Sequence[_PendingLine]:
        """Remove and return the oldest lines. If lines were dropped, the first returned line says how many."""
        with self._guard:
            dropped, self._dropped = self._dropped, 0
            lines = [self._pending.popleft() for _ in range(min(most, len(self._pending)))]
        return [self._dropped_notice(dropped), *lines] if dropped else lines

    def _dropped_notice(self, dropped: int) -> _PendingLine:
        message = f"{dropped} log lines were dropped before this one: {self._capacity} lines were already waiting for the store"
        line = NewLog(level="WARNING", logger=log.name, message=message, worker_id=self._worker_id)
        return _PendingLine(line, self._clock.elapsed())


def _details(record: logging.LogRecord) -> Mapping[str, Any] | None:
    """Return the ``extra`` fields of a log record and its traceback; None if it has neither."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
    details: dict[str, Any] = msgspec.to_builtins(extra, str_keys=True, enc_hook=repr)
    if record.exc_info:
        details["exception"] = truncate(logging.Formatter().formatException(record.exc_info), _LONGEST)
    return details or None


class LogShipper:
    """``async with LogShipper(…):`` sends lines of ``logger`` to the store: INFO every 5 s, WARNING and above at once.

    During a store outage lines are buffered, up to ``capacity``. Errors while sending go to this module's logger, which is
    never sent. The level of ``logger`` is not changed here, so it must allow INFO.
    """

    def __init__(
        self,
        store: Store,
        pool_id: PoolId,
        clock: Clock,
        *,
        worker_id: WorkerId | None = None,
        logger: logging.Logger | None = None,
        capacity: int = CAPACITY,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        """``may_send``: whether lines may still be sent; once it returns False, they are dropped."""
        self._store = store
        self._pool_id = pool_id
        self._clock = clock
        self._may_send = may_send
        self._logger = logger or logging.getLogger("drumbeat")
        self.handler = StoreLogHandler(clock, worker_id, capacity)
        self._group = asyncio.TaskGroup()
        self._closing = asyncio.Event()
        self._unsent: Sequence[_PendingLine] = ()
        self._retry_pause = FIRST_PAUSE

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self.handler.set_loop(asyncio.get_running_loop())
        self._logger.addHandler(self.handler)
        self._group.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logger.removeHandler(self.handler)
        self.handler.set_loop(None)
        self._closing.set()
        self.handler.urgent.set()
        await self._group.__aexit__(None, None, None)

    async def _run(self) -> None:
        while True:
            await pause(self._clock, FLUSH_EVERY, self.handler.urgent)
            self.handler.urgent.clear()
            shipped = await self._ship()
            if self._closing.is_set():
                return
            if not shipped:
                await pause(self._clock, self._retry_pause, self._closing)
            self._retry_pause = FIRST_PAUSE if shipped else min(self._retry_pause * 2, LONGEST_PAUSE)

    async def _ship(self) -> bool:
        """Send all lines in batches; False if the store does not answer. Lines that it refuses are dropped, not retried."""
        while lines := self._unsent or self.handler.fetch(BATCH):
            self._unsent = lines if self._may_send() else ()
            if not self._unsent:
                continue
            try:
                await with_timeout(self._clock, _ANSWER_WITHIN, self._store.logs.append(self._pool_id, self._aged(lines)))
            except StoreUnavailable as exc:
                log.warning("failed to store %d log lines: %s; retrying", len(lines), exc)
                return False
            except Exception as exc:
                log.error("dropped %d log lines, the store refused them: %s", len(lines), describe(exc))
            self._unsent = ()
        return True

    def _aged(self, lines: Sequence[_PendingLine]) -> Sequence[NewLog]:
        now = self._clock.elapsed()
        return [replace(pending.line, age=now - pending.logged_at) for pending in lines]
