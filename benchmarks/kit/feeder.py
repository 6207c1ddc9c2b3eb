"""Simulated workers that send the heartbeats and samples of busy ones once a second: feeder.py STORE RUN_ID WORKERS

They join when their rows exist, become active when the run begins, and never exit. They run in a separate process, so that
their cost is not part of the measured orchestrator's.
"""

import asyncio
import base64
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunStatus
from drumbeat.core.sample import Sample
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store import open_store
from drumbeat.store.interface import Heartbeat, JoinRequest, Store

KINDS = {"POINT_LOOKUP": 300, "RANGE_SCAN": 300, "INSERT": 200, "UPDATE": 200}  #: operations a second
CONNECTIONS = 10


def typical(chance: random.Random) -> Sample:
    """Return the sample of one second of a worker: four kinds of operations with two histograms each, and the client's cost."""
    whole, kinds = Histogram(), dict[str, Any]()
    for kind, count in KINDS.items():
        latency = Histogram()
        latency.record_all([int(chance.lognormvariate(15, 0.6)) for _ in range(count)])
        packed = base64.b64encode(latency.to_bytes()).decode()
        kinds[kind] = {"operations": count, "errors": 0, "response": packed, "service": packed}
        whole.merge(latency)
    client = {"cpu_us_per_op": 20.0, "busy": 0.2, "loop_lag_ms": 0.5, "send_lag_p99_ms": 0.1, "was_the_limit": False}
    return Sample(
        n=0,
        interval=timedelta(seconds=1),
        phase="MEASUREMENT",
        operations=sum(KINDS.values()),
        reads=600,
        writes=400,
        latency=whole,
        active=CONNECTIONS,
        target=CONNECTIONS,
        cpu_percent=20.0,
        memory_percent=20.0,
        extra={"kinds": kinds, "held": CONNECTIONS, "client": client},
    )


class Fed:
    """One simulated worker."""

    def __init__(self, store: Store, pool_id: PoolId, n: int, samples: Sequence[Sample]) -> None:
        self._store = store
        self._pool_id = pool_id
        self._n = n
        self._me = WorkerId(f"worker-{n}")
        self._samples = samples
        self._status = WorkerStatus.STARTING

    async def live(self, offset: float) -> None:
        joining = JoinRequest(pool_id=self._pool_id, worker_id=self._me, slot=self._n, instance=self._me, host="here", pid=1)
        await self._store.membership.join(joining)
        await self._move(WorkerStatus.WAITING)
        due, read_to, beats = time.monotonic() + offset, 0, 0
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            orders = await self._store.membership.beat(self._heartbeat(read_to, beats))
            read_to, beats, due = orders.read_to, beats + 1, due + 1
            if orders.run_status is RunStatus.RUNNING and self._status is WorkerStatus.WAITING:
                await self._move(WorkerStatus.ACTIVE)

    async def _move(self, to: WorkerStatus) -> None:
        await self._store.membership.move(self._pool_id, self._me, self._me, to, "fed")
        self._status = to

    def _heartbeat(self, read_to: int, beats: int) -> Heartbeat:
        works = self._status is WorkerStatus.ACTIVE
        return Heartbeat(
            pool_id=self._pool_id,
            worker_id=self._me,
            instance=self._me,
            read_to=read_to,
            phase="MEASUREMENT" if works else None,
            applied_target=CONNECTIONS,
            active=CONNECTIONS,
            operations=1000 * beats,
            cpu_percent=20.0,
            memory_percent=20.0,
            sample=replace(self._samples[(self._n + beats) % len(self._samples)], n=beats) if works else None,
        )


async def _rows(store: Store, pool_id: PoolId, workers: int) -> None:
    while len(await store.workers.list(pool_id)) < workers:
        await asyncio.sleep(0.1)


async def main(url: str, run_id: str, workers: int) -> None:
    samples = [typical(random.Random(seed)) for seed in range(16)]
    async with open_store(url) as store, asyncio.TaskGroup() as group:
        await _rows(store, PoolId(run_id), workers)
        for n in range(workers):
            group.create_task(Fed(store, PoolId(run_id), n, samples).live(n / workers))


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
