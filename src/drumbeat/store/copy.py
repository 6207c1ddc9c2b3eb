"""Copies a whole store to another database, or compares two stores. Each is given by its URL."""

from drumbeat.core.errors import InvalidInput, Refused
from drumbeat.store.interface import CopyObserver, CopyOptions, CopyReport
from drumbeat.store.open import open_store

_NOT_COPIED = {"redis": "Redis", "rediss": "Redis", "memory": "memory"}


async def copy_store(source: str, target: str, options: CopyOptions, observer: CopyObserver) -> CopyReport:
    """Copy the store at the URL ``source`` to ``target``, and compare them. Raises InvalidInput for a Redis or memory URL.

    The target must be empty or hold an unfinished copy of the same source, which is then continued (otherwise: Refused).
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


def _refuse_other(url: str) -> None:
    if kind := _NOT_COPIED.get(url.partition(":")[0].lower()):
        raise InvalidInput(
            f"expected the URL of a SQLite or PostgreSQL store, got a {kind} store; only those two can be copied"
        )
