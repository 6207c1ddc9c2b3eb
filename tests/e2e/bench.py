"""Benchmarks as their users run them: the command line as processes, a real PostgreSQL under test, a store beside it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pyarrow.parquet as pq

from drumbeat.core.pool import PoolId
from drumbeat.core.run import RUN_ENDED, Result, Run, RunId, RunStatus
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.store import Store, open_store
from e2e.processes import eventually

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


def document(target: str, **changes: Any) -> dict[str, Any]:
    """A short run of two workers that leave the machine some rest, with whatever is to differ."""
    return {
        "name": "e2e",
        "target": {"url": target},
        "workload": {"operations": [LOOKUP, INSERT], "think_time_ms": 20},
        "timing": {"warmup_seconds": 1, "duration_seconds": 4},
        "scaling": {"mode": "FIXED", "min_workers": 2, "min_connections": 4},
        **changes,
    }


async def sql(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def fill(url: str) -> str:
    """A database under test with one table; answers with its URL."""
    await sql(url, "CREATE TABLE t (k bigint PRIMARY KEY, v int)")
    await sql(url, "INSERT INTO t SELECT k, 0 FROM generate_series(1, 1000) k")
    return url


@dataclass(slots=True)
class Bench:
    """One store, and the commands given on it."""

    url: str
    folder: Path
    store: Store
    environment: Mapping[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        """``drumbeat bench …``, begun."""
        environment = {**os.environ, **self.environment, "DRUMBEAT_STATE_DIR": str(self.folder / "state")}
        process = subprocess.Popen(
            [sys.executable, "-m", "drumbeat", "bench", *arguments, "--store", self.url],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, given: Mapping[str, Any], *options: str) -> subprocess.Popen[str]:
        """``drumbeat bench run FILE``, begun."""
        file = self.folder / "run.json"
        file.write_text(json.dumps(given))
        return self.command("run", str(file), *options)

    async def find(self) -> Run | None:
        """The newest run."""
        return next(iter(await self.store.runs.list(limit=1)), None)

    async def the_run(self) -> Run:
        found = await self.find()
        assert found is not None
        return found

    async def workers(self) -> Sequence[Worker]:
        return await self.store.workers.list(PoolId((await self.the_run()).run_id))

    async def reaches(self, phase: str) -> None:
        await eventually(partial(self._is_in, phase), f"{phase} is reached")

    async def _is_in(self, phase: str) -> bool:
        run = await self.find()
        assert run is None or run.status not in RUN_ENDED, f"it is over before {phase}: {run}"
        return run is not None and run.phase == phase

    async def all_active(self, workers: int) -> None:
        await eventually(partial(self._active, workers), f"{workers} workers are active")

    async def _active(self, workers: int) -> bool:
        run = await self.find()
        if run is None or run.status is not RunStatus.RUNNING:
            return False
        return sum(row.status is WorkerStatus.ACTIVE for row in await self.workers()) == workers

    async def measures(self, what: str, samples: int) -> None:
        """Until so many samples of the measurement tell of this: operations that went well, or failed_connects."""

        async def told() -> bool:
            run = await self.find()
            if run is None or run.warmup_ended_at is None:
                return False
            found = await self.store.samples.list(PoolId(run.run_id), since=run.warmup_ended_at, limit=10_000)
            counted = [sample.operations if what == "operations" else int(sample.extra.get(what) or 0) for sample in found]
            return sum(count > 0 for count in counted) >= samples

        await eventually(told, f"{samples} samples tell of {what}")

    async def results(self) -> Sequence[Result]:
        return await self.store.results.list((await self.the_run()).run_id)

    async def operations(self) -> list[Mapping[str, Any]]:
        """Every operation that counts, from the Parquet files of all workers."""
        files = await self.store.results.list_files((await self.the_run()).run_id)
        return [row for file in files for row in pq.read_table(file.path).to_pylist() if not row["warmup"]]


def left(run_id: RunId) -> list[int]:
    """Processes of a run's workers that are there still."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        if run_id in (process.info["cmdline"] or ()) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["pid"])
    return found


@asynccontextmanager
async def bench(url: str, folder: Path, environment: Mapping[str, str] | None = None) -> AsyncIterator[Bench]:
    """Commands on a store; whatever happens inside, no process of them is there after."""
    folder.mkdir(parents=True, exist_ok=True)
    async with open_store(url, create=True) as store:
        made = Bench(url=url, folder=folder, store=store, environment=environment or {})
        with _ended(made):
            try:
                yield made
            finally:
                for run in await store.runs.list():
                    _kill(left(run.run_id))


@contextmanager
def _ended(made: Bench) -> Iterator[None]:
    try:
        yield
    finally:
        for process in made.started:
            process.kill()
            process.communicate()


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


async def output(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How a command ended and what it printed, without holding up anybody else meanwhile."""

    async def is_over() -> bool:
        return process.poll() is not None

    await eventually(is_over, "the command ends")
    out, err = process.communicate()
    return process.returncode, out, err
