"""Finds the completed runs before a run that can be compared with it, however many other runs are in the store."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from drumbeat.bench.results.compare.baseline import is_same_kind
from drumbeat.core.run import Run, RunStatus
from drumbeat.store.interface import Store

_PAGE = 50  #: runs read at a time


async def earlier_runs(store: Store, run: Run, within: timedelta) -> AsyncIterator[Run]:
    """Yield the completed runs of the same kind (see ``is_same_kind``) that were created before ``run``, at most ``within``
    before it, newest first. The store leaves out runs of other kinds, so that they cost little."""
    since = run.created_at - within if run.created_at else None
    filters = {"statuses": (RunStatus.COMPLETED,), "since": since, "until": run.created_at, **_kind(run)}
    offset, more = 0, True
    while more:
        page = await store.runs.list(**filters, offset=offset, limit=_PAGE)
        for other in page:
            if other.run_id != run.run_id and is_same_kind(other, run):
                yield other
        offset, more = offset + len(page), len(page) == _PAGE


def _kind(run: Run) -> dict[str, Any]:
    """Return the filter that leaves out runs of other kinds in the store: template, configuration or name."""
    if run.template_id is not None:
        return {"template_id": run.template_id}
    if run.config.get("config_hash") is not None:
        return {"config_hash": run.config["config_hash"]}
    return {"search": run.name}
