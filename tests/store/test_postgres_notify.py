"""Whoever waits is told within the statement that has the news, now and then, and once more at the end."""

import asyncio
from typing import Any

import pytest

from drumbeat.core.pool import PoolId
from drumbeat.store.sql import postgres_notify
from drumbeat.store.sql.database import Rows, Values
from drumbeat.store.sql.postgres_notify import PostgresNotify, channel_of

POOL = PoolId("p")
CHANNEL = channel_of("s", POOL)


class Lines:
    """A database that notes which channels were told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def listener(self) -> Any:
        return None

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
