"""Finds, in the rows of workers, the job types whose handler workers cannot load, so that their jobs wait. Pure functions."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from drumbeat.core.worker import NOT_LOADED, TYPES, Worker

RETRY_AFTER = timedelta(minutes=10)  #: then another worker is started for job types that could not be loaded


def types_not_loaded(
    workers: Sequence[Worker], changed_at: datetime | None = None, retry_since: datetime | None = None
) -> Mapping[str, str]:
    """Return the types whose handler the newest worker that tried could not load, with the cause.

    A type is left out if a live worker has loaded its handler. Failures count only if the worker was ready after
    ``changed_at`` (when a user last changed or resumed the pool) and, if it has ended, also after ``retry_since``.
    """
    tried = [(row.ready_at, row) for row in workers if row.ready_at is not None]
    counted = [
        (at, row)
        for at, row in tried
        if (changed_at is None or at > changed_at) and (row.is_live or retry_since is None or at > retry_since)
    ]
    found: dict[str, str] = {}
    for _, row in sorted(counted, key=lambda each: (each[0], each[1].worker_id)):
        found = {kind: cause for kind, cause in found.items() if not _has_loaded(row, kind)} | row.meta.get(NOT_LOADED, {})
    live = [row for _, row in tried if row.is_live]
    return {kind: cause for kind, cause in found.items() if not any(_has_loaded(row, kind) for row in live)}


def _has_loaded(row: Worker, kind: str) -> bool:
    return kind not in row.meta.get(NOT_LOADED, {}) and kind in row.meta.get(TYPES, (kind,))
