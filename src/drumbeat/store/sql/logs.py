"""SQL table ``logs``: log lines of pools and their workers."""

import logging
from collections.abc import Mapping, Sequence

from drumbeat.core.log import Log, NewLog
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.store.sql.database import Database, Script
from drumbeat.store.sql.pools import no_pool
from drumbeat.store.sql.rows import dump, log_of, to_us

_SEVERITIES: Mapping[str, int] = logging.getLevelNamesMapping()


class SqlLogs:
    """Stores and lists the log lines of a pool and its workers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, pool_id: PoolId, entries: Sequence[NewLog]) -> None:
        await self._database.transact(_append_logs(pool_id, entries))

    async def list(
        self,
        pool_id: PoolId,
        *,
        after: int = 0,
        worker_id: WorkerId | None = None,
        level: str | None = None,
        limit: int = 1000,
    ) -> Sequence[Log]:
        values = {"pool_id": pool_id, "after": after, "worker_id": worker_id, "limit": limit, "severity": severity(level)}
        return [log_of(row) for row in await self._database.read("list_logs", values)]


def severity(level: str | None) -> int:
    """Return the number of a log level, so that "WARNING and above" is a comparison of numbers; 0 if None or unknown."""
    return _SEVERITIES.get(level, 0) if level else 0


def _append_logs(pool_id: PoolId, entries: Sequence[NewLog]) -> Script[None]:
    if not entries:
        return
    numbered = yield "take_log_numbers", {"pool_id": pool_id, "count": len(entries)}
    if not numbered:
        raise no_pool(pool_id)
    listed = [
        {
            "age_us": to_us(entry.age),
            "worker_id": entry.worker_id,
            "level": entry.level,
            "severity": severity(entry.level),
            "logger": entry.logger,
            "message": entry.message,
            "details": entry.details,
        }
        for entry in entries
    ]
    yield "add_logs", {"pool_id": pool_id, "first": numbered[0]["first"], "entries": dump(listed)}
