"""Builds a bench worker's workload from a run's configuration."""

import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from drumbeat.bench.driver.executions import ClosedFile, ExecutionWriter
from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.runner import LoadRunner
from drumbeat.bench.driver.samples import Classify
from drumbeat.bench.driver.tally import KindTally
from drumbeat.bench.model import LoadMode
from drumbeat.bench.targets.connections import ConnectionService
from drumbeat.bench.targets.vault import Vault
from drumbeat.bench.values.draw import Draw
from drumbeat.bench.worker.workload import BenchWorkload, FinalFigures
from drumbeat.bench.workloads.config import load_of
from drumbeat.bench.workloads.new_keys import above
from drumbeat.bench.workloads.sharding import sharded, sharding_of
from drumbeat.core import run as core
from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Result, RunId, RunStatus
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import Store

_MOST_CONNECTIONS = 1000


def bench_workload(
    store: Store, run_id: RunId, worker_id: WorkerId, slot: int, folder: Path, clock: Clock, vault: Vault | None = None
) -> BenchWorkload:
    """Make the workload of one worker of a run. If the run names a stored connection, the vault decrypts its password."""
    keeper = StoredResults(store, run_id, worker_id)
    connections = ConnectionService(store, vault or Vault())
    build = partial(
        _build, store=store, run_id=run_id, worker_id=worker_id, slot=slot, folder=folder, clock=clock, connections=connections
    )
    return BenchWorkload(build, keeper, clock, partial(_first_target, store, run_id, worker_id))


async def _first_target(store: Store, run_id: RunId, worker_id: WorkerId) -> int:
    """Return how many connections this worker must open before it reports ready."""
    return (await store.workers.get(PoolId(run_id), worker_id)).target


async def _build(
    stack: AsyncExitStack,
    *,
    store: Store,
    run_id: RunId,
    worker_id: WorkerId,
    slot: int,
    folder: Path,
    clock: Clock,
    connections: ConnectionService,
) -> tuple[LoadRunner, Classify]:
    config = (await store.runs.get(run_id)).config
    load = above(load_of(_block(config, "workload")), config.get("highest_keys") or {})
    load = sharded(load, sharding_of(config.get("sharding")), slot)
    target_url(config)
    target = await stack.enter_async_context(connections.open(_block(config, "target")))
    await target.check(load)
    draw = Draw(
        slot=slot,
        chance=np.random.default_rng([int(config.get("seed", 0)), slot]),
        now_us=lambda: int(clock.now().timestamp() * 1e6),
    )
    engine = target.engine(load, draw, engine_settings(config, tag=f"{run_id}:{worker_id}"))
    executions = _executions(config, folder / run_id / worker_id, [operation.kind for operation in load.used], clock)
    is_paced = (config.get("plan") or {}).get("load_mode") == LoadMode.QPS
    return LoadRunner(engine, load, clock, executions, is_paced=is_paced), target.classify


def target_url(config: Mapping[str, Any]) -> str:
    """Return the URL of the database under test. Raises InvalidInput if it has a password, which must not be stored."""
    url = _block(config, "target").get("url")
    if not isinstance(url, str) or not url:
        raise InvalidInput("target.url: expected the URL of the database under test, got no text; create the run again")
    if urlsplit(url).password:
        raise InvalidInput("target.url: holds a password, which must not be stored with a run; set DRUMBEAT_TARGET_PASSWORD")
    return url


def engine_settings(config: Mapping[str, Any], tag: str = "") -> EngineSettings:
    target = _block(config, "target")
    cached = target.get("use_cached_result")
    return EngineSettings(
        limit=timedelta(seconds=float(target.get("query_timeout_seconds", 30))),
        parallel_connects=int(target.get("parallel_connects", 32)),
        cached_results=None if cached is None else bool(cached),
        tag=tag,
        most_connections=int(config.get("scaling", {}).get("max_connections") or _MOST_CONNECTIONS),
    )


def _executions(config: Mapping[str, Any], folder: Path, kinds: list[str], clock: Clock) -> ExecutionWriter | None:
    sampling = float(config.get("recording", {}).get("sampling", 1.0))
    if sampling <= 0:
        return None
    offset = int(clock.now().timestamp() * 1e9) - time.monotonic_ns()
    return ExecutionWriter(folder, kinds, wall_offset_ns=offset, sampling=sampling)


def _block(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = config.get(name)
    if not isinstance(block, Mapping):
        raise InvalidInput(f"expected a block {name!r} in the run's configuration, got {block!r}; create the run again")
    return block


class StoredResults:
    """Writes a worker's results and the list of its Parquet files to the store."""

    def __init__(self, store: Store, run_id: RunId, worker_id: WorkerId) -> None:
        self._store = store
        self._run_id = run_id
        self._worker_id = worker_id

    async def started(self, connections: int) -> None:
        now = await self._store.now()
        row = Result(run_id=self._run_id, worker_id=self._worker_id, connections=connections, started_at=now)
        await self._store.results.save([row])

    async def filed(self, files: Sequence[ClosedFile]) -> None:
        for file in files:
            await self._store.results.add_file(
                core.ExecutionFile(
                    run_id=self._run_id,
                    worker_id=self._worker_id,
                    path=str(file.path),
                    host=socket.gethostname(),
                    rows=file.rows,
                    size=file.size,
                )
            )

    async def finished(self, final: FinalFigures) -> None:
        stored = {row.kind: row for row in await self._store.results.list(self._run_id) if row.worker_id == self._worker_id}
        now = await self._store.now()
        whole = Result(
            run_id=self._run_id,
            worker_id=self._worker_id,
            status=RunStatus.COMPLETED,
            connections=final.connections,
            operations=final.tally.operations,
            reads=final.tally.reads,
            writes=final.tally.operations - final.tally.reads,
            errors=final.tally.errors,
            qps=final.tally.operations / final.seconds if final.seconds else None,
            latency=final.tally.response,
            custom_metrics=final.extra,
            started_at=stored[None].started_at if None in stored else None,
            ended_at=now,
        )
        kinds = [self._of_kind(name, kind, final) for name, kind in final.tally.by_kind().items()]
        await self._store.results.save([whole, *kinds])

    def _of_kind(self, name: str, kind: KindTally, final: FinalFigures) -> Result:
        return Result(
            run_id=self._run_id,
            worker_id=self._worker_id,
            kind=name,
            status=RunStatus.COMPLETED,
            operations=kind.operations,
            errors=kind.errors,
            qps=kind.operations / final.seconds if final.seconds else None,
            latency=kind.response,
        )
