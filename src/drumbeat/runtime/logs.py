"""Logs that outlive their process: shipped to the store beside the work, never in its way."""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
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
from drumbeat.runtime.timeouts import cut, describe, pause, with_timeout
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

CAPACITY = 10_000
FLUSH_EVERY = timedelta(seconds=5)
BATCH = 500
_ANSWER_WITHIN = timedelta(seconds=5)
_LONGEST = LONGEST_MESSAGE - len("...(truncated)")
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@dataclass(frozen=True, slots=True)
class _Said:
    line: NewLog
    when: timedelta


class StoreLogHandler(logging.Handler):
    """Keeps lines until they are fetched, from whatever thread they come; when full, the oldest go, and are counted."""

    def __init__(self, clock: Clock, worker_id: WorkerId | None = None, capacity: int = CAPACITY) -> None:
        super().__init__(logging.INFO)
        self._clock = clock
        self._worker_id = worker_id
        self._capacity = capacity
        self._said: deque[_Said] = deque()
        self._guard = threading.Lock()
        self._dropped = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.urgent = asyncio.Event()  #: a WARNING or worse is waiting

    def wake(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Where ``urgent`` is waited for; None when it is no longer."""
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == log.name:
            return
        try:
            said = _Said(self._line(record), self._clock.elapsed())
        except Exception:
            self.handleError(record)
            return
        self._keep(said)
        if record.levelno >= logging.WARNING:
            self._hasten()

    def _line(self, record: logging.LogRecord) -> NewLog:
        return NewLog(
            level=record.levelname,
            logger=record.name,
            message=cut(record.getMessage(), _LONGEST),
            worker_id=self._worker_id,
            details=_details(record),
        )

    def _keep(self, said: _Said) -> None:
        with self._guard:
            if len(self._said) >= self._capacity:
                self._said.popleft()
                self._dropped += 1
            self._said.append(said)

    def _hasten(self) -> None:
        if (loop := self._loop) is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self.urgent.set)

    def fetch(self, most: int) -> Sequence[_Said]:
        """The oldest lines, which are then no longer kept here, and a line on how many were dropped before them."""
        with self._guard:
            dropped, self._dropped = self._dropped, 0
            lines = [self._said.popleft() for _ in range(min(most, len(self._said)))]
        return [self._confession(dropped), *lines] if dropped else lines

    def _confession(self, dropped: int) -> _Said:
        message = f"{dropped} log lines were dropped before this one: {self._capacity} were waiting for the store already"
        line = NewLog(level="WARNING", logger=log.name, message=message, worker_id=self._worker_id)
        return _Said(line, self._clock.elapsed())


def _details(record: logging.LogRecord) -> Mapping[str, Any] | None:
    """What was given beside the message, and the traceback."""
    given = {name: value for name, value in vars(record).items() if name not in _USUAL}
    details: dict[str, Any] = msgspec.to_builtins(given, str_keys=True, enc_hook=repr)
    if record.exc_info:
        details["exception"] = cut(logging.Formatter().formatException(record.exc_info), _LONGEST)
    return details or None


class LogShipper:
    """``async with LogShipper(…):`` what ``logger`` says goes to the store too: INFO every 5 s, WARNING and up at once.

    While the store is away lines are kept, as many as the handler holds. Failing to ship is said on this module's own logger,
    which is never shipped. The logger must let INFO through; this does not change its level.
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
    ) -> None:
        self._store = store
        self._pool_id = pool_id
        self._clock = clock
        self._logger = logger or logging.getLogger("drumbeat")
        self.handler = StoreLogHandler(clock, worker_id, capacity)
        self._group = asyncio.TaskGroup()
        self._leaving = asyncio.Event()
        self._unsent: Sequence[_Said] = ()
        self._patience = FIRST_PAUSE

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self.handler.wake(asyncio.get_running_loop())
        self._logger.addHandler(self.handler)
        self._group.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logger.removeHandler(self.handler)
        self.handler.wake(None)
        self._leaving.set()
        self.handler.urgent.set()
        await self._group.__aexit__(None, None, None)

    async def _run(self) -> None:
        while True:
            await pause(self._clock, FLUSH_EVERY, self.handler.urgent)
            self.handler.urgent.clear()
            shipped = await self._ship()
            if self._leaving.is_set():
                return
            if not shipped:
                await pause(self._clock, self._patience, self._leaving)
            self._patience = FIRST_PAUSE if shipped else min(self._patience * 2, LONGEST_PAUSE)

    async def _ship(self) -> bool:
        """Send all there is, in batches; False if the store does not answer. What it refuses is dropped: it always will."""
        while lines := self._unsent or self.handler.fetch(BATCH):
            self._unsent = lines
            try:
                await with_timeout(self._clock, _ANSWER_WITHIN, self._store.logs.append(self._pool_id, self._aged(lines)))
            except StoreUnavailable as exc:
                log.warning("%d log lines wait for the store: %s", len(lines), exc)
                return False
            except Exception as exc:
                log.error("%d log lines are dropped, the store refuses them: %s", len(lines), describe(exc))
            self._unsent = ()
        return True

    def _aged(self, lines: Sequence[_Said]) -> Sequence[NewLog]:
        now = self._clock.elapsed()
        return [replace(said.line, age=now - said.when) for said in lines]
