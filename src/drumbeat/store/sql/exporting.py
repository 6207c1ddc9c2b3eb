"""Exports ended benchmark runs to another SQL store: the run, its workers, events, samples, steps, results and executions.

The rows are written in several transactions, and the run's own row is written last. So an interrupted export leaves no visible
run in the target, and the next export of the same run first deletes the rows that were left. A run that was exported before is
replaced if it has changed in the source, and skipped otherwise.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from drumbeat.core.errors import NotFound, Refused
from drumbeat.core.run import RUN_ENDED, RunId, RunStatus
from drumbeat.store.interface import CopyObserver, ExportedRun
from drumbeat.store.sql.copying import table_descriptions
from drumbeat.store.sql.database import Bulk, Database, Row, Script, TransactionTooLong
from drumbeat.store.sql.queries import SqlTable

_CHUNK_ROWS = 2_000
_EVERY_STATUS = "," + ",".join(sorted(RUN_ENDED)) + ","
_NO_FILTER = dict.fromkeys(("search", "template_id", "load_mode", "scaling_mode", "config_hash", "since", "until"))
_PAGE = 500

#: The tables of a run, in the order in which they are written. Connections are not among them: they have secrets.
_TABLES = (
    "workers",
    "events",
    "beats",
    "samples",
    "logs",
    "steps",
    "results",
    "executions",
    "execution_files",
    "pools",
    "runs",
)


@dataclass(slots=True)
class RunExport:
    """Exports runs from ``source`` to ``target``; both are open, and their tables are of the latest version."""

    source: Database
    target: Database
    observer: CopyObserver
    _rows: int = field(default=0, init=False)

    async def run(self, run_ids: Sequence[RunId]) -> list[ExportedRun]:
        """Export these runs; if ``run_ids`` is empty, all ended runs. Raises NotFound, or Refused if a run has not ended."""
        found = [await self._ended(run_id) for run_id in run_ids] if run_ids else [row async for row in self._all_ended()]
        tables = {table.name: table for table in await table_descriptions(self.source)}
        for database in (self.source, self.target):
            database.add_table_queries(tables.values())
        return [await self._export(run, [tables[name] for name in _TABLES]) for run in found]

    async def _ended(self, run_id: RunId) -> Row:
        rows = await self.source.read("find_run", {"run_id": run_id})
        if not rows:
            raise NotFound(f"there is no run {run_id!r}; see: drumbeat bench list")
        if RunStatus(rows[0]["status"]) not in RUN_ENDED:
            raise Refused(f"run {run_id} is {rows[0]['status']}; only a run that has ended can be exported")
        return rows[0]

    async def _all_ended(self) -> AsyncIterator[Row]:
        offset = 0
        while rows := await self.source.read(
            "list_runs", {**_NO_FILTER, "statuses": _EVERY_STATUS, "limit": _PAGE, "offset": offset}
        ):
            for row in rows:
                yield row
            offset += len(rows)

    async def _export(self, run: Row, tables: Sequence[SqlTable]) -> ExportedRun:
        run_id = RunId(run["run_id"])
        present = await self.target.read("find_run", {"run_id": run_id})
        if present and RunStatus(present[0]["status"]) not in RUN_ENDED:
            raise Refused(
                f"run {run_id} exists in {self.target.location} and is {present[0]['status']}; "
                "only an ended run can be replaced: stop it there first"
            )
        if present and present[0]["updated_at"] == run["updated_at"]:
            return ExportedRun(run_id=run_id, rows=0)
        await self.target.transact(_remove(run_id, tables))
        before = self._rows
        for table in tables:
            await self._copy(run_id, table)
        return ExportedRun(run_id=run_id, rows=self._rows - before)

    async def _copy(self, run_id: RunId, table: SqlTable) -> None:
        offset, limit = 0, _CHUNK_ROWS
        while rows := await self.source.read(f"run_rows_{table.name}", {"run_id": run_id, "limit": limit, "offset": offset}):
            try:
                await self.target.transact(_insert(table, rows))
            except TransactionTooLong:
                if len(rows) == 1:
                    raise
                limit = len(rows) // 2
                continue
            offset += len(rows)
            self._rows += len(rows)
            self.observer.progress("exported", self._rows)
            if len(rows) < limit:
                break


def _remove(run_id: RunId, tables: Sequence[SqlTable]) -> Script[None]:
    for table in tables:
        yield f"run_remove_{table.name}", {"run_id": run_id}


def _insert(table: SqlTable, rows: Sequence[Any]) -> Script[None]:
    yield f"copy_into_{table.name}", Bulk(table=table.name, columns=table.columns, records=[tuple(row) for row in rows])
