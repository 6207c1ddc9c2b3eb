"""A run's single operations a page at a time: from the store if they were loaded, else from the files its workers left here."""

import asyncio
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drumbeat.bench.driver.samples import Classify
from drumbeat.bench.results.executions import classify_of, execution_of, is_here, numbered, statements_of
from drumbeat.core.run import Execution, ExecutionFile, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import ExecutionOrder, Store

_DEEPEST = 100_000  #: rows that may be passed over in files


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionQuery:
    """Which operations, in which order, and which page of them."""

    kind: str | None = None
    ok: bool | None = None
    worker_id: WorkerId | None = None
    error_class: str | None = None
    error: str | None = None  #: an SQLSTATE, or what else the database calls it
    order: ExecutionOrder = "started_at"
    offset: int = 0
    limit: int = 50

    @property
    def reach(self) -> int:
        return min(self.offset, _DEEPEST) + self.limit


async def read_executions(store: Store, run_id: RunId, wanted: ExecutionQuery) -> Sequence[Execution]:
    """One page: the earliest first, or the longest. Files on other hosts are passed over."""
    if await store.executions.count(run_id):
        return await store.executions.list(
            run_id,
            kind=wanted.kind,
            ok=wanted.ok,
            worker_id=wanted.worker_id,
            error_class=wanted.error_class,
            error=wanted.error,
            order=wanted.order,
            offset=wanted.offset,
            limit=wanted.limit,
        )
    run = await store.runs.get(run_id)
    files = [file for file in await store.results.list_files(run_id) if is_here(file)]
    classify = classify_of(run)
    rows = await asyncio.to_thread(_page, files, wanted, classify)
    texts = statements_of(run)
    return [execution_of(run_id, file, number, row, texts, classify) for file, number, row in rows]


_Found = tuple[ExecutionFile, int, dict[str, Any]]


def _page(files: Sequence[ExecutionFile], wanted: ExecutionQuery, classify: Classify) -> list[_Found]:
    """Each file gives its own first rows; a page is made of the first of all."""
    mine = [each for each in numbered(files) if wanted.worker_id in (None, each[0].worker_id)]
    found = [row for file, first in mine for row in _first_rows(file, first, wanted, classify)]
    return heapq.nsmallest(wanted.reach, found, key=lambda each: _rank(each[2], wanted))[wanted.offset :]


def _first_rows(file: ExecutionFile, first: int, wanted: ExecutionQuery, classify: Classify) -> Iterator[_Found]:
    table = pq.read_table(file.path)
    table = table.append_column("n", pa.array(range(first, first + table.num_rows), pa.int64()))
    chosen = _chosen(table, wanted, classify)
    by, way = ("duration_us", "descending") if wanted.order == "duration_ms" else ("started_at", "ascending")
    places = pc.sort_indices(chosen, sort_keys=[(by, way)])[: wanted.reach]
    for row in chosen.take(places).to_pylist():
        yield file, row["n"], row


def _chosen(table: pa.Table, wanted: ExecutionQuery, classify: Classify) -> pa.Table:
    if wanted.ok is not None:
        table = table.filter(pc.equal(table["ok"], wanted.ok))
    if wanted.kind is not None:
        table = table.filter(pc.equal(table["kind"].cast(pa.string()), wanted.kind))
    if wanted.error_class is not None or wanted.error is not None:
        table = _failed(table, wanted, classify)
    return table


def _failed(table: pa.Table, wanted: ExecutionQuery, classify: Classify) -> pa.Table:
    """Rows that failed the way that is asked for. There are few ways, so each is looked at once."""
    table = table.filter(pc.invert(table["ok"]))
    codes = pc.fill_null(table["sqlstate"].cast(pa.string()), "")
    ways = pc.binary_join_element_wise(table["outcome"].cast(pa.string()), codes, " ")
    chosen = [way for way in pc.unique(ways).to_pylist() if _is_way(way, wanted, classify)]
    return table.filter(pc.is_in(ways, pa.array(chosen, pa.string())))


def _is_way(way: str, wanted: ExecutionQuery, classify: Classify) -> bool:
    outcome, _, code = way.partition(" ")
    return wanted.error in (None, code or None) and wanted.error_class in (None, classify(int(outcome), code))


def _rank(row: dict[str, Any], wanted: ExecutionQuery) -> Any:
    return -row["duration_us"] if wanted.order == "duration_ms" else row["started_at"]
