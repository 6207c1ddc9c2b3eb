"""Deletes a run together with its workers' files on this host, and lists the files that are left, such as on other hosts."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drumbeat.bench.results.executions import is_here
from drumbeat.core.run import ExecutionFile, RunId
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """How many files of a deleted run were deleted, and which files are left."""

    files: int  #: number of deleted files
    left: tuple[str, ...]  #: files that could not be deleted, as ``host:path``


async def remove_run(store: Store, run_id: RunId) -> Removed:
    """Delete a run, its measurements, and its files on this host. Raises NotFound, and Refused while the run is under way."""
    await store.runs.get(run_id)
    files = await store.results.list_files(run_id)
    await store.runs.delete(run_id)
    deleted = await asyncio.to_thread(_delete_all, run_id, files)
    return Removed(files=len(deleted), left=tuple(f"{file.host}:{file.path}" for file in files if file not in deleted))


def _delete_all(run_id: RunId, files: Sequence[ExecutionFile]) -> list[ExecutionFile]:
    """Delete the files of a run that are on this host, and return the files that were deleted."""
    return [file for file in files if is_here(file) and _delete(run_id, Path(file.path))]


def _delete(run_id: RunId, path: Path) -> bool:
    """Delete a file of a run and return whether that worked. Only ``<run id>/<worker>/<file>.parquet`` is ever deleted."""
    if path.suffix != _SUFFIX or len(path.parts) < 3 or path.parts[-3] != run_id:
        return False
    try:
        path.unlink()
    except OSError as exc:
        log.warning("could not delete file %s of run %s: %s; delete it by hand", path, run_id, exc.strerror)
        return False
    with suppress(OSError):  # the folders go with their last file
        path.parent.rmdir()
        path.parent.parent.rmdir()
    return True
