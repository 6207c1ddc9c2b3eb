"""A load that changes under way on a real PostgreSQL: ramps are followed, nothing is cut off, nothing is left behind."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.runner import MEASUREMENT, LoadRunner
from drumbeat.bench.model import KeyValue, Load, Operation, Statement, ValueType
from drumbeat.bench.targets.contract import draw
from drumbeat.bench.targets.postgres import PostgresTarget
from drumbeat.core.clock import SystemClock
from servers.places import memory_folder
from servers.postgres import PostgresServer

log = logging.getLogger(__name__)

KEY = KeyValue(low=1, high=1000, type=ValueType.INT)
UPDATE = Statement(sql="UPDATE t SET v = v + 1 WHERE k = $1", values=(KEY,))
SELECT = Statement(sql="SELECT v FROM t WHERE k = $1", values=(KEY,))
WORK = Load(
    name="ramps",
    operations=(
        Operation(kind="SELECT", weight=90, statements=(SELECT,), reads=True),
        Operation(kind="UPDATE", weight=10, statements=(UPDATE,)),
    ),
)
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'drumbeat'"
PATIENCE = timedelta(seconds=60)  #: after the end of a ramp: not how long it takes, but how long a busy machine may need


@pytest.fixture
def roomy_postgres() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"fsync": "off"}, max_connections=560, folder=memory_folder()) as server:
        yield server


@asynccontextmanager
async def ticking(runner: LoadRunner) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run())
        yield
        task.cancel()


async def held_after(runner: LoadRunner, clock: SystemClock, connections: int, ramp: timedelta) -> timedelta:
    """Change the target; answers with how long after the ramp's end it was reached."""
    runner.set_target(connections, ramp)
    end = clock.elapsed() + ramp
    while runner.engine.open_connections != connections or clock.elapsed() < end:
        late = clock.elapsed() - end
        assert late < PATIENCE, f"{runner.engine.open_connections} of {connections} connections {late} after the ramp's end"
        await clock.sleep(timedelta(milliseconds=5))
    return clock.elapsed() - end


async def sessions_become(target: PostgresTarget, expected: int) -> int:
    """The server's own count, once it is as expected, or after a while: a backend takes a moment to notice that it may go."""
    counted = -1
    for _ in range(2400):
        counted = int((await target.fetch(SESSIONS))[0][0])
        if counted == expected:
            break
        await asyncio.sleep(0.025)
    return counted


async def test_connections_follow_their_ramps_under_load_and_no_operation_is_cut(roomy_postgres: PostgresServer) -> None:
    clock = SystemClock()
    async with PostgresTarget(roomy_postgres.new_database()) as target:
        await target.define(
            ["CREATE TABLE t (k int PRIMARY KEY, v int)", "INSERT INTO t SELECT k, 0 FROM generate_series(1, 1000) k"]
        )
        runner = LoadRunner(target.engine(WORK, draw(), EngineSettings(most_connections=500)), WORK, clock)
        await runner.open()
        seen = []
        try:
            async with ticking(runner):
                runner.start(MEASUREMENT, 10)
                for connections, seconds in ((10, 0), (500, 4), (50, 2)):
                    late = await held_after(runner, clock, connections, timedelta(seconds=seconds))
                    seen.append((connections, await sessions_become(target, connections)))
                    log.info("%d connections were held %.3f s after their ramp's end", connections, late.total_seconds())
                abandoned = await runner.drain(timedelta(seconds=30))
        finally:
            await runner.close()
        left = await sessions_become(target, 0)
        written = (await target.fetch("SELECT sum(v) FROM t"))[0][0]

    tally = runner.measured
    assert seen == [(10, 10), (500, 500), (50, 50)]
    assert (tally.errors, abandoned, runner.engine.failed_connects) == (0, 0, 0)
    assert left == 0
    assert tally.by_kind()["UPDATE"].operations == written
