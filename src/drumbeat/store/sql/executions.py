"""SQL table ``executions``: single operations of benchmark runs, loaded in bulk (with COPY in PostgreSQL)."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from drumbeat.core.run import Execution, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import ExecutionOrder
from drumbeat.store.sql.database import Bulk, Database, Script
from drumbeat.store.sql.rows import at_us, execution_of
from drumbeat.store.sql.runs import no_run

BULK = 10_000  #: rows per transaction: enough to spread the cost of a commit, few enough that other writers do not wait long

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
        while batch := tuple(islice(remaining, BULK)):
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
        }
        return [execution_of(row) for row in await self._database.read(f"list_executions_by_{order}", values)]

    async def count(self, run_id: RunId) -> int:
        return int((await self._database.read("count_executions_of_run", {"run_id": run_id}))[0]["rows"])


def _load(batch: Sequence[Execution]) -> Script[int]:
    for run_id in sorted({one.run_id for one in batch}):
        if not (yield "keep_run", {"run_id": run_id}):
            raise no_run(run_id)
    loaded = yield "load_executions", Bulk(table="executions", columns=_COLUMNS, records=[_record(one) for one in batch])
    return int(loaded[0]["new"])


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
