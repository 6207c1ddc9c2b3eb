"""A paced worker owes what was due while it is measured: it is sent late and shows so, or is said never to have been sent."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from bench.driver.fakes import CLASSES, LOAD, FakeDatabase, engine_of
from drumbeat.bench.driver.executions import ClosedFile
from drumbeat.bench.driver.runner import LoadRunner
from drumbeat.bench.driver.samples import Classify
from drumbeat.bench.worker.workload import BenchWorkload, FinalFigures
from drumbeat.core.clock import SystemClock

QPS = 200.0
MINUTE = timedelta(minutes=1)


@dataclass(slots=True)
class Paced:
    """A worker whose database hangs, until it is let go."""

    database: FakeDatabase
    workload: BenchWorkload = field(init=False)
    finals: list[FinalFigures] = field(default_factory=list)

    async def started(self, connections: int) -> None: ...

    async def filed(self, files: Sequence[ClosedFile]) -> None: ...

    async def finished(self, final: FinalFigures) -> None:
        self.finals.append(final)

    @property
    def backlog(self) -> int:
        return self.workload._running.engine.backlog

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.005)

    async def ended(self) -> FinalFigures:
        self.database.let_go.set()
        await self.workload.drain(MINUTE)
        await self.workload.close()
        return self.finals[0]


@asynccontextmanager
async def paced(phase: str) -> AsyncIterator[Paced]:
    """A worker that has been behind for a second."""
    database, clock = FakeDatabase(hangs=True), SystemClock()

    async def build(stack: AsyncExitStack) -> tuple[LoadRunner, Classify]:
        return LoadRunner(engine_of(database, "coroutines"), LOAD, clock), lambda outcome, code: CLASSES[outcome]

    async with asyncio.timeout(60):
        worker = Paced(database)
        worker.workload = BenchWorkload(build, worker, clock)
        await worker.workload.prepare()
        await worker.workload.start(phase, 2, QPS)
        await worker.until(lambda: worker.backlog > 1.1 * QPS)
        yield worker


async def test_in_a_paced_run_who_is_told_no_pace_keeps_the_last_and_begins_with_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database, clock = FakeDatabase(), SystemClock()
    engine = engine_of(database, "coroutines")
    rates: list[float | None] = []
    monkeypatch.setattr(engine, "set_rate", rates.append)

    async def build(stack: AsyncExitStack) -> tuple[LoadRunner, Classify]:
        return LoadRunner(engine, LOAD, clock, is_paced=True), lambda outcome, code: CLASSES[outcome]

    worker = Paced(database)
    worker.workload = BenchWorkload(build, worker, clock)
    await worker.workload.prepare()
    await worker.workload.start("WARMUP", 0)
    worker.workload.set_target(0, timedelta(), QPS)
    worker.workload.set_target(0, timedelta())
    await worker.ended()

    assert rates == [0, QPS, QPS]


async def test_what_was_due_in_a_stall_is_sent_late_and_shows_so() -> None:
    async with paced("MEASUREMENT") as worker:
        owed = worker.backlog
        worker.workload.measure()
        worker.workload.set_target(2, timedelta(), QPS)
        worker.workload.set_target(2, timedelta(), QPS / 2)
        worker.database.let_go.set()
        await worker.until(lambda: worker.backlog == 0)
        final = await worker.ended()

    late = final.tally.response.percentile_ns(100 * (1 - owed / 2 / final.tally.operations))
    assert final.tally.operations >= owed
    assert late is not None
    assert late > 0.4e9, "half of what a stall of a second held up waited for half a second or more"
    assert final.extra["skipped"] == 0


@pytest.mark.parametrize("last", [QPS, 0.0])
async def test_what_was_due_and_never_sent_is_said_and_its_wait_shows(last: float) -> None:
    async with paced("MEASUREMENT") as worker:
        owed = worker.backlog
        worker.workload.set_target(2, timedelta(), last)
        final = await worker.ended()

    median = final.tally.response.percentile_ns(50)
    assert final.extra["skipped"] >= owed
    assert final.tally.operations == 2, "what was never sent is no operation"
    assert median is not None
    assert median > 0.4e9, "half of them had waited for half a second or more"
    assert all(kind.response.count >= owed * share for kind, share in zip(final.tally.kinds, (0.7, 0.2), strict=True))


async def test_before_it_is_measured_a_worker_does_not_make_up_for_the_past() -> None:
    async with paced("WARMUP") as worker:
        owed = worker.backlog
        worker.workload.measure()
        left = worker.backlog
        worker.workload.set_phase("MEASUREMENT")
        worker.database.let_go.set()
        await worker.until(lambda: worker.backlog == 0)
        final = await worker.ended()

    assert left < owed / 2
    assert final.extra["skipped"] == 0
