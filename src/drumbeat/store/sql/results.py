"""SQL tables ``results`` (of benchmark runs) and ``execution_files`` (files that list their single operations)."""

from collections.abc import Sequence
from typing import Any

from drumbeat.core.lease import Fence
from drumbeat.core.run import ExecutionFile, Result, RunId
from drumbeat.store.sql.database import Database, Script, check_fence
from drumbeat.store.sql.rows import at_us, dump, latency_values, result_of
from drumbeat.store.sql.runs import no_run


class SqlResults:
    """Saves and lists the results of benchmark runs: one row for each run, worker and kind of operation."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, results: Sequence[Result], *, fence: Fence | None = None) -> None:
        await self._database.transact(_save(results, fence))

    async def list(self, run_id: RunId) -> Sequence[Result]:
        return [result_of(row) for row in await self._database.read("list_results", {"run_id": run_id})]

    async def add_file(self, file: ExecutionFile) -> None:
        await self._database.transact(_add_file(file))

    async def list_files(self, run_id: RunId) -> Sequence[ExecutionFile]:
        rows = await self._database.read("list_execution_files", {"run_id": run_id})
        return [
            ExecutionFile(
                run_id=row["run_id"],
                worker_id=row["worker_id"],
                path=row["path"],
                host=row["host"],
                rows=row["rows_kept"],
                size=row["bytes"],
            )
            for row in rows
        ]


def _add_file(file: ExecutionFile) -> Script[None]:
    if not (yield "keep_run", {"run_id": file.run_id}):
        raise no_run(file.run_id)
    yield "add_execution_file", {name: getattr(file, name) for name in ExecutionFile.__dataclass_fields__}


def _save(results: Sequence[Result], fence: Fence | None) -> Script[None]:
    yield from check_fence(fence)
    for result in results:
        if not (yield "save_result", _values(result)):
            raise no_run(result.run_id)


def _values(result: Result) -> dict[str, Any]:
    return {
        "run_id": result.run_id,
        "worker_id": result.worker_id or "",
        "kind": result.kind or "",
        "status": result.status,
        "connections": result.connections,
        "operations": result.operations,
        "reads": result.reads,
        "writes": result.writes,
        "errors": result.errors,
        "qps": result.qps,
        "find_max_result": None if result.find_max_result is None else dump(dict(result.find_max_result)),
        "failure_reason": result.failure_reason,
        "enrichment_status": result.enrichment_status,
        "enrichment_error": result.enrichment_error,
        "custom_metrics": dump(dict(result.custom_metrics)),
        "started_at": at_us(result.started_at),
        "ended_at": at_us(result.ended_at),
    } | latency_values(result.latency)
