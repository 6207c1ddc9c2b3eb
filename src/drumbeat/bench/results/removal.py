"""A run is removed with the files its workers left; those on other machines can only be told of."""

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

_ENDING = ".parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What became of a removed run's files."""

    files: int  #: deleted
    left: tuple[str, ...]  #: that could not be, each with its host


async def remove_run(store: Store, run_id: RunId) -> Removed:
    """Delete a run, what was measured in it, and its files on this host. Raises NotFound, and Refused while it is under way."""
    await store.runs.get(run_id)
    files = await store.results.list_files(run_id)
    await store.runs.delete(run_id)
    deleted = await asyncio.to_thread(_delete_all, run_id, files)
    return Removed(files=len(deleted), left=tuple(f"{file.host}:{file.path}" for file in files if file not in deleted))


def _delete_all(run_id: RunId, files: Sequence[ExecutionFile]) -> list[ExecutionFile]:
    """Those that are gone then."""
    return [file for file in files if is_here(file) and _delete(run_id, Path(file.path))]


def _delete(run_id: RunId, path: Path) -> bool:
    """Whether it is gone. Only what lies as a worker lays it, in a folder of its own in one of the run's, is taken for ours."""
    if path.suffix != _ENDING or len(path.parts) < 3 or path.parts[-3] != run_id:
        return False
    try:
        path.unlink()
    except OSError as exc:
        log.warning("%s could not be deleted: %s", path, exc.strerror)
        return False
    with suppress(OSError):  # the last one clears the room
        path.parent.rmdir()
        path.parent.parent.rmdir()
    return True
