"""SQL table ``executions``: single operations of benchmark runs, loaded in bulk (with COPY in PostgreSQL)."""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from drumbeat.core.run import Execution, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import ExecutionOrder, ExecutionPosition
from drumbeat.store.sql.database import Bulk, Database, Rows, Script
from drumbeat.store.sql.rows import at_us, execution_of
from drumbeat.store.sql.runs import no_run

BULK = 10_000  #: rows per transaction: enough to spread the cost of a commit, few enough that other writers do not wait long
_FEW = 1_000  #: so many rows are converted in a few milliseconds

_COLUMNS = (
    "run_id",
    "worker_id",
    "n",
    "connection",
    "kind",
    "started_at",
    "duration_ms",
    "ok",
    "error_class",
    "error",
    "rows_affected",
    "warmup",
    "query_text",
)


class SqlExecutions:
    """Inserts, lists and counts records of the single operations of benchmark runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, executions: Iterable[Execution]) -> int:
        remaining = iter(executions)
        new = 0
        while (batch := await asyncio.to_thread(_next_batch, remaining)).records:
            new += await self._database.transact(_load(batch))
        return new

    async def list(
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
        values = {
            "run_id": run_id,
            "kind": kind,
            "ok": None if ok is None else int(ok),
            "worker_id": worker_id,
            "error_class": error_class,
            "error": error,
            "offset": offset,
            "limit": limit,
            **_after(after, order),
        }
        is_failed = ok is False or error_class is not None or error is not None
        rows = await self._database.read(_list_query(order, is_failed=is_failed), values)
        return await asyncio.to_thread(_executions, rows) if len(rows) > _FEW else _executions(rows)

    async def count(self, run_id: RunId, *, worker_id: WorkerId | None = None) -> int:
        values = {"run_id": run_id, "worker_id": worker_id}
        return int((await self._database.read("count_executions_of_run", values))[0]["rows"])


@dataclass(frozen=True, slots=True)
class _Batch:
    """Executions to insert in one transaction, converted to rows of the table."""

    runs: Sequence[RunId]
    records: Sequence[tuple[Any, ...]]


def _next_batch(remaining: Iterator[Execution]) -> _Batch:
    """Take the next executions and convert them. This takes long enough to disturb the event loop, so it runs in a thread."""
    batch = list(islice(remaining, BULK))
    return _Batch(sorted({one.run_id for one in batch}), [_record(one) for one in batch])


def _list_query(order: ExecutionOrder, *, is_failed: bool) -> str:
    """Return the name of the query that reads the fewest rows. ``is_failed``: whether only failed operations are listed."""
    if order == "started_at":
        return "list_executions_by_started_at"
    return "list_failed_executions_by_duration_ms" if is_failed else "list_executions_by_duration_ms"


def _executions(rows: Rows) -> Sequence[Execution]:
    return [execution_of(row) for row in rows]


def _load(batch: _Batch) -> Script[int]:
    for run_id in batch.runs:
        if not (yield "keep_run", {"run_id": run_id}):
            raise no_run(run_id)
    loaded = yield "load_executions", Bulk(table="executions", columns=_COLUMNS, records=batch.records)
    return int(loaded[0]["new"])


def _after(after: ExecutionPosition | None, order: ExecutionOrder) -> dict[str, Any]:
    """Return the values for the position after which a page begins; without one, a position before all executions."""
    if after is None:
        first: float = sys.float_info.max if order == "duration_ms" else -(2**63)
        return {"after": first, "after_worker": "", "after_n": -1}
    by = at_us(after.by) if isinstance(after.by, datetime) else after.by
    return {"after": by, "after_worker": after.worker_id, "after_n": after.n}


def _record(one: Execution) -> tuple[Any, ...]:
    return (
        one.run_id,
        one.worker_id,
        one.n,
        one.connection,
        one.kind,
        at_us(one.started_at),
        one.duration_ms,
        int(one.ok),
        one.error_class,
        one.error,
        one.rows,
        int(one.warmup),
        one.query_text,
    )
