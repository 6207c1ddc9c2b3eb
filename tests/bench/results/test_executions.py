"""Executions from a worker's files into the store, on every store, once."""

import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drumbeat.bench.driver.executions import ExecutionWriter
from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT, Records, empty
from drumbeat.bench.results.execution_pages import ExecutionQuery, read_executions
from drumbeat.bench.results.executions import load_executions
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Execution, ExecutionFile, Run, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import ExecutionOrder, ExecutionPosition, Store
from drumbeat.store.memory import MemoryStore

RUN, W = RunId("run-1"), WorkerId("worker-0")
WORKLOAD = {"operations": [{"kind": "READ", "weight": 100, "sql": "SELECT 1", "reads": True}]}


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with MemoryStore(ManualClock()) as store:
        await store.runs.create(Run(run_id=RUN, name="r", config={"workload": WORKLOAD}), pool(RUN, PoolKind.BENCH))
        yield store


def written(folder: Path, count: int) -> list[ExecutionFile]:
    """What a worker leaves of so many operations, every tenth of them failed."""
    records = empty(count)
    records["start"] = np.arange(count) * 1_000_000
    records["duration"] = 2_500_000
    records["outcome"] = np.where(np.arange(count) % 10 == 0, FAILED, OK)
    records["sqlstate"] = np.where(np.arange(count) % 10 == 0, b"40001", b"")
    return kept_in(folder, records)


def kept_in(folder: Path, records: Records) -> list[ExecutionFile]:
    writer = ExecutionWriter(folder, ["READ"], wall_offset_ns=1_700_000_000_000_000_000)
    writer.keep(records, warmup=False)
    writer.close()
    host = socket.gethostname()
    return [
        ExecutionFile(run_id=RUN, worker_id=W, path=str(file.path), host=host, rows=file.rows, size=file.size)
        for file in writer.files
    ]


async def test_every_operation_is_copied_once_however_often_it_is_asked_for(store: Store, tmp_path: Path) -> None:
    for file in written(tmp_path, 1000):
        await store.results.add_file(file)

    first, again = await load_executions(store, RUN), await load_executions(store, RUN)
    kept = await store.executions.list(RUN, limit=2000)

    assert (first.rows, again.rows, len(kept)) == (1000, 0, 1000)
    assert [each.n for each in kept] == list(range(1000))
    failed = [each for each in kept if not each.ok]
    assert len(failed) == 100
    assert {(each.error_class, each.error, each.query_text) for each in failed} == {("DATABASE_ERROR", "40001", "SELECT 1")}
    assert {each.duration_ms for each in kept} == {2.5}


FAILURES = ((OK, b""), (FAILED, b"40001"), (FAILED, b"57014"), (TIMED_OUT, b""), (LOST, b""), (LOST, b"57P01"))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"error_class": "DATABASE_ERROR"}, [1]),
        ({"error_class": "QUERY_TIMEOUT"}, [2, 3]),
        ({"error_class": "CONNECTION"}, [4, 5]),
        ({"error": "57014"}, [2]),
        ({"error_class": "CONNECTION", "error": "57P01"}, [5]),
        ({"error_class": "QUERY_TIMEOUT", "error": "40001"}, []),
        ({"error": ""}, []),
        ({"ok": True, "error_class": "CONNECTION"}, []),
    ],
    ids=str,
)
@pytest.mark.parametrize("loaded", [False, True], ids=["from files", "from the store"])
async def test_failed_operations_are_found_by_class_as_the_database_tells_them_apart(
    tmp_path: Path, asked: dict[str, Any], expected: list[int], loaded: bool
) -> None:
    records = empty(len(FAILURES))
    records["start"] = np.arange(len(FAILURES)) * 1_000_000
    records["outcome"], records["sqlstate"] = zip(*FAILURES, strict=True)
    config = {"workload": WORKLOAD, "target": {"url": "postgresql://bench@db/app"}}
    async with MemoryStore(ManualClock()) as store:
        await store.runs.create(Run(run_id=RUN, name="r", config=config), pool(RUN, PoolKind.BENCH))
        for file in kept_in(tmp_path, records):
            await store.results.add_file(file)
        if loaded:
            await load_executions(store, RUN)

        found = await read_executions(store, RUN, ExecutionQuery(**asked))

    assert [each.n for each in found] == expected


@pytest.mark.parametrize("content", [b"", b"not Parquet", b"PAR1 cut"])
async def test_a_damaged_file_is_named(store: Store, tmp_path: Path, content: bytes) -> None:
    [file] = written(tmp_path, 10)
    await store.results.add_file(file)
    Path(file.path).write_bytes(content)

    for read in (load_executions(store, RUN), read_executions(store, RUN, ExecutionQuery())):
        with pytest.raises(InvalidInput, match=f"got {file.path}, which cannot be read .*; restore it, or delete it"):
            await read


async def test_files_of_other_hosts_are_named(store: Store, tmp_path: Path) -> None:
    await store.results.add_file(
        ExecutionFile(run_id=RUN, worker_id=W, path="/there/00000.parquet", host="elsewhere", rows=5, size=9)
    )

    loaded = await load_executions(store, RUN)

    assert (loaded.files, loaded.rows, loaded.elsewhere) == (0, 0, ("/there/00000.parquet",))


def rows_at(starts: list[int], durations: list[int]) -> Records:
    records = empty(len(starts))
    records["start"], records["duration"], records["outcome"] = np.array(starts) * 1_000_000, np.array(durations) * 1_000, OK
    return records


OTHER = WorkerId("worker-1")


async def two_workers(store: Store, tmp_path: Path) -> list[ExecutionFile]:
    """What two workers recorded, with equal starts and durations among their operations."""
    files = kept_in(tmp_path / "a", rows_at([1, 2, 2, 5], [7, 1, 9, 3]))
    files += [replace(file, worker_id=OTHER) for file in kept_in(tmp_path / "b", rows_at([2, 3, 4, 5], [9, 7, 2, 3]))]
    for file in files:
        await store.results.add_file(file)
    return files


EARLIEST = [(W, 0), (W, 1), (W, 2), (OTHER, 0), (OTHER, 1), (OTHER, 2), (W, 3), (OTHER, 3)]
LONGEST = [(W, 2), (OTHER, 0), (W, 0), (OTHER, 1), (W, 3), (OTHER, 3), (OTHER, 2), (W, 1)]


@pytest.mark.parametrize(("order", "expected"), [("started_at", EARLIEST), ("duration_ms", LONGEST)])
@pytest.mark.parametrize("loaded", ["none", "a worker's", "a few of each", "all"])
async def test_operations_in_files_are_listed_with_those_in_the_store(
    store: Store, tmp_path: Path, order: ExecutionOrder, expected: list[tuple[str, int]], loaded: str
) -> None:
    files = await two_workers(store, tmp_path)
    await load_executions(store, RUN)
    whole = await store.executions.list(RUN)
    async with MemoryStore(ManualClock()) as other:
        await other.runs.create(await store.runs.get(RUN), pool(RUN, PoolKind.BENCH))
        for file in files:
            await other.results.add_file(file)
        chosen = {"none": [], "a worker's": [each for each in whole if each.worker_id == W], "a few of each": whole[1:4]}
        await other.executions.load(chosen.get(loaded, whole))

        found: list[Execution] = []
        while page := await read_executions(
            other, RUN, ExecutionQuery(order=order, limit=3, after=ExecutionPosition.of(found[-1], order) if found else None)
        ):
            found += page
        deep = await read_executions(other, RUN, ExecutionQuery(order=order, offset=5, limit=2))

    assert [(each.worker_id, each.n) for each in found] == expected
    assert sorted(found, key=lambda each: (each.worker_id, each.n)) == sorted(whole, key=lambda each: (each.worker_id, each.n))
    assert deep == found[5:7]


async def test_files_are_not_read_once_all_their_operations_are_in_the_store(store: Store, tmp_path: Path) -> None:
    files = await two_workers(store, tmp_path)
    await load_executions(store, RUN)
    for file in files:
        Path(file.path).write_bytes(b"not Parquet")

    assert len(await read_executions(store, RUN, ExecutionQuery())) == 8


async def test_rows_keep_their_numbers_when_an_earlier_file_is_deleted(store: Store, tmp_path: Path) -> None:
    first, second = kept_in(tmp_path / "a", rows_at([1, 2], [1, 1])), kept_in(tmp_path / "b", rows_at([3, 4], [1, 1]))
    for file in (*first, *second):
        await store.results.add_file(file)
    await load_executions(store, RUN)
    Path(first[0].path).unlink()

    assert (await load_executions(store, RUN)).rows == 0
    assert len(await read_executions(store, RUN, ExecutionQuery())) == 4


async def test_operations_of_a_run_whose_workload_would_be_refused_today_can_be_read(tmp_path: Path) -> None:
    old = {"kind": "READ", "weight": 100, "sql": "SELECT $1", "values": [{"key": {"lo": 1, "hi": 9}}]}
    run = Run(run_id=RUN, name="r", config={"workload": {"operations": [old]}})
    async with MemoryStore(ManualClock()) as store:
        await store.runs.create(run, pool(RUN, PoolKind.BENCH))
        for file in written(tmp_path, 20):
            await store.results.add_file(file)

        found = await read_executions(store, RUN, ExecutionQuery())

    assert len(found) == 20
