"""Copies a run's recorded operations from its workers' Parquet files into the store's ``executions`` table, on request."""

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drumbeat.bench.driver.samples import Classify
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.targets.terms import CLASSES
from drumbeat.bench.workloads.config import load_of
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.core.run import Execution, ExecutionFile, Run, RunId
from drumbeat.store.interface import Store

_BATCH = 50_000  #: rows read from a file at a time

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """How many files and rows were copied, and which files could not be read."""

    files: int
    rows: int  #: rows that were not in the store before
    elsewhere: tuple[str, ...]  #: files that are on other hosts or deleted


async def load_executions(store: Store, run_id: RunId) -> LoadReport:
    """Copy the recorded operations of all files on this host. Safe to repeat: rows already in the store are skipped."""
    run = await store.runs.get(run_id)
    files = await store.results.list_files(run_id)
    here = [(file, first) for file, first in numbered(files) if is_here(file)]
    texts, classify = statements_of(run), classify_of(run)
    rows = 0
    for file, first in here:
        rows += await store.executions.load(_executions(run_id, file, first, texts, classify))
    return LoadReport(files=len(here), rows=rows, elsewhere=tuple(file.path for file in files if not is_here(file)))


def is_here(file: ExecutionFile) -> bool:
    """Whether a file can be read from this host."""
    return file.host == socket.gethostname() and Path(file.path).is_file()


async def folders_elsewhere(store: Store, run_id: RunId) -> tuple[str, ...]:
    """Return the folders on other hosts, as ``host:folder``, that contain files of a run's recorded operations."""
    files = [file for file in await store.results.list_files(run_id) if file.host != socket.gethostname()]
    return tuple(sorted({f"{file.host}:{PurePosixPath(file.path).parent.parent}" for file in files}))


def statements_of(run: Run) -> dict[str, str]:
    """Return the SQL of each kind of operation, without parameter values; empty if the workload is invalid."""
    block = run.config.get("workload")
    if not isinstance(block, dict):
        return {}
    try:
        return {str(each.kind): "; ".join(statement.sql for statement in each.statements) for each in load_of(block).used}
    except InvalidInput as exc:
        log.info("showing the operations of run %s without SQL, as its workload is no longer valid: %s", run.run_id, exc)
        return {}


def classify_of(run: Run) -> Classify:
    """Return a function that classifies errors by outcome and SQLSTATE. If the target cannot be opened, it ignores SQLSTATE."""
    try:
        return open_target(str((run.config.get("target") or {}).get("url") or "")).classify
    except DrumbeatError as exc:
        log.info("classifying errors of run %s without SQLSTATE, as its database cannot be opened: %s", run.run_id, exc)
        return lambda outcome, _: CLASSES[outcome]


def numbered(files: Sequence[ExecutionFile]) -> Iterator[tuple[ExecutionFile, int]]:
    """Yield each file with the number of its first row. Rows are numbered over all files of a worker, from 0: also over files
    that are elsewhere or deleted, so that a row always has the same number."""
    counted: dict[str, int] = {}
    for file in sorted(files, key=lambda file: (file.worker_id, file.path)):
        yield file, counted.get(file.worker_id, 0)
        counted[file.worker_id] = counted.get(file.worker_id, 0) + file.rows


def _executions(
    run_id: RunId, file: ExecutionFile, first: int, texts: dict[str, str], classify: Classify
) -> Iterator[Execution]:
    number = first
    with reading(file):
        for batch in pq.ParquetFile(file.path).iter_batches(_BATCH):
            for row in batch.to_pylist():
                yield execution_of(run_id, file, number, row, texts, classify)
                number += 1


@contextmanager
def reading(file: ExecutionFile) -> Iterator[None]:
    """Raise InvalidInput if the block fails to read the file because it is damaged or was deleted meanwhile."""
    try:
        yield
    except (pa.ArrowException, OSError) as exc:
        raise InvalidInput(
            f"expected a Parquet file with recorded operations, got {file.path}, which cannot be read ({exc}); restore it, or "
            "delete it to see the operations in the other files"
        ) from exc


def execution_of(
    run_id: RunId, file: ExecutionFile, number: int, row: dict[str, Any], texts: dict[str, str], classify: Classify
) -> Execution:
    """Convert one row of a file to an Execution (one recorded operation)."""
    failed = classify(row["outcome"], row["sqlstate"] or "")
    return Execution(
        run_id=run_id,
        worker_id=file.worker_id,
        n=number,
        connection=row["connection"],
        kind=row["kind"],
        started_at=row["started_at"],
        duration_ms=row["duration_us"] / 1000,
        ok=row["ok"],
        error_class=failed,
        error=row["sqlstate"] if failed else None,
        rows=row["rows"],
        warmup=row["warmup"],
        query_text=texts.get(row["kind"]),
    )
