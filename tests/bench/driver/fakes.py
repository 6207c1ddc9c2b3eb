"""Sessions of a database that does as it is told: answers late, fails, goes away, hangs."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np

from drumbeat.bench.driver.generic import GenericEngine
from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT, Records
from drumbeat.bench.driver.session_kinds import AsyncSessions, BlockingSessions, OperationFailure, Sessions, Values
from drumbeat.bench.model import ErrorClass, KeyValue, Load, NewKey, Operation, RandomText, Statement
from drumbeat.bench.values.draw import Draw

CLASSES = {OK: None, FAILED: ErrorClass.DATABASE_ERROR, TIMED_OUT: ErrorClass.QUERY_TIMEOUT, LOST: ErrorClass.CONNECTION}
LOOKUP = Operation(
    kind="LOOKUP", weight=75, statements=(Statement(sql="SELECT $1", values=(KeyValue(low=1, high=9),)),), reads=True
)
INSERT = Operation(
    kind="INSERT",
    weight=25,
    statements=(Statement(sql="INSERT $1, $2", values=(NewKey(first=100), RandomText(length=5))),),
)
LOAD = Load(name="fake", operations=(LOOKUP, INSERT))


def interrupted() -> OperationFailure:
    return OperationFailure(FAILED, "int", "interrupted")


@dataclass(slots=True)
class FakeDatabase:
    """What all its sessions share."""

    answer: Callable[[int, Values], int] = lambda operation, values: 1  #: in the middle of an operation; raises to fail
    refusals: int = 0  #: connects that fail before one succeeds
    refusal: Callable[[], Exception] = lambda: OperationFailure(LOST, "", "nobody there")
    connects_hang: bool = False  #: until they are let go
    hangs: bool = False  #: operations do not end until they are let go
    heeds: bool = True  #: whether an interrupted operation ends
    done: list[tuple[int, Values]] = field(default_factory=list)
    connects: int = 0
    connecting: int = 0
    most_connecting: int = 0
    open: int = 0
    let_go: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin_connect(self) -> None:
        with self.lock:
            self.connects += 1
            self.connecting += 1
            self.most_connecting = max(self.most_connecting, self.connecting)

    def end_connect(self) -> None:
        with self.lock:
            self.connecting -= 1
            if self.refusals:
                self.refusals -= 1
                raise self.refusal()
            self.open += 1

    def close(self) -> None:
        with self.lock:
            self.open -= 1

    def finish(self, operation: int, values: Values) -> int:
        rows = self.answer(operation, values)
        self.done.append((operation, values))
        return rows

    def sessions(self, kind: str) -> Sessions:
        return BlockingSessions(connect=self._thread_session) if kind == "threads" else AsyncSessions(connect=self._session)

    def _thread_session(self) -> "FakeThreadSession":
        self.begin_connect()
        while self.connects_hang and not self.let_go.is_set():
            self.let_go.wait(0.001)
        threading.Event().wait(0.002)
        self.end_connect()
        return FakeThreadSession(self)

    async def _session(self) -> "FakeSession":
        self.begin_connect()
        while self.connects_hang and not self.let_go.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.002)
        self.end_connect()
        return FakeSession(self)


class FakeThreadSession:
    def __init__(self, database: FakeDatabase) -> None:
        self._database = database
        self._interrupted = threading.Event()

    def execute(self, operation: int, values: Values) -> int:
        while self._database.hangs and not self._database.let_go.wait(0.001):
            if self._interrupted.is_set() and self._database.heeds:
                self._interrupted.clear()
                raise interrupted()
        return self._database.finish(operation, values)

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        self._database.close()


class FakeSession:
    def __init__(self, database: FakeDatabase) -> None:
        self._database = database
        self._is_open = True

    async def execute(self, operation: int, values: Values) -> int:
        await asyncio.sleep(0)
        while self._database.hangs and not self._database.let_go.is_set():
            await asyncio.sleep(0.001)
            if not self._is_open and self._database.heeds:
                raise OperationFailure(LOST, "", "closed")
        return self._database.finish(operation, values)

    def interrupt(self) -> None:
        if self._is_open:
            self._is_open = False
            self._database.close()

    async def close(self) -> None:
        self.interrupt()


@dataclass(slots=True)
class Running:
    """An engine at work, and what it has recorded."""

    engine: GenericEngine
    taken: list[Records] = field(default_factory=list)

    @property
    def records(self) -> Records:
        self.taken.append(self.engine.take())
        return np.concatenate(self.taken)

    async def until(self, holds: Callable[[], bool], seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.002)

    async def recorded(self, count: int) -> Records:
        await self.until(lambda: len(self.records) >= count)
        return self.records


def engine_of(database: FakeDatabase, kind: str, load: Load = LOAD, **settings: Any) -> GenericEngine:
    return GenericEngine(
        load=load,
        draw=Draw.seeded(0, 1, lambda: 0),
        settings=EngineSettings(**settings),
        sessions=database.sessions(kind),
        classify=lambda outcome, code: CLASSES[outcome],
        timestamp=lambda microseconds: microseconds,
    )


@asynccontextmanager
async def running(
    database: FakeDatabase, kind: str, *, connections: int = 4, load: Load = LOAD, **settings: Any
) -> AsyncIterator[Running]:
    """An engine with its connections open, accepting operations."""
    engine = engine_of(database, kind, load, **settings)
    await engine.open()
    work = Running(engine)
    try:
        engine.set_target(connections)
        engine.accept(True)
        yield work
    finally:
        database.let_go.set()
        await engine.close()


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def outcomes(records: Records) -> Sequence[int]:
    return sorted(set(records["outcome"].tolist()))
