"""A bench worker as a real process: it obeys events, drives a real PostgreSQL, and everything it did is in the store."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow.parquet as pq
import pytest

from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.event import NewEvent, WorkerTarget, set_phase, start, stop
from drumbeat.core.histogram import merged
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import Run, RunId, RunStatus
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.settings import Settings
from drumbeat.spawn.interface import Order
from drumbeat.spawn.local import LocalSpawner
from drumbeat.store.interface import RunChange
from e2e.processes import eventually

RUN = RunId("a-run")
POOL = PoolId(RUN)
W = WorkerId("worker-0")

LOOKUP = {
    "kind": "POINT_LOOKUP",
    "weight": 60,
    "sql": "SELECT v FROM t WHERE k = $1",
    "values": [{"key": {"low": 1, "high": 1000}}],
}
INSERT = {
    "kind": "INSERT",
    "weight": 40,
    "sql": "INSERT INTO t VALUES ($1, $2)",
    "values": [{"new_key": {"first": 10_000}}, {"number": {"low": 0, "high": 9}}],
}


def config(target: str) -> Mapping[str, Any]:
    return {"target": {"url": target}, "workload": {"operations": [LOOKUP, INSERT]}}


@pytest.fixture
async def target(postgres_url: str) -> str:
    """A database under test, with one table."""
    await sql(postgres_url, "CREATE TABLE t (k bigint PRIMARY KEY, v int)")
    await sql(postgres_url, "INSERT INTO t SELECT k, 0 FROM generate_series(1, 1000) k")
    return postgres_url


async def sql(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


@asynccontextmanager
async def waiting_worker(folder: Path, settings: Mapping[str, Any]) -> AsyncIterator[tuple[ControlPlane, LocalSpawner]]:
    """A run whose one worker is ready and waits for START."""
    url = f"sqlite:///{folder}/drumbeat.db"
    async with open_control_plane(Settings(store=url, state_dir=folder / "state"), create=True) as plane:
        await plane.store.runs.create(Run(run_id=RUN, name="a run", config=settings), pool(RUN, PoolKind.BENCH))
        async with plane.local_spawner() as spawner:
            await spawner.spawn(Order(pool_id=POOL, worker_id=W, slot=0, group_count=1))
            await eventually(partial(has_status, plane, WorkerStatus.WAITING), "the worker is ready")
            yield plane, spawner


async def worker_row(plane: ControlPlane) -> Worker | None:
    return next(iter(await plane.store.workers.list(POOL)), None)


async def has_status(plane: ControlPlane, status: WorkerStatus) -> bool:
    row = await worker_row(plane)
    return row is not None and row.status is status


async def begin(plane: ControlPlane, connections: int) -> None:
    """RUNNING, WARMUP and START in one transaction, then the target."""
    store = plane.store
    run = await store.runs.update(await store.runs.get(RUN), RunChange(status=RunStatus.STARTING))
    await store.workers.set_targets(POOL, {W: WorkerTarget(connections=connections, reason="test")})
    change = RunChange(status=RunStatus.RUNNING, phase="WARMUP", started=True, warmup_started=True)
    await store.runs.update(run, change, [start(expected_workers=1)])


async def measure(plane: ControlPlane) -> None:
    run = await plane.store.runs.get(RUN)
    await plane.store.runs.update(run, RunChange(phase="MEASUREMENT", warmup_ended=True), [set_phase("MEASUREMENT")])


async def tell(plane: ControlPlane, event: NewEvent) -> None:
    await plane.store.events.append(POOL, [event])


async def holds(plane: ControlPlane, connections: int) -> bool:
    row = await worker_row(plane)
    return row is not None and row.applied_target == connections


async def measured(plane: ControlPlane, at_least: int) -> bool:
    row = await worker_row(plane)
    return row is not None and row.phase == "MEASUREMENT" and row.operations >= at_least


async def test_a_worker_warms_up_measures_changes_its_target_drains_and_leaves_its_results(target: str, tmp_path: Path) -> None:
    async with waiting_worker(tmp_path, config(target)) as (plane, _):
        await begin(plane, connections=4)
        await eventually(partial(holds, plane, 4), "4 connections are held")
        await measure(plane)
        await eventually(partial(measured, plane, 200), "operations are measured")
        more = WorkerTarget(connections=10, reason="more", ramp=timedelta(seconds=1))
        await plane.store.workers.set_targets(POOL, {W: more})
        await eventually(partial(holds, plane, 10), "10 connections are held")
        await tell(plane, stop("enough"))
        await eventually(partial(has_status, plane, WorkerStatus.TERMINATED), "the worker has left")

        row = await worker_row(plane)
        results = {each.kind: each for each in await plane.store.results.list(RUN)}
        samples = await plane.store.samples.list(POOL)
        files = await plane.store.results.list_files(RUN)

    assert row is not None
    assert row.exit_code == 0
    whole = results[None]
    assert (whole.status, whole.errors, whole.connections) == (RunStatus.COMPLETED, 0, 10)
    assert whole.operations == results["POINT_LOOKUP"].operations + results["INSERT"].operations
    assert merged(results[kind].latency for kind in ("POINT_LOOKUP", "INSERT")) == whole.latency
    rows = [each for file in files for each in pq.read_table(file.path).to_pylist()]
    kept = [each for each in rows if not each["warmup"]]
    assert len(kept) == whole.operations
    assert sum(sample.operations for sample in samples) == len(rows)
    inserted = await sql(target, "SELECT count(*) FROM t WHERE k >= 10000")
    assert inserted == sum(each["kind"] == "INSERT" for each in rows)


async def test_after_a_kill_the_samples_so_far_are_in_the_store(target: str, tmp_path: Path) -> None:
    async with waiting_worker(tmp_path, config(target)) as (plane, _):
        await begin(plane, connections=2)
        await measure(plane)
        await eventually(partial(measured, plane, 100), "operations are measured")
        row = await worker_row(plane)
        assert row is not None

        os.kill(row.pid or 0, signal.SIGKILL)

        samples = await plane.store.samples.list(POOL)
        assert sum(sample.operations for sample in samples) >= 100
        numbers = [sample.n for sample in samples]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"workload": {"operations": [{**LOOKUP, "weight": 99}]}}, "total 100"),
        ({"workload": {"operations": [{**LOOKUP, "weight": 100, "values": []}]}}, "$1 has no value"),
        ({"workload": {"operations": [{**LOOKUP, "weight": 100, "sql": "SELECT v FROM nowhere WHERE k = $1"}]}}, "nowhere"),
        ({"target": {"url": "postgresql://u:secret@127.0.0.1/x"}}, "holds a password"),
    ],
)
async def test_a_run_that_cannot_work_ends_its_worker_before_load_with_the_field_named(
    target: str, tmp_path: Path, wrong: Mapping[str, Any], said: str
) -> None:
    url = f"sqlite:///{tmp_path}/drumbeat.db"
    async with open_control_plane(Settings(store=url, state_dir=tmp_path / "state"), create=True) as plane:
        run = Run(run_id=RUN, name="wrong", config={**config(target), **wrong})
        await plane.store.runs.create(run, pool(RUN, PoolKind.BENCH))
        async with plane.local_spawner() as spawner:
            await spawner.spawn(Order(pool_id=POOL, worker_id=W, slot=0, group_count=1))
            await eventually(partial(has_status, plane, WorkerStatus.ERROR), "the worker gives up")
            row = await worker_row(plane)

    assert row is not None
    assert row.exit_code == 1
    assert said in (row.error or "")
    assert "secret" not in (row.error or "")
