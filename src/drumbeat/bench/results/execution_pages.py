"""Reads a run's recorded operations page by page: from the store, and from files on this host that were not loaded yet."""

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drumbeat.bench.driver.samples import Classify
from drumbeat.bench.results.executions import classify_of, execution_of, is_here, numbered, reading, statements_of
from drumbeat.core.run import Execution, ExecutionFile, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import ExecutionOrder, ExecutionPosition, Store

_DEEPEST = 100_000  #: the largest offset when paging through files

_Numbered = tuple[ExecutionFile, int]  #: a file, and the number of its first row
_TIME = pa.timestamp("us", tz="UTC")
_LAST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionQuery:
    """The filters, order and page of a query for recorded operations."""

    kind: str | None = None
    ok: bool | None = None
    worker_id: WorkerId | None = None
    error_class: str | None = None
    error: str | None = None  #: an SQLSTATE, or another error code of the database
    order: ExecutionOrder = "started_at"
    after: ExecutionPosition | None = (
        None  #: only operations behind this position; pages far behind cost no more than the first
    )
    offset: int = 0
    limit: int = 50

    @property
    def reach(self) -> int:
        return min(self.offset, _DEEPEST) + self.limit


async def read_executions(store: Store, run_id: RunId, query: ExecutionQuery) -> Sequence[Execution]:
    """Return one page of a run's recorded operations, earliest or longest first. Files on other hosts are skipped."""
    files = await _files_to_read(store, run_id)
    if not files:
        return await _stored(store, run_id, query, query.offset, query.limit)
    run = await store.runs.get(run_id)
    in_files = await asyncio.to_thread(_first_of_all, files, query, statements_of(run), classify_of(run))
    stored = await _stored(store, run_id, query, 0, query.reach)
    return (await asyncio.to_thread(_first, [*in_files, *stored], query))[query.offset :]


async def _files_to_read(store: Store, run_id: RunId) -> Sequence[_Numbered]:
    """Return the files on this host that may have operations which are not in the store, with the numbers of their first rows:
    all files of the workers of which the store has fewer operations than their files."""
    numbers = list(numbered(await store.results.list_files(run_id)))
    recorded: Counter[WorkerId] = Counter()
    for file, _ in numbers:
        recorded[file.worker_id] += file.rows
    if await store.executions.count(run_id) >= recorded.total():
        return ()
    here = [(file, first) for file, first in numbers if is_here(file)]
    workers = {file.worker_id for file, _ in here}
    loaded = {each: await store.executions.count(run_id, worker_id=each) for each in workers}
    return [(file, first) for file, first in here if loaded[file.worker_id] < recorded[file.worker_id]]


async def _stored(store: Store, run_id: RunId, query: ExecutionQuery, offset: int, limit: int) -> Sequence[Execution]:
    return await store.executions.list(
        run_id,
        kind=query.kind,
        ok=query.ok,
        worker_id=query.worker_id,
        error_class=query.error_class,
        error=query.error,
        order=query.order,
        after=query.after,
        offset=offset,
        limit=limit,
    )


def _first(found: Iterable[Execution], query: ExecutionQuery) -> Sequence[Execution]:
    """Return the first operations in the query's order, up to the end of its page. An operation that is found twice, in a file
    and in the store, is returned once."""
    whole = {(each.worker_id, each.n): each for each in found}
    return heapq.nsmallest(query.reach, whole.values(), key=lambda each: ExecutionPosition.of(each, query.order).key)


def _first_of_all(
    files: Sequence[_Numbered], query: ExecutionQuery, texts: dict[str, str], classify: Classify
) -> Sequence[Execution]:
    """Return the first matching operations of all files, in the query's order, up to the end of its page."""
    found: Sequence[Execution] = ()
    for file, first in files:
        if query.worker_id in (None, file.worker_id):
            rows = _first_rows(file, first, query, classify)
            found = _first([*found, *(execution_of(file.run_id, file, row["n"], row, texts, classify) for row in rows)], query)
    return found


def _first_rows(file: ExecutionFile, first: int, query: ExecutionQuery, classify: Classify) -> Sequence[dict[str, Any]]:
    with reading(file):
        table = pq.read_table(file.path)
    table = table.append_column("n", pa.array(range(first, first + table.num_rows), pa.int64()))
    chosen = _chosen(table, query, classify)
    by, direction = ("duration_us", "descending") if query.order == "duration_ms" else ("started_at", "ascending")
    behind = chosen if query.after is None else chosen.filter(_is_behind(chosen, file.worker_id, query.after))
    places = pc.sort_indices(behind, sort_keys=[(by, direction), ("n", "ascending")])[: query.reach]
    rows: list[dict[str, Any]] = behind.take(places).to_pylist()
    return rows


def _is_behind(table: pa.Table, worker_id: WorkerId, after: ExecutionPosition) -> Any:
    """Return, for each row of a worker's file, whether it is behind a position in the list of operations."""
    if isinstance(after.by, datetime):
        by, earlier = pc.subtract(_microseconds(table["started_at"]), _microseconds(pa.scalar(after.by, _TIME))), pc.greater
    else:
        by, earlier = pc.subtract(pc.divide(table["duration_us"], 1000.0), after.by), pc.less
    is_same = pc.equal(by, 0)
    follows = pc.greater(table["n"], after.n if worker_id == after.worker_id else -1 if worker_id > after.worker_id else _LAST)
    return pc.or_(earlier(by, 0), pc.and_(is_same, follows))


def _microseconds(times: Any) -> Any:
    return times.cast(_TIME).cast(pa.int64())


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
