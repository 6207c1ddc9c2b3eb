"""A worker says how many operations failed of each class, in every sample and in its result."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from drumbeat.bench.driver.executions import ClosedFile
from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.runner import LoadRunner
from drumbeat.bench.driver.samples import Classify
from drumbeat.bench.model import Load, Operation, Statement
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.values.draw import Draw
from drumbeat.bench.worker.workload import BenchWorkload, FinalFigures
from drumbeat.core.clock import SystemClock
from drumbeat.runtime.worker import Measurement

LOOK = timedelta(milliseconds=20)
FAILS = Operation(kind="INSERT", weight=100, statements=(Statement(sql="INSERT INTO one (id) VALUES (1)"),))
WELL = Operation(kind="LOOKUP", weight=100, statements=(Statement(sql="SELECT id FROM one"),), reads=True)


class Kept:
    """A keeper that remembers what it was told last."""

    final: FinalFigures | None = None

    async def started(self, connections: int) -> None: ...

    async def filed(self, files: Sequence[ClosedFile]) -> None: ...

    async def finished(self, final: FinalFigures) -> None:
        self.final = final


async def worked(url: str, operation: Operation) -> tuple[Measurement, FinalFigures]:
    """What a worker measured once it has done something, and what it came to."""
    kept, clock, load = Kept(), SystemClock(), Load(name="one", operations=(operation,))

    async def build(stack: AsyncExitStack) -> tuple[LoadRunner, Classify]:
        target = await stack.enter_async_context(open_target(url))
        await target.define(["CREATE TABLE one (id INTEGER PRIMARY KEY)", "INSERT INTO one VALUES (1)"])
        engine = target.engine(load, Draw.seeded(0, 7, lambda: 0), EngineSettings())
        return LoadRunner(engine, load, clock), target.classify

    workload = BenchWorkload(build, kept, clock)
    await workload.prepare()
    await workload.start("MEASUREMENT", 1)
    measured = workload.measure()
    while measured is None or not measured.operations + measured.errors:
        await clock.sleep(LOOK)
        workload._running.tick()
        measured = workload.measure()
    await workload.drain(timedelta(seconds=60))
    await workload.close()
    assert kept.final is not None
    return measured, kept.final


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('target')}/x.db"


async def test_failures_are_counted_by_class(url: str) -> None:
    measured, final = await worked(url, FAILS)

    assert measured.errors > 0
    assert measured.extra["error_classes"] == {"DATABASE_ERROR": measured.errors}
    assert final.extra["error_classes"] == {"DATABASE_ERROR": final.tally.errors}


async def test_where_nothing_failed_nothing_is_said_of_failures(url: str) -> None:
    measured, final = await worked(url, WELL)

    assert measured.errors == 0
    assert "error_classes" not in {*measured.extra, *final.extra}
