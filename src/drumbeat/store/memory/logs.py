"""Log lines, in memory."""

from collections.abc import Sequence

from drumbeat.core.log import Log, NewLog, log_rank
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.store.memory.state import MemoryTable, operation, plain


class MemoryLogs(MemoryTable):
    @operation
    def append(self, pool_id: PoolId, entries: Sequence[NewLog]) -> None:
        rows = self.state.rows(pool_id)
        now = self.state.now()
        lines = [
            Log(
                pool_id=pool_id,
                log_id=number,
                at=now - entry.age,
                level=entry.level,
                logger=entry.logger,
                message=entry.message,
                worker_id=entry.worker_id,
                details=plain(entry.details),
            )
            for number, entry in enumerate(entries, start=self.state.last_log + 1)
        ]
        rows.logs.extend(lines)
        self.state.last_log += len(lines)

    @operation
    def list(
        self,
        pool_id: PoolId,
        *,
        after: int = 0,
        worker_id: WorkerId | None = None,
        level: str | None = None,
        limit: int = 1000,
    ) -> Sequence[Log]:
        rows = self.state.pools.get(pool_id)
        least = log_rank(level) if level else 0
        return [
            log
            for log in (rows.logs if rows else ())
            if log.log_id > after and worker_id in (None, log.worker_id) and log_rank(log.level) >= least
        ][:limit]
