"""Live updates of runs and pools: each update is read once for all viewers (listeners). A slow viewer skips old updates."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, NotFound, StoreUnavailable

EVERY = timedelta(seconds=1)
KEPT_LOGS = 1000
FIRST_LOGS = 200  #: log lines that a new listener gets
UNAVAILABLE, GONE, BROKEN = "STORE_UNAVAILABLE", "GONE", "BROKEN"
_MOST_FEEDS = 16  #: beyond this number, feeds without listeners are dropped

T = TypeVar("T")
Line = Mapping[str, Any]  #: a log line, with its ``log_id``

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedUpdate(Generic[T]):
    """One live update of a run or pool: its new state as ``data`` for API clients and as ``seen`` for pages."""

    event: str
    data: Mapping[str, Any]
    seen: T | None = None
    logs: Sequence[Line] = ()
    is_last: bool = False
    must_be_seen: bool = False  #: even a slow listener gets this update, before the last one


@dataclass(slots=True, kw_only=True)
class Frame(Generic[T]):
    """A live update with its sequence number. It is encoded as JSON only once for all listeners (viewers)."""

    n: int
    told: FeedUpdate[T]
    logs_before: int  #: id of the newest log line in earlier frames
    logs_to: int  #: id of the newest log line in this frame or earlier
    _body: bytes | None = None
    _text: bytes | None = None

    @property
    def text(self) -> bytes:
        """The update as JSON, with the log lines that came with it."""
        if self._text is None:
            self._text = self.text_with(self.told.logs)
        return self._text

    def text_with(self, logs: Sequence[Line]) -> bytes:
        """Return the update as JSON with ``logs`` instead of its log lines, for a listener that is new or missed updates."""
        if self._body is None:
            self._body = msgspec.json.encode(self.told.data)
        opened = self._body[:-1] + (b"," if len(self._body) > 2 else b"")
        return b"".join(
            (b'{"event":"', self.told.event.encode(), b'","data":', opened, b'"logs":', msgspec.json.encode(logs), b"}}")
        )


class FeedSource(Protocol[T]):
    """Reads updates of one run or pool from the store."""

    async def read(self) -> Sequence[FeedUpdate[T]]:
        """Return the updates to publish now; the last one is the current state. Raises StoreUnavailable, NotFound."""
        ...

    async def catch_up(self) -> bool:
        """Read one part of the data from before the first ``read``. Returns whether more of it is left to read."""
        ...


class Listener(Generic[T]):
    """One viewer of a feed: a WebSocket, an event stream or an open page."""

    def __init__(self, feed: "Feed[T]", logs_to: int | None) -> None:
        self._feed = feed
        self._last: Frame[T] | None = None
        self._saw_required = False
        self._logs_to = logs_to
        self.changed = asyncio.Event()

    async def next(self) -> Frame[T] | None:
        """Wait for the newest frame that this listener has not taken yet. Returns None if there will be no more."""
        while True:
            self.changed.clear()
            if (frame := self.take()) is not None:
                return frame
            if self._feed.is_over or (self._last is not None and self._last.told.is_last):
                return None
            await self.changed.wait()

    def take(self) -> Frame[T] | None:
        """Return the newest update; None if there is none, or this listener has already taken it. A slow listener that missed
        the ``must_be_seen`` update gets that update before the last one."""
        frame = self._feed.newest
        if frame is None or frame is self._last:
            return None
        earlier = self._feed.must_be_seen
        if frame.told.is_last and earlier is not None and self._last is not None and not self._saw_required:
            frame = earlier
        self._saw_required = self._saw_required or frame.told.must_be_seen
        self._last = frame
        return frame

    def text(self, frame: Frame[T]) -> bytes:
        """Return the frame as JSON, with every log line that this listener did not get yet."""
        lines = self.lines(frame)
        return frame.text if lines is frame.told.logs else frame.text_with(lines)

    def lines(self, frame: Frame[T]) -> Sequence[Line]:
        """Return all log lines up to this frame that the listener did not get yet (it is new, or has missed frames)."""
        known, self._logs_to = self._logs_to, max(frame.logs_to, self._logs_to or 0)
        if known is not None and known == frame.logs_before:
            return frame.told.logs
        return self._feed.logs_after(known, frame.logs_to)

    def close(self) -> None:
        """Stop listening. Safe to call repeatedly."""
        self._feed.drop(self)


class Feed(Generic[T]):
    """The live updates of one run or pool, read from the store as long as there are listeners."""

    def __init__(self, source: FeedSource[T], clock: Clock, group: asyncio.TaskGroup, every: timedelta = EVERY) -> None:
        self.source = source
        self.name = "a run or pool"  #: for log messages
        self.newest: Frame[T] | None = None
        self.must_be_seen: Frame[T] | None = None
        self.is_over = False  #: whether the server is shutting down
        self._clock = clock
        self._group = group
        self._every = every
        self._listeners: list[Listener[T]] = []
        self._logs: deque[Line] = deque(maxlen=KEPT_LOGS)
        self._logs_to = 0
        self._count = 0
        self._is_reading = False

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def _has_ended(self) -> bool:
        return self.newest is not None and self.newest.told.is_last

    def subscribe(self, logs_to: int | None = None) -> Listener[T]:
        """Add a listener. ``logs_to``: id of the last log line that it already has; None if it has none."""
        listener = Listener(self, logs_to)
        self._listeners.append(listener)
        if not self._is_reading and not self.is_over:
            self.newest = self.must_be_seen = None
            self._is_reading = True
            self._group.create_task(self._run())
        return listener

    @contextmanager
    def listening(self, logs_to: int | None = None) -> Iterator[Listener[T]]:
        listener = self.subscribe(logs_to)
        try:
            yield listener
        finally:
            listener.close()

    def drop(self, listener: Listener[T]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def logs_after(self, known: int | None, to: int) -> list[Line]:
        """Return the log lines in memory after id ``known``, up to id ``to``; without ``known`` only the last 200."""
        if known is None:
            return [line for line in self._logs if line["log_id"] <= to][-FIRST_LOGS:]
        return [line for line in self._logs if known < line["log_id"] <= to]

    def close(self) -> None:
        """End the feed (live updates of a run or pool) for all listeners: their ``next`` returns None."""
        self.is_over = True
        for listener in self._listeners:
            listener.changed.set()

    def publish(self, update: FeedUpdate[T]) -> None:
        before = self._logs_to
        fresh = [line for line in update.logs if line["log_id"] > before]
        self._logs.extend(fresh)
        self._logs_to = max([before, *(line["log_id"] for line in fresh)])
        self._count += 1
        self.newest = Frame(n=self._count, told=update, logs_before=before, logs_to=self._logs_to)
        if update.must_be_seen:
            self.must_be_seen = self.newest
        for listener in self._listeners:
            listener.changed.set()

    async def _run(self) -> None:
        try:
            while self._listeners and not self.is_over and not self._has_ended:
                async with asyncio.TaskGroup() as group:
                    await self._read_until_idle(group)
        except* Exception as errors:
            log.exception("live updates of %s failed; its pages stop updating until reloaded", self.name, exc_info=errors)
            self.publish(FeedUpdate(event=BROKEN, data={"message": "live updates failed; see the server's log"}, is_last=True))
        finally:
            self._is_reading = False

    async def _read_until_idle(self, group: asyncio.TaskGroup) -> None:
        """Read and publish updates at intervals, until there are no listeners or the last update was published."""
        catching_up: asyncio.Task[None] | None = None
        while self._listeners and not self.is_over:
            started = self._clock.elapsed()
            if await self._read_once() and catching_up is None:
                catching_up = group.create_task(self._catch_up())
            if self._has_ended:
                return
            await self._clock.sleep(max(self._every - (self._clock.elapsed() - started), timedelta()))
        if catching_up is not None:
            catching_up.cancel()

    async def _read_once(self) -> bool:
        """Read and publish the current state. Returns whether it could be read."""
        try:
            for update in await self.source.read():
                self.publish(update)
        except StoreUnavailable as exc:
            self.publish(FeedUpdate(event=UNAVAILABLE, data={"message": str(exc)}))
            return False
        except NotFound as exc:
            self.publish(FeedUpdate(event=GONE, data={"message": str(exc)}, is_last=True))
            return False
        return True

    async def _catch_up(self) -> None:
        """Read all data from before the first ``read``, in parts with pauses. Retries while the store is unavailable."""
        while not self.is_over:
            started = self._clock.elapsed()
            try:
                if not await self.source.catch_up():
                    return
            except StoreUnavailable as exc:
                log.warning("failed to read the earlier data of %s: %s; retrying", self.name, exc)
                await self._clock.sleep(self._every)
            except DrumbeatError as exc:
                log.warning("failed to read the earlier data of %s: %s; only new data is shown", self.name, exc)
                return
            await self._clock.sleep(self._clock.elapsed() - started)


@dataclass(slots=True, kw_only=True)
class Feeds:
    """A server's feeds (live updates of a run or pool) by name. Recent feeds stay in memory, so that a page reloads fast."""

    clock: Clock
    group: asyncio.TaskGroup
    _feeds: OrderedDict[str, Feed[Any]] = field(default_factory=OrderedDict)
    _is_over: bool = False

    def get(self, name: str, make: Callable[[], FeedSource[T]]) -> Feed[T]:
        """Return the feed with this name; create it if there is none."""
        feed = self._feeds.get(name)
        if feed is None:
            self._drop_idle(_MOST_FEEDS - 1)
            feed = self._feeds[name] = Feed(make(), self.clock, self.group)
            feed.name, feed.is_over = name, self._is_over
        self._feeds.move_to_end(name)
        return feed

    def close(self) -> None:
        """End all streams, because the server is shutting down."""
        self._is_over = True
        for feed in self._feeds.values():
            feed.close()

    def _drop_idle(self, most: int) -> None:
        """Drop feeds without listeners, longest unused first, until at most ``most`` feeds are left."""
        idle = [name for name, feed in self._feeds.items() if not feed.listeners]
        for name in idle[: max(len(self._feeds) - most, 0)]:
            del self._feeds[name]
