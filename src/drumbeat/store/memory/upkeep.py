"""Housekeeping, in memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from drumbeat.core.billing import billed_since
from drumbeat.core.run import RUN_ENDED
from drumbeat.core.worker import Worker
from drumbeat.store.interface import StoreReport
from drumbeat.store.memory.state import PoolRows, Table, operation

_PRUNED = ("samples", "logs", "beats", "workers", "events")
_OF_POOLS = (*_PRUNED, "steps", "results", "executions")
_NO_SCHEMA = 0


class MemoryUpkeep(Table):
    @operation
    def migrate(self) -> Sequence[int]:
        return []

    @operation
    def check(self) -> StoreReport:
        return StoreReport(
            backend="memory",
            location="memory",
            schema_version=_NO_SCHEMA,
            latest_version=_NO_SCHEMA,
            server="this process",
            now=self.state.now(),
            rows=self._row_counts(),
            problems=[],
        )

    @operation
    def prune(self, older_than: timedelta) -> Mapping[str, int]:
        before = self.state.now() - older_than
        gone = Counter(dict.fromkeys(_PRUNED, 0))
        for rows in self.state.pools.values():
            gone.update(_prune(rows, before, billed_since(self.state.now())))
        return {**gone, "leases": self._prune_leases(before)}

    def _prune_leases(self, before: datetime) -> int:
        had = self.state.leases
        self.state.leases = {
            name: kept
            for name, kept in had.items()
            if "/" not in name or name in self.state.pools or kept.lease.expires_at >= before
        }
        return len(had) - len(self.state.leases)

    def _row_counts(self) -> dict[str, int]:
        pools = self.state.pools.values()
        return {
            "pools": len(pools),
            "runs": sum(rows.run is not None for rows in pools),
            "leases": len(self.state.leases),
            "templates": len(self.state.templates),
            "connections": len(self.state.connections),
            "answers": len(self.state.answers),
            "notes": len(self.state.notes),
            "jobs": sum(len(rows.jobs.jobs) for rows in pools),
            **{table: sum(len(getattr(rows, table)) for rows in pools) for table in _OF_POOLS},
        }


def _prune(rows: PoolRows, before: datetime, billed: datetime) -> Mapping[str, int]:
    had = _sizes(rows)
    rows.samples = {key: kept for key, kept in rows.samples.items() if kept.row.at >= before}
    rows.logs = [log for log in rows.logs if log.at >= before]
    last_seen = next((beat.n for beat in reversed(rows.beats) if beat.view is not None), None)
    rows.beats = [beat for beat in rows.beats if beat.at >= before or beat.n in (rows.last_beat, last_seen)]
    for worker in [row for row in rows.workers.values() if not _stays(rows, row, before, billed)]:
        rows.drop_worker(worker.worker_id)
    if rows.run and rows.run.status in RUN_ENDED:
        rows.events = [event for event in rows.events if event.created_at >= before]
    has = _sizes(rows)
    return {table: had[table] - has[table] for table in _PRUNED}


def _stays(rows: PoolRows, worker: Worker, before: datetime, billed: datetime) -> bool:
    if worker.ended_at is None or worker.ended_at >= before:
        return True
    return rows.pool.is_scaled and (worker.reaped_at is None or worker.reaped_at >= billed)


def _sizes(rows: PoolRows) -> dict[str, int]:
    return {table: len(getattr(rows, table)) for table in _PRUNED}
