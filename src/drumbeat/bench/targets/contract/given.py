"""Fixtures for the tests that every database adapter must pass: a table with rows, statements on it, a running engine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import numpy as np
import pytest

from drumbeat.bench.driver.interface import Engine, EngineSettings
from drumbeat.bench.driver.records import Records
from drumbeat.bench.model import (
    KeyValue,
    Load,
    NewKey,
    Now,
    Operation,
    RandomText,
    ServerSignals,
    Statement,
)
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.values.draw import Draw

TABLE = "contract_items"
ROWS = 500
NEW = 1_000_000  #: the first key that inserts use, above those of the loaded rows
MOMENT = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
DDL = (
    "DROP TABLE IF EXISTS contract_items",
    "CREATE TABLE contract_items (id BIGINT NOT NULL, name VARCHAR(40), amount DOUBLE PRECISION, made_at TIMESTAMP,"
    " price NUMERIC(10,2), code CHAR(3), note TEXT, n INTEGER, PRIMARY KEY (id))",
    "CREATE INDEX contract_items_by_name ON contract_items (name)",
)
COLUMNS = ("id", "name", "amount", "made_at", "price", "code", "note", "n")

LOOKUP = Statement(sql="SELECT name, amount FROM contract_items WHERE id = $1", values=(KeyValue(low=1, high=ROWS),))
INSERT = Statement(
    sql="INSERT INTO contract_items (id, name, made_at) VALUES ($1, $2, $3)",
    values=(NewKey(first=NEW), RandomText(length=12), Now()),
)
DUPLICATE = Statement(sql="INSERT INTO contract_items (id, name) VALUES ($1, 'again')", values=(KeyValue(low=77, high=77),))
BEGIN, COMMIT = Statement(sql="BEGIN"), Statement(sql="COMMIT")
SET_N = Statement(
    sql="UPDATE contract_items SET n = n + 1 WHERE id = $1",
    values=(KeyValue(low=1, high=1),),
)


def rows(first: int, count: int) -> list[Sequence[object]]:
    return [
        (number, f"name {number}", number / 2, MOMENT + timedelta(seconds=number), number / 4, "abc", "é'\"%$1?", number)
        for number in range(first, first + count)
    ]


def operation(kind: str, weight: int, *statements: Statement) -> Operation:
    return Operation(kind=kind, weight=weight, statements=statements, reads=kind == "LOOKUP")


def load(*operations: Operation, think: timedelta = timedelta()) -> Load:
    return Load(name="contract", operations=operations, think=think)


MIXED = load(operation("LOOKUP", 60, LOOKUP), operation("INSERT", 40, INSERT))
LOOKUPS = load(operation("LOOKUP", 100, LOOKUP))


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def draw() -> Draw:
    return Draw.seeded(0, 7, lambda: 1_767_225_600_000_000)


@dataclass(slots=True)
class Running:
    """A running engine under test, with all records taken from it so far."""

    engine: Engine
    timeout: timedelta
    taken: list[Records] = field(default_factory=list)

    @property
    def records(self) -> Records:
        self.taken.append(self.engine.take())
        return np.concatenate(self.taken)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until ``holds()`` is true. Fails after ``timeout`` (a time limit), or if the engine stopped with an error."""
        async with asyncio.timeout(self.timeout.total_seconds()):
            while not holds():
                assert self.engine.failure is None, self.engine.failure
                await asyncio.sleep(0.005)

    async def recorded(self, count: int) -> Records:
        await self.until(lambda: len(self.records) >= count)
        return self.records

    async def drained(self) -> Records:
        assert await self.engine.drain(self.timeout) == 0
        return self.records


class ContractFixtures:
    """Fixtures of the tests that every database adapter must pass: a table with rows, and a running engine. A base class."""

    slow_sql: ClassVar[str]
    timeout = timedelta(seconds=30)  #: how long a test waits for one event

    @pytest.fixture
    async def table(self, target: Target) -> str:
        await target.define(DDL)
        assert await target.load_rows(TABLE, COLUMNS, iter(rows(1, ROWS))) == ROWS
        return TABLE

    @asynccontextmanager
    async def running(
        self, target: Target, given: Load, *, connections: int = 4, rate: float | None = None, limit: float = 30
    ) -> AsyncIterator[Running]:
        engine = target.engine(given, draw(), EngineSettings(limit=timedelta(seconds=limit)))
        await engine.open()
        running = Running(engine, self.timeout)
        try:
            engine.set_target(connections)
            engine.set_rate(rate)
            await running.until(lambda: engine.open_connections == connections)
            engine.accept(True)
            yield running
        finally:
            await engine.close()

    async def signals_when(self, target: Target, holds: Callable[[ServerSignals], bool]) -> ServerSignals:
        """Read the server's session counts until ``holds(counts)`` is true; return them. Fails after ``timeout`` (a limit)."""
        async with asyncio.timeout(self.timeout.total_seconds()):
            while True:
                signals = await target.signals()
                if signals is not None and holds(signals):
                    return signals
                await asyncio.sleep(0.005)


async def fetched(target: Target, sql: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
    return [tuple(row) for row in await target.fetch(sql, values)]
