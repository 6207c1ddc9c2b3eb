"""Reads a run's recorded operations page by page: from the store if they were loaded, else from files on this host."""

import asyncio
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drumbeat.bench.driver.samples import Classify
from drumbeat.bench.results.executions import classify_of, execution_of, is_here, numbered, reading, statements_of
from drumbeat.core.run import Execution, ExecutionFile, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import ExecutionOrder, Store

_DEEPEST = 100_000  #: the largest offset when paging through files


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionQuery:
    """The filters, order and page of a query for recorded operations."""

    kind: str | None = None
    ok: bool | None = None
    worker_id: WorkerId | None = None
    error_class: str | None = None
    error: str | None = None  #: an SQLSTATE, or another error code of the database
    order: ExecutionOrder = "started_at"
    offset: int = 0
    limit: int = 50

    @property
    def reach(self) -> int:
        return min(self.offset, _DEEPEST) + self.limit


async def read_executions(store: Store, run_id: RunId, query: ExecutionQuery) -> Sequence[Execution]:
    """Return one page of a run's recorded operations, earliest or longest first. Files on other hosts are skipped."""
    if await store.executions.count(run_id):
        return await store.executions.list(
            run_id,
            kind=query.kind,
            ok=query.ok,
            worker_id=query.worker_id,
            error_class=query.error_class,
            error=query.error,
            order=query.order,
            offset=query.offset,
            limit=query.limit,
        )
    run = await store.runs.get(run_id)
    files = [file for file in await store.results.list_files(run_id) if is_here(file)]
    classify = classify_of(run)
    rows = await asyncio.to_thread(_page, files, query, classify)
    texts = statements_of(run)
    return [execution_of(run_id, file, number, row, texts, classify) for file, number, row in rows]


_Found = tuple[ExecutionFile, int, dict[str, Any]]


def _page(files: Sequence[ExecutionFile], query: ExecutionQuery, classify: Classify) -> list[_Found]:
    """Merge the matching rows of all files, in the query's order, and return the page that the query asks for."""
    mine = [each for each in numbered(files) if query.worker_id in (None, each[0].worker_id)]
    found = [row for file, first in mine for row in _first_rows(file, first, query, classify)]
    return heapq.nsmallest(query.reach, found, key=lambda each: _rank(each[2], query))[query.offset :]


def _first_rows(file: ExecutionFile, first: int, query: ExecutionQuery, classify: Classify) -> Iterator[_Found]:
    with reading(file):
        table = pq.read_table(file.path)
    table = table.append_column("n", pa.array(range(first, first + table.num_rows), pa.int64()))
    chosen = _chosen(table, query, classify)
    by, direction = ("duration_us", "descending") if query.order == "duration_ms" else ("started_at", "ascending")
    places = pc.sort_indices(chosen, sort_keys=[(by, direction)])[: query.reach]
    for row in chosen.take(places).to_pylist():
        yield file, row["n"], row


def _chosen(table: pa.Table, query: ExecutionQuery, classify: Classify) -> pa.Table:
    if query.ok is not None:
        table = table.filter(pc.equal(table["ok"], query.ok))
    if query.kind is not None:
        table = table.filter(pc.equal(table["kind"].cast(pa.string()), query.kind))
    if query.error_class is not None or query.error is not None:
        table = _failed(table, query, classify)
    return table


def _failed(table: pa.Table, query: ExecutionQuery, classify: Classify) -> pa.Table:
    """Return the rows of failed operations that have the error and error class that the query asks for."""
    table = table.filter(pc.invert(table["ok"]))
    codes = pc.fill_null(table["sqlstate"].cast(pa.string()), "")
    errors = pc.binary_join_element_wise(table["outcome"].cast(pa.string()), codes, " ")
    chosen = [error for error in pc.unique(errors).to_pylist() if _matches(error, query, classify)]
    return table.filter(pc.is_in(errors, pa.array(chosen, pa.string())))


def _matches(error: str, query: ExecutionQuery, classify: Classify) -> bool:
    outcome, _, code = error.partition(" ")
    return query.error in (None, code or None) and query.error_class in (None, classify(int(outcome), code))


def _rank(row: dict[str, Any], query: ExecutionQuery) -> Any:
    return -row["duration_us"] if query.order == "duration_ms" else row["started_at"]
