"""Orchestrators that look for runs to conduct: they outlast their store, wait for the dead, and leave the living alone."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.bench.control.create import capacity
from drumbeat.bench.driver.executions import ExecutionWriter
from drumbeat.bench.driver.records import OK, Records, empty
from drumbeat.bench.model import RunPlan, Scaling, ScalingMode
from drumbeat.bench.service import BenchService
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.run import ExecutionFile, Phase, RunStatus
from drumbeat.core.worker import WorkerId
from simulate.bench_world import World, simulated

SECOND = timedelta(seconds=1)
PLAN = RunPlan(
    warmup=2 * SECOND,
    duration=30 * SECOND,
    scaling=Scaling(mode=ScalingMode.FIXED, min_workers=2, min_connections=5, cap=5),
)


@asynccontextmanager
async def orchestrating(world: World, *, once: bool) -> AsyncIterator[asyncio.Task[None]]:
    """One that looks for runs, beside whatever the block does."""
    desk = BenchService(world.store, world.clock, "finder", capacity(4, 8 << 30), lambda engine: world.spawner)
    leave = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(desk.orchestrate(leave, once=once))
        try:
            yield task
        finally:
            leave.set()
            await pass_time(world, 5)


async def pass_time(world: World, seconds: int) -> None:
    for _ in range(seconds):
        await world.clock.advance(SECOND, settle=60)


async def test_a_run_is_conducted_to_its_end_though_the_store_is_away_meanwhile() -> None:
    async with simulated(limits=PRESETS[PoolKind.BENCH]) as world:
        await world.begin(PLAN)
        async with orchestrating(world, once=False) as task:
            await pass_time(world, 10)
            with world.store.unavailable():
                await pass_time(world, 20)
            await pass_time(world, 60)
            run = await world.run()

            assert run.status is RunStatus.COMPLETED
            assert not task.done()
            assert not world.spawner.running(PoolId(world.run_id))


async def test_one_that_looks_once_waits_for_an_orchestrator_that_died_just_now() -> None:
    async with simulated() as world:
        await world.begin(PLAN)
        await world.until(lambda run: run.phase == Phase.MEASUREMENT)
        spawned = world.spawner.asked("spawn")
        async with orchestrating(world, once=True) as task:
            await pass_time(world, 60)

            assert task.done()
        run = await world.run()

    assert (run.status, run.completion_reason) == (RunStatus.COMPLETED, "DURATION")
    assert world.spawner.asked("spawn") == spawned


async def test_one_that_looks_once_waits_longer_on_a_store_where_beats_are_rare() -> None:
    """A lease lasts six beats there, so it is a while until the run is nobody's."""
    async with simulated() as world:
        world.store.traits = replace(world.store.traits, shortest_beat=5 * SECOND)
        await world.begin(PLAN)
        world.crash()  # the next one knows the store as it is now
        await world.until(lambda run: run.phase == Phase.MEASUREMENT)
        async with orchestrating(world, once=True) as task:
            await pass_time(world, 120)

            assert task.done()
        run = await world.run()

    assert (run.status, run.completion_reason) == (RunStatus.COMPLETED, "DURATION")


async def test_one_that_looks_once_leaves_a_run_to_the_orchestrator_it_has() -> None:
    async with simulated() as world:
        await world.begin(PLAN)
        await world.beat()
        async with orchestrating(world, once=True) as task:
            await world.finish()
            await pass_time(world, 3)

            assert task.done()
        owners = {beat.owner for beat in await world.kept()}

    assert owners == {"orchestrator-1"}


@pytest.mark.parametrize("load_into_store", [True, False])
async def test_recorded_operations_are_loaded_into_the_store_at_the_end_if_the_template_says_so(
    tmp_path: Path, load_into_store: bool
) -> None:
    records = empty(100)
    records["outcome"] = OK
    async with simulated() as world:
        await world.begin(PLAN, recording={"load_into_store": load_into_store})
        await recorded(world, tmp_path, records)
        async with orchestrating(world, once=True) as task:
            await pass_time(world, 120)

            async with asyncio.timeout(60):
                while not task.done():  # operations are read in a thread, which takes real time
                    await asyncio.sleep(0.01)
                    await pass_time(world, 1)
        run, loaded = await world.run(), await world.store.executions.list(world.run_id, limit=1000)

    assert run.status is RunStatus.COMPLETED
    assert len(loaded) == (100 if load_into_store else 0)


async def test_a_run_that_ended_stays_so_though_its_recorded_operations_cannot_be_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with simulated() as world:
        await world.begin(PLAN, recording={"load_into_store": True})
        await recorded(world, tmp_path, empty(100))
        [file] = tmp_path.rglob("*.parquet")
        file.write_bytes(b"not Parquet")
        async with orchestrating(world, once=True):
            await pass_time(world, 120)
        run = await world.run()

    assert run.status is RunStatus.COMPLETED
    assert f"could not load the recorded operations of run {world.run_id}" in caplog.text


async def recorded(world: World, folder: Path, records: Records) -> None:
    """What a worker has recorded, in a file of this host."""
    writer = ExecutionWriter(folder, ["READ"], wall_offset_ns=1_700_000_000_000_000_000)
    writer.keep(records, warmup=False)
    writer.close()
    for file in writer.files:
        host, path = socket.gethostname(), str(file.path)
        await world.store.results.add_file(
            ExecutionFile(run_id=world.run_id, worker_id=WorkerId("w"), path=path, host=host, rows=file.rows, size=file.size)
        )


async def test_one_that_looks_once_and_finds_nothing_leaves_at_once() -> None:
    async with simulated() as world, orchestrating(world, once=True) as task:
        await pass_time(world, 1)

        assert task.done()
