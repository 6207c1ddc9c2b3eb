"""Writes a row for every operation to Parquet files, in a separate thread, so that a slow disk never slows the load.

A file is closed after ``FILE_ROWS`` rows or ``FILE_SECONDS`` and gets its final name only then. So every ``.parquet`` file is
complete, and a killed worker loses only the last seconds. Rows lost to a full or slow disk are counted and logged.
"""

import logging
import os
import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drumbeat.bench.driver.records import OK, Records

log = logging.getLogger(__name__)

FILE_ROWS = 500_000
FILE_SECONDS = 5.0
_MOST_WAITING = 64  #: batches in the queue; more are dropped, because a slow disk must not slow the load


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedFile:
    """A finished Parquet file: its path, number of rows and size in bytes."""

    path: Path
    rows: int
    size: int


@dataclass(slots=True)
class LostRows:
    """Counts the rows that could not be written, by reason."""

    rows: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  #: the load and the writing thread both call ``add``

    def add(self, rows: int, reason: str) -> None:
        with self._lock:
            is_new = reason not in self.reasons
            self.rows += rows
            self.reasons[reason] = self.reasons.get(reason, 0) + rows
        if is_new:
            log.warning("some operations are missing in the Parquet files: %s; the load continues", reason)


class ExecutionWriter:
    """Writes records of operations to Parquet files in a folder: all of them, or a random share if ``sampling`` is below 1."""

    def __init__(
        self,
        folder: Path,
        kinds: list[str],
        *,
        wall_offset_ns: int,
        sampling: float = 1.0,
    ) -> None:
        self._folder = folder
        self._kinds = pa.array(kinds)
        self._wall_offset_ns = wall_offset_ns
        self._sampling = sampling
        self._chance = np.random.default_rng(0)
        self._waiting: queue.Queue[tuple[Records, bool] | None] = queue.Queue(_MOST_WAITING)
        self._open: _OpenFile | None = None
        self._count = 0
        self.loss = LostRows()
        self.files: list[ClosedFile] = []
        self._thread = threading.Thread(target=self._work, name="executions", daemon=True)
        self._thread.start()

    def keep(self, records: Records, *, warmup: bool) -> None:
        """Queue records for writing, without waiting for the disk. ``warmup``: whether they are outside the measurement."""
        if self._sampling < 1.0:
            records = records[self._chance.random(len(records)) < self._sampling]
        if not len(records):
            return
        try:
            self._waiting.put_nowait((records, warmup))
        except queue.Full:
            self.loss.add(len(records), "the disk is too slow")

    def close(self) -> None:
        """Write the queued records and close the last file."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                item = self._waiting.get(timeout=1.0)
            except queue.Empty:
                self._close_if_due()
                continue
            if item is None:
                self._close_file()
                return
            self._write(*item)
            self._close_if_due()

    def _write(self, records: Records, warmup: bool) -> None:
        try:
            if self._open is None:
                self._open = _OpenFile(self._folder, self._count)
                self._count += 1
            self._open.write(self._table(records, warmup))
        except OSError as exc:
            self._give_up(len(records), exc)

    def _give_up(self, rows: int, exc: OSError) -> None:
        """After a write error: count these rows and all rows of the open file as lost, and delete the file."""
        lost, self._open = self._open, None
        self.loss.add(rows + (lost.rows if lost else 0), exc.strerror or str(exc))
        if lost is not None:
            lost.discard()

    def _close_if_due(self) -> None:
        if self._open is not None and self._open.is_due:
            self._close_file()

    def _close_file(self) -> None:
        if self._open is None:
            return
        try:
            closed = self._open.close()
        except OSError as exc:
            self._give_up(0, exc)
            return
        self._open = None
        self.files.append(closed)

    def _table(self, records: Records, warmup: bool) -> pa.Table:
        started = (records["start"] + self._wall_offset_ns) // 1000
        lag = records["start"] - records["due"]
        columns: dict[str, Any] = {
            "started_at": pa.array(started, pa.timestamp("us", tz="UTC")),
            "duration_us": pa.array(records["duration"] / 1000.0),
            "response_us": pa.array((records["duration"] + lag) / 1000.0),
            "kind": pa.DictionaryArray.from_arrays(pa.array(records["kind"].astype(np.int32)), self._kinds),
            "connection": pa.array(np.ascontiguousarray(records["connection"])),
            "ok": pa.array(records["outcome"] == OK),
            "outcome": pa.array(np.ascontiguousarray(records["outcome"])),
            "sqlstate": pa.array([bytes(each).decode() or None for each in records["sqlstate"]], pa.string())
            if (records["outcome"] != OK).any()
            else pa.nulls(len(records), pa.string()),
            "rows": pa.array(np.ascontiguousarray(records["rows"])),
            "warmup": pa.array(np.full(len(records), warmup)),
        }
        return pa.table(columns)


def _make_private(folder: Path) -> None:
    """Create a folder and its missing parents, readable only by this user, because the files show what was executed."""
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


class _OpenFile:
    """A Parquet file being written. It is named ``.unfinished`` until it is complete."""

    def __init__(self, folder: Path, number: int) -> None:
        _make_private(folder)
        self._path = folder / f"{number:05d}.parquet"
        self._unfinished = self._path.with_suffix(".unfinished")
        self._writer: pq.ParquetWriter | None = None
        self._file: IO[bytes] | None = None
        self._opened = time.monotonic()
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._file = os.fdopen(os.open(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
            self._writer = pq.ParquetWriter(self._file, table.schema, compression="zstd")
        self._writer.write_table(table)
        self.rows += table.num_rows

    @property
    def is_due(self) -> bool:
        return self.rows >= FILE_ROWS or time.monotonic() - self._opened > FILE_SECONDS

    def close(self) -> ClosedFile:
        if self._writer is not None:
            self._writer.close()
        if self._file is not None:
            self._file.close()
        self._unfinished.rename(self._path)
        return ClosedFile(path=self._path, rows=self.rows, size=self._path.stat().st_size)

    def discard(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        self._unfinished.unlink(missing_ok=True)
