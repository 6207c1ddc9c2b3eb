"""Results in memory: the totals of a benchmark run, and its files of single operations."""

from collections.abc import Sequence

from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.run import ExecutionFile, Result, RunId
from drumbeat.store.memory.state import MemoryTable, operation


class MemoryResults(MemoryTable):
    @operation
    def save(self, results: Sequence[Result], *, fence: Fence | None = None) -> None:
        self.state.admit(fence)
        for result in results:
            self.state.run_rows(result.run_id)
        for result in results:
            self.state.pools[PoolId(result.run_id)].results[result.worker_id or "", result.kind or ""] = result

    @operation
    def list(self, run_id: RunId) -> Sequence[Result]:
        rows = self.state.pools.get(PoolId(run_id))
        return [rows.results[key] for key in sorted(rows.results)] if rows else []

    @operation
    def add_file(self, file: ExecutionFile) -> None:
        self.state.run_rows(file.run_id)[0].files.setdefault((file.worker_id, file.path), file)

    @operation
    def list_files(self, run_id: RunId) -> Sequence[ExecutionFile]:
        rows = self.state.pools.get(PoolId(run_id))
        return [rows.files[key] for key in sorted(rows.files)] if rows else []
