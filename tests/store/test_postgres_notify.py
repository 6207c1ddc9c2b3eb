"""Whoever waits is told within the statement that has the news, now and then, and once more at the end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.pool import PoolId
from drumbeat.store.sql import postgres_notify
from drumbeat.store.sql.database import Rows, Values
from drumbeat.store.sql.postgres_notify import PostgresNotify, channel_of

POOL = PoolId("p")
CHANNEL = channel_of("s", POOL)


class Listener:
    """A connection that listens. ``fault``: the error of its next calls."""

    def __init__(self) -> None:
        self.channels: list[str] = []
        self.fault: Exception | None = None
        self.closed = False
        self._on_end: list[Callable[[object], None]] = []

    def is_closed(self) -> bool:
        return self.closed

    def add_termination_listener(self, callback: Callable[[object], None]) -> None:
        self._on_end.append(callback)

    def remove_termination_listener(self, callback: Callable[[object], None]) -> None:
        self._on_end.remove(callback)

    async def add_listener(self, channel: str, callback: object) -> None:
        await self.execute("LISTEN")
        self.channels.append(channel)

    async def execute(self, text: str) -> None:
        if self.fault is not None:
            raise self.fault

    def terminate(self) -> None:
        self.closed = True
        for callback in self._on_end:
            callback(self)


class Lines:
    """A database that notes which channels were told. ``listeners``: what it gives to those who ask to listen, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.listeners: list[Listener | Exception | None] = []

    async def listener(self) -> Any:
        found = self.listeners.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def call_driver(self, call: Awaitable[object]) -> None:
        try:
            await call
        except OSError as exc:
            raise StoreUnavailable(str(exc)) from exc

    async def write(self, query: str, values: Values) -> Rows:
        assert query == "notify"
        self.told.append(values["channel"])
        return ()


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
async def notifier(lines: Lines) -> PostgresNotify:
    return PostgresNotify(lines, "s")


async def test_of_many_words_at_once_the_first_is_said_at_once_and_one_more_later(
    notifier: PostgresNotify, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_notify, "QUIET", 60.0)
    words = [notifier.channel_to_notify(POOL) for _ in range(5)]

    await notifier.close()

    assert words == [CHANNEL, None, None, None, None]
    assert lines.told == [CHANNEL]


async def test_a_word_that_was_put_off_is_said_within_the_next_statement_after_its_moment(
    notifier: PostgresNotify, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_notify, "QUIET", 0.0)
    first = notifier.channel_to_notify(POOL)
    monkeypatch.setattr(postgres_notify, "QUIET", 60.0)
    again, put_off = notifier.channel_to_notify(POOL), notifier.channel_to_notify(POOL)
    notifier._next[CHANNEL] = 0.0

    said = notifier.channel_to_notify(POOL)
    await notifier.close()

    assert (first, again, put_off, said) == (CHANNEL, CHANNEL, None, CHANNEL)
    assert lines.told == []


async def test_what_a_failed_statement_was_to_say_is_said_after_all(notifier: PostgresNotify, lines: Lines) -> None:
    word = notifier.channel_to_notify(POOL)

    notifier.notify_later(word)
    notifier.notify_later(None)
    async with asyncio.timeout(60):
        while not lines.told:
            await asyncio.sleep(0)

    assert lines.told == [CHANNEL]


async def is_live(notifier: PostgresNotify, pool_id: PoolId = POOL) -> bool:
    async with notifier.listening(pool_id) as subscription:
        return subscription.live


async def test_who_cannot_listen_polls_and_listens_again_later(
    notifier: PostgresNotify, lines: Lines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first, second = Listener(), Listener()
    first.fault = ConnectionResetError("cut off")
    lines.listeners = [StoreUnavailable("too many connections"), first, second]

    live = [await is_live(notifier) for _ in range(3)]
    monkeypatch.setattr(postgres_notify, "RETRY_AFTER", 0.0)
    notifier._retry_at = 0.0
    live += [await is_live(notifier) for _ in range(3)]

    assert live == [False, False, False, False, True, True]
    assert (lines.listeners, first.closed, second.channels) == ([], True, [CHANNEL])
    assert [record.getMessage() for record in caplog.records] == [
        "cannot be notified of new jobs, so polling for them and listening again later: too many connections",
        "notified of new jobs again",
    ]


async def test_a_connection_that_was_cut_silently_is_replaced(
    notifier: PostgresNotify, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_notify, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(postgres_notify, "CHECK_AFTER", 0.0)
    first, second = Listener(), Listener()
    lines.listeners = [first, second]
    async with notifier.listening(POOL) as waiting:
        first.fault = TimeoutError("no answer")

        live = [await is_live(notifier, PoolId("q")) for _ in range(2)]

        assert waiting.notified.is_set(), "it must look and listen again"
    assert (live, first.closed) == ([False, True], True)
    assert {*second.channels} == {CHANNEL, channel_of("s", PoolId("q"))}


async def test_behind_a_pooler_everybody_polls(notifier: PostgresNotify, lines: Lines) -> None:
    lines.listeners = [None, None]

    assert not await is_live(notifier)
    assert not await is_live(notifier)


async def test_a_word_that_fails_at_the_end_keeps_nobody_from_closing(
    notifier: PostgresNotify, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    lines.listeners = [listener]
    await is_live(notifier)

    async def fail(query: str, values: Values) -> Rows:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(lines, "write", fail)
    notifier.channel_to_notify(POOL)
    notifier.channel_to_notify(POOL)

    await notifier.close()

    assert listener.closed
