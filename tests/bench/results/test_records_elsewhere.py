"""Recorded operations that stay on the workers' hosts: the output says where, and no report needs them."""

import asyncio
import socket
from pathlib import Path

import msgspec

from cli.given import ran
from drumbeat.bench.model import RunPlan
from drumbeat.bench.results.executions import folders_elsewhere
from drumbeat.bench.results.record import read_record
from drumbeat.bench.results.report import FORMATS
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import ExecutionFile, Run, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store import Store, open_store
from drumbeat.store.memory import MemoryStore

RUN = RunId("run-1")
FOLDER = "/home/u/.drumbeat/executions/run-1"


def file(host: str, worker: str) -> ExecutionFile:
    path = f"{FOLDER}/{worker}/0.parquet"
    return ExecutionFile(run_id=RUN, worker_id=WorkerId(worker), path=path, host=host, rows=7, size=70)


async def prepared(store: Store) -> None:
    config = {"plan": msgspec.to_builtins(RunPlan())}
    await store.runs.create(Run(run_id=RUN, name="r", config=config), pool(RUN, PoolKind.BENCH))


async def test_folders_on_other_hosts_are_named_once() -> None:
    store = MemoryStore()
    await prepared(store)
    for host, worker in (("node1", "worker-0"), ("node1", "worker-1"), ("node2", "worker-2"), (socket.gethostname(), "w")):
        await store.results.add_file(file(host, worker))

    assert await folders_elsewhere(store, RUN) == (f"node1:{FOLDER}", f"node2:{FOLDER}")


async def test_no_report_needs_the_files_on_other_hosts() -> None:
    store = MemoryStore()
    await prepared(store)
    before = await read_record(store, RUN)

    await store.results.add_file(file("node1", "worker-0"))

    after = await read_record(store, RUN)
    assert {form: FORMATS[form](after) for form in ("json", "csv")} == {form: FORMATS[form](before) for form in ("json", "csv")}


def test_the_output_of_a_run_says_where_its_recorded_operations_are(tmp_path: Path) -> None:
    async def fill() -> None:
        async with open_store(f"sqlite:///{tmp_path}/d.db", create=True) as store:
            await prepared(store)
            await store.results.add_file(file("node1", "worker-0"))

    asyncio.run(fill())

    done = ran("bench", "show", RUN, cwd=tmp_path, DRUMBEAT_STORE=f"sqlite:///{tmp_path}/d.db")

    assert f"recorded operations are on the workers' hosts (reports do not need them): node1:{FOLDER}" in done.output
