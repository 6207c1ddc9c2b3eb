"""Connections are kept between uses, and go through the driver's pool where something is wrong or somebody waits."""

import asyncio
from typing import Any

import pytest

from drumbeat.store.sql.postgres_connection_cache import ConnectionCache


class Gone(Exception):
    """The pool has taken a connection back."""


class Outdated(Exception):
    """A statement was prepared before the tables changed."""


class Line:
    """A connection as far as lending goes. It answers with how it was asked, and the text and arguments it was asked with."""

    def __init__(self) -> None:
        self.closed = False
        self.gone = False
        self.prepared: list[str] = []
        self.fault: Exception | None = None  #: what the next prepared statement meets

    def is_closed(self) -> bool:
        if self.gone:
            raise Gone
        return self.closed

    async def fetch(self, text: str, *arguments: object) -> list[Any]:
        return ["whole", text, *arguments]

    async def prepare(self, text: str) -> "Statement":
        self.prepared.append(text)
        return Statement(self, text)


class Statement:
    """A prepared statement, with what lending reaches for in it."""

    def __init__(self, line: Line, text: str) -> None:
        self._state = text
        self._connection = self._protocol = self
        self._line = line

    async def bind_execute(self, state: str, arguments: tuple[Any, ...], *rest: object) -> list[Any]:
        fault, self._line.fault = self._line.fault, None
        if fault is not None:
            raise fault
        return ["prepared", state, *arguments]


class Pool:
    """As many lines as it was given; counts what it is asked."""

    def __init__(self, most: int) -> None:
        self.lines: asyncio.Queue[Line] = asyncio.Queue()
        for _ in range(most):
            self.lines.put_nowait(Line())
        self.asked = 0
        self.closed = False

    async def acquire(self, timeout: float) -> Line:
        self.asked += 1
        return await self.lines.get()

    async def release(self, line: Line) -> None:
        self.lines.put_nowait(Line() if line.closed or line.gone else line)

    async def close(self) -> None:
        self.closed = True


def lending(most: int, *, prepares: bool = True) -> tuple[ConnectionCache, Pool]:
    pool: Any = Pool(most)
    return ConnectionCache(pool, 1.0, Gone, Outdated, prepares=prepares), pool


async def test_the_pool_is_asked_once_for_many_uses() -> None:
    lent, pool = lending(2)

    for _ in range(5):
        async with lent.borrowed():
            pass

    assert pool.asked == 1


@pytest.mark.parametrize("fault", ["closed", "gone"])
async def test_a_connection_that_was_lost_meanwhile_is_never_lent(fault: str) -> None:
    lent, pool = lending(1)
    async with lent.borrowed() as first:
        pass
    setattr(first, fault, True)

    async with lent.borrowed() as second:
        assert second is not first

    assert pool.asked == 2


async def test_a_connection_that_failed_goes_back_to_the_pool() -> None:
    lent, pool = lending(1)
    with pytest.raises(ValueError, match="no"):
        async with lent.borrowed():
            raise ValueError("no")

    assert pool.lines.qsize() == 1


async def test_whoever_waits_gets_the_next_that_is_free() -> None:
    lent, _ = lending(1)
    order: list[str] = []

    async def use(name: str) -> None:
        async with lent.borrowed():
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(use(name))

    assert order == ["a", "b", "c"]


async def test_closing_hands_everything_back_even_what_is_still_lent() -> None:
    lent, pool = lending(2)
    async with lent.borrowed():
        async with lent.borrowed():
            pass
        await lent.close()

    assert pool.closed
    assert pool.lines.qsize() == 2


async def test_a_statement_is_prepared_once_on_a_connection_and_sent_by_its_name_from_then_on() -> None:
    lent, pool = lending(1)

    answers = [await lent.run("SELECT", (n,)) for n in range(3)]

    assert answers == [["prepared", "SELECT", n] for n in range(3)]
    async with lent.borrowed() as line:
        assert getattr(line, "prepared", None) == ["SELECT"]
    assert pool.asked == 1


async def test_where_nothing_can_be_prepared_statements_are_sent_whole() -> None:
    lent, _ = lending(1, prepares=False)

    assert [await lent.run("SELECT", (n,)) for n in range(2)] == [["whole", "SELECT", 0], ["whole", "SELECT", 1]]


async def test_a_statement_that_is_outdated_is_sent_whole_and_prepared_anew() -> None:
    lent, pool = lending(1)
    await lent.run("SELECT", (0,))
    async with lent.borrowed() as line:
        line.fault = Outdated()  # type: ignore[attr-defined]

    answers = [await lent.run("SELECT", (n,)) for n in (1, 2)]

    assert answers == [["whole", "SELECT", 1], ["prepared", "SELECT", 2]]
    assert getattr(line, "prepared", None) == ["SELECT", "SELECT"]
    assert pool.asked == 1


async def test_a_connection_whose_statement_failed_goes_back_to_the_pool_and_its_statements_with_it() -> None:
    lent, pool = lending(1)
    await lent.run("SELECT", (0,))
    async with lent.borrowed() as line:
        line.fault = ValueError("no")  # type: ignore[attr-defined]

    with pytest.raises(ValueError, match="no"):
        await lent.run("SELECT", (1,))

    assert pool.lines.qsize() == 1
    assert await lent.run("SELECT", (2,)) == ["prepared", "SELECT", 2]
    assert getattr(line, "prepared", None) == ["SELECT", "SELECT"]
