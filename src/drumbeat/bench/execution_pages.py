"""A run's single operations a page at a time: from the store if they were loaded, else from the files its workers left here."""

import asyncio
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drumbeat.bench.executions import execution_of, is_here, numbered, statements_of
from drumbeat.core.run import Execution, ExecutionFile, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import ExecutionOrder, Store

_DEEPEST = 100_000  #: rows that may be passed over in files


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which operations, in which order, and which page of them."""

    kind: str | None = None
    ok: bool | None = None
    worker_id: WorkerId | None = None
    order: ExecutionOrder = "started_at"
    offset: int = 0
    limit: int = 50

    @property
    def reach(self) -> int:
        return min(self.offset, _DEEPEST) + self.limit


async def read_executions(store: Store, run_id: RunId, wanted: Wanted) -> Sequence[Execution]:
    """One page: the earliest first, or the longest. Files on other hosts are passed over."""
    if await store.executions.count(run_id):
        return await store.executions.list(
            run_id,
            kind=wanted.kind,
            ok=wanted.ok,
            worker_id=wanted.worker_id,
            order=wanted.order,
            offset=wanted.offset,
            limit=wanted.limit,
        )
    run = await store.runs.get(run_id)
    files = [file for file in await store.results.list_files(run_id) if is_here(file)]
    rows = await asyncio.to_thread(_page, files, wanted)
    texts = statements_of(run)
    return [execution_of(run_id, file, number, row, texts) for file, number, row in rows]


_Found = tuple[ExecutionFile, int, dict[str, Any]]


def _page(files: Sequence[ExecutionFile], wanted: Wanted) -> list[_Found]:
    """Each file gives its own first rows; a page is made of the first of all."""
    mine = [each for each in numbered(files) if wanted.worker_id in (None, each[0].worker_id)]
    found = [row for file, first in mine for row in _first_rows(file, first, wanted)]
    return heapq.nsmallest(wanted.reach, found, key=lambda each: _rank(each[2], wanted))[wanted.offset :]


def _first_rows(file: ExecutionFile, first: int, wanted: Wanted) -> Iterator[_Found]:
    table = pq.read_table(file.path)
    table = table.append_column("n", pa.array(range(first, first + table.num_rows), pa.int64()))
    chosen = _chosen(table, wanted)
    by, way = ("duration_us", "descending") if wanted.order == "duration_ms" else ("started_at", "ascending")
    places = pc.sort_indices(chosen, sort_keys=[(by, way)])[: wanted.reach]
    for row in chosen.take(places).to_pylist():
        yield file, row["n"], row


def _chosen(table: pa.Table, wanted: Wanted) -> pa.Table:
    if wanted.ok is not None:
        table = table.filter(pc.equal(table["ok"], wanted.ok))
    if wanted.kind is not None:
        table = table.filter(pc.equal(table["kind"].cast(pa.string()), wanted.kind))
    return table


def _rank(row: dict[str, Any], wanted: Wanted) -> Any:
    return -row["duration_us"] if wanted.order == "duration_ms" else row["started_at"]
