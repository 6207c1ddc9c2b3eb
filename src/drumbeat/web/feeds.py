"""One reader for each run or pool that is watched, however many watch it. Whoever is slow gets the newest, never a queue."""

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
FIRST_LOGS = 200  #: what somebody who comes new is told
UNAVAILABLE, GONE, BROKEN = "STORE_UNAVAILABLE", "GONE", "BROKEN"
_MOST_FEEDS = 16  #: whose past is remembered when nobody watches any more

Seen = TypeVar("Seen")
Line = Mapping[str, Any]  #: a log line, with its ``log_id``

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedUpdate(Generic[Seen]):
    """What one look brought. ``data`` is for programs, ``seen`` for pages."""

    event: str
    data: Mapping[str, Any]
    seen: Seen | None = None
    logs: Sequence[Line] = ()
    is_last: bool = False
    must_be_seen: bool = False  #: nobody who watched before it gets the last one without it


@dataclass(slots=True, kw_only=True)
class Frame(Generic[Seen]):
    """A look that was published, numbered. Its text is written once for everybody."""

    n: int
    told: FeedUpdate[Seen]
    logs_before: int  #: the newest log line before its own
    logs_to: int
    _body: bytes | None = None
    _text: bytes | None = None

    @property
    def text(self) -> bytes:
        """With the log lines that came with it."""
        if self._text is None:
            self._text = self.text_with(self.told.logs)
        return self._text

    def text_with(self, logs: Sequence[Line]) -> bytes:
        """With other log lines: of somebody who came new, or missed a frame."""
        if self._body is None:
            self._body = msgspec.json.encode(self.told.data)
        opened = self._body[:-1] + (b"," if len(self._body) > 2 else b"")
        return b"".join(
            (b'{"event":"', self.told.event.encode(), b'","data":', opened, b'"logs":', msgspec.json.encode(logs), b"}}")
        )


class FeedSource(Protocol[Seen]):
    """What is watched."""

    async def look(self) -> Sequence[FeedUpdate[Seen]]:
        """What is new; more than one where none may be passed over. Raises StoreUnavailable, NotFound."""
        ...

    async def catch_up(self) -> bool:
        """Read a little of what went before the first look; whether there is more."""
        ...


class Listener(Generic[Seen]):
    """Somebody who watches."""

    def __init__(self, feed: "Feed[Seen]", logs_to: int | None) -> None:
        self._feed = feed
        self._last: Frame[Seen] | None = None
        self._saw_what_must_be = False
        self._logs_to = logs_to
        self.news = asyncio.Event()

    async def next(self) -> Frame[Seen] | None:
        """The newest frame not taken yet, once there is one; None: there will be no more."""
        while True:
            self.news.clear()
            if (frame := self.take()) is not None:
                return frame
            if self._feed.is_over or (self._last is not None and self._last.told.is_last):
                return None
            await self.news.wait()

    def take(self) -> Frame[Seen] | None:
        """The newest frame, if it was not taken yet. Before the last one comes the one that must be seen."""
        frame = self._feed.newest
        if frame is None or frame is self._last:
            return None
        earlier = self._feed.must_be_seen
        if frame.told.is_last and earlier is not None and self._last is not None and not self._saw_what_must_be:
            frame = earlier
        self._saw_what_must_be = self._saw_what_must_be or frame.told.must_be_seen
        self._last = frame
        return frame

    def text(self, frame: Frame[Seen]) -> bytes:
        """The frame with every log line this listener was not told yet."""
        lines = self.lines(frame)
        return frame.text if lines is frame.told.logs else frame.text_with(lines)

    def lines(self, frame: Frame[Seen]) -> Sequence[Line]:
        """Every log line up to the frame that this listener was not told yet: it may come new, or have missed a frame."""
        known, self._logs_to = self._logs_to, max(frame.logs_to, self._logs_to or 0)
        if known is not None and known == frame.logs_before:
            return frame.told.logs
        return self._feed.logs_after(known, frame.logs_to)

    def close(self) -> None:
        """Watch no more. Harmless to repeat."""
        self._feed.drop(self)


class Feed(Generic[Seen]):
    """One thing that is watched: its reader goes as long as somebody listens."""

    def __init__(self, source: FeedSource[Seen], clock: Clock, group: asyncio.TaskGroup, every: timedelta = EVERY) -> None:
        self.source = source
        self.newest: Frame[Seen] | None = None
        self.must_be_seen: Frame[Seen] | None = None
        self.is_over = False  #: the server is leaving
        self._clock = clock
        self._group = group
        self._every = every
        self._listeners: list[Listener[Seen]] = []
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

    def subscribe(self, logs_to: int | None = None) -> Listener[Seen]:
        """Somebody more. ``logs_to``: the last log line they were told; None: they come new."""
        listener = Listener(self, logs_to)
        self._listeners.append(listener)
        if not self._is_reading and not self.is_over:
            self.newest = self.must_be_seen = None
            self._is_reading = True
            self._group.create_task(self._read())
        return listener

    @contextmanager
    def listening(self, logs_to: int | None = None) -> Iterator[Listener[Seen]]:
        listener = self.subscribe(logs_to)
        try:
            yield listener
        finally:
            listener.close()

    def drop(self, listener: Listener[Seen]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def logs_after(self, known: int | None, to: int) -> list[Line]:
        """Lines that are still remembered, after the last one known; of everything before only the last few."""
        if known is None:
            return [line for line in self._logs if line["log_id"] <= to][-FIRST_LOGS:]
        return [line for line in self._logs if known < line["log_id"] <= to]

    def close(self) -> None:
        """End it: every listener hears that there is no more."""
        self.is_over = True
        for listener in self._listeners:
            listener.news.set()

    def publish(self, told: FeedUpdate[Seen]) -> None:
        before = self._logs_to
        fresh = [line for line in told.logs if line["log_id"] > before]
        self._logs.extend(fresh)
        self._logs_to = max([before, *(line["log_id"] for line in fresh)])
        self._count += 1
        self.newest = Frame(n=self._count, told=told, logs_before=before, logs_to=self._logs_to)
        if told.must_be_seen:
            self.must_be_seen = self.newest
        for listener in self._listeners:
            listener.news.set()

    async def _read(self) -> None:
        try:
            while self._listeners and not self.is_over and not self._has_ended:
                async with asyncio.TaskGroup() as beside:
                    await self._look_on(beside)
        except* Exception as broken:
            log.exception("a feed broke", exc_info=broken)
            self.publish(FeedUpdate(event=BROKEN, data={"message": "the feed broke; the server's log says how"}, is_last=True))
        finally:
            self._is_reading = False

    async def _look_on(self, beside: asyncio.TaskGroup) -> None:
        """Until nobody listens, or there is nothing more to come."""
        catching_up: asyncio.Task[None] | None = None
        while self._listeners and not self.is_over:
            began = self._clock.elapsed()
            if await self._look() and catching_up is None:
                catching_up = beside.create_task(self._catch_up())
            if self._has_ended:
                return
            await self._clock.sleep(max(self._every - (self._clock.elapsed() - began), timedelta()))
        if catching_up is not None:
            catching_up.cancel()

    async def _look(self) -> bool:
        """Whether it could be looked at."""
        try:
            for told in await self.source.look():
                self.publish(told)
        except StoreUnavailable as exc:
            self.publish(FeedUpdate(event=UNAVAILABLE, data={"message": str(exc)}))
            return False
        except NotFound as exc:
            self.publish(FeedUpdate(event=GONE, data={"message": str(exc)}, is_last=True))
            return False
        return True

    async def _catch_up(self) -> None:
        """However often the store is away meanwhile. Half of the time is left to others."""
        while not self.is_over:
            began = self._clock.elapsed()
            try:
                if not await self.source.catch_up():
                    return
            except StoreUnavailable as exc:
                log.warning("what went before could not be read yet: %s", exc)
                await self._clock.sleep(self._every)
            except DrumbeatError as exc:
                log.warning("what went before cannot be read: %s", exc)
                return
            await self._clock.sleep(self._clock.elapsed() - began)


@dataclass(slots=True, kw_only=True)
class Feeds:
    """Every feed of a server, by name. The last few are remembered, so that a page that is loaded again need not read all."""

    clock: Clock
    group: asyncio.TaskGroup
    _feeds: OrderedDict[str, Feed[Any]] = field(default_factory=OrderedDict)
    _is_over: bool = False

    def get(self, name: str, make: Callable[[], FeedSource[Seen]]) -> Feed[Seen]:
        """The feed of this name; made if there is none."""
        feed = self._feeds.get(name)
        if feed is None:
            feed = self._feeds[name] = Feed(make(), self.clock, self.group)
            feed.is_over = self._is_over
            self._forget_some()
        self._feeds.move_to_end(name)
        return feed

    def close(self) -> None:
        """The server leaves: streams end."""
        self._is_over = True
        for feed in self._feeds.values():
            feed.close()

    def _forget_some(self) -> None:
        idle = [name for name, feed in self._feeds.items() if not feed.listeners]
        for name in idle[: max(len(self._feeds) - _MOST_FEEDS, 0)]:
            del self._feeds[name]
