"""Executions in memory: one row for each single operation of a benchmark run."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from drumbeat.core.pool import PoolId
from drumbeat.core.run import Execution, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import ExecutionOrder, ExecutionPosition
from drumbeat.store.memory.state import MemoryTable, operation

_BATCH = 10_000


class MemoryExecutions(MemoryTable):
    async def load(self, executions: Iterable[Execution]) -> int:
        remaining = iter(executions)
        new = 0
        while batch := await asyncio.to_thread(_next_batch, remaining):
            new += await self._keep(batch)
        return new

    @operation
    def _keep(self, batch: Sequence[Execution]) -> int:
        tables = [(self.state.run_rows(one.run_id)[0].executions, one) for one in batch]
        new = 0
        for table, one in tables:
            new += (one.worker_id, one.n) not in table
            table.setdefault((one.worker_id, one.n), one)
        return new

    @operation
    def list(
        self,
        run_id: RunId,
        *,
        kind: str | None = None,
        ok: bool | None = None,
        worker_id: WorkerId | None = None,
        error_class: str | None = None,
        error: str | None = None,
        order: ExecutionOrder = "started_at",
        after: ExecutionPosition | None = None,
        offset: int = 0,
        limit: int = 1000,
    ) -> Sequence[Execution]:
        rows = self.state.pools.get(PoolId(run_id))
        chosen = [
            one
            for one in (rows.executions.values() if rows else ())
            if kind in (None, one.kind)
            and ok in (None, one.ok)
            and worker_id in (None, one.worker_id)
            and error_class in (None, one.error_class)
            and error in (None, one.error)
        ]
        placed = sorted(((ExecutionPosition.of(one, order).key, one) for one in chosen), key=lambda each: each[0])
        behind = [one for key, one in placed if after is None or key > after.key]
        return behind[offset : offset + limit]

    @operation
    def count(self, run_id: RunId, *, worker_id: WorkerId | None = None) -> int:
        rows = self.state.pools.get(PoolId(run_id))
        return sum(worker_id in (None, one.worker_id) for one in rows.executions.values()) if rows else 0


def _next_batch(remaining: Iterator[Execution]) -> Sequence[Execution]:
    return tuple(islice(remaining, _BATCH))
