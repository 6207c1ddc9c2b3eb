"""Copies a whole store to another database, compares two stores, or exports runs. Each store is given by its URL."""

from collections.abc import Sequence

from drumbeat.core.errors import InvalidInput, Refused
from drumbeat.core.run import RunId
from drumbeat.store.interface import CopyObserver, CopyOptions, CopyReport, ExportedRun
from drumbeat.store.open import open_store

_NOT_COPIED = {"redis": "Redis", "rediss": "Redis", "memory": "memory"}


async def copy_store(source: str, target: str, options: CopyOptions, observer: CopyObserver) -> CopyReport:
    """Copy the store at the URL ``source`` to ``target``, and compare them. Raises InvalidInput for a Redis or memory URL.

    The target must be empty, or hold an unfinished copy of the same source, which is then continued. Raises Refused for any
    other target.
    """
    from drumbeat.store.sql.copying import StoreCopy
    from drumbeat.store.sql.store import SqlStore

    for url in (source, target):
        _refuse_other(url)
    read, written = open_store(source), open_store(target, create=not options.verify_only, check_version=False)
    assert isinstance(read, SqlStore)
    assert isinstance(written, SqlStore)
    if read.database.location == written.database.location:
        raise Refused(f"expected two stores, got {read.database.location} twice; name another store to copy to")
    async with read, written:
        return await StoreCopy(read.database, written.database, observer).run(options)


async def export_runs(source: str, target: str, run_ids: Sequence[RunId], observer: CopyObserver) -> Sequence[ExportedRun]:
    """Export ended runs from the store at the URL ``source`` to ``target``; if ``run_ids`` is empty, all ended runs.

    The target's other data stays. Raises InvalidInput if a store is not SQLite, PostgreSQL or Snowflake, NotFound if a run does
    not exist, or Refused if a run has not ended.
    """
    from drumbeat.store.sql.exporting import RunExport
    from drumbeat.store.sql.store import SqlStore

    for url in (source, target):
        _refuse_other(url)
    read, written = open_store(source), open_store(target, create=True)
    assert isinstance(read, SqlStore)
    assert isinstance(written, SqlStore)
    if read.database.location == written.database.location:
        raise Refused(f"expected two stores, got {read.database.location} twice; name another store to export to")
    async with read, written:
        return await RunExport(read.database, written.database, observer).run(run_ids)


def _refuse_other(url: str) -> None:
    if kind := _NOT_COPIED.get(url.partition(":")[0].lower()):
        raise InvalidInput(
            f"expected the URL of a SQLite, PostgreSQL or Snowflake store, got a {kind} store, which cannot be copied"
        )
