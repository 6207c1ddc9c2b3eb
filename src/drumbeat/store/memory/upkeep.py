"""Maintenance of the memory store: checking it, and deleting old rows."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from drumbeat.core.billing import billed_since
from drumbeat.core.event import FACTS, Event, Scope
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.core.retention import JOBS, RECORDS, Prunable, Pruned
from drumbeat.core.run import RUN_ENDED
from drumbeat.core.worker import Worker
from drumbeat.store.interface import StoreReport
from drumbeat.store.interface.store import ProgressCallback
from drumbeat.store.memory.flows import is_needed
from drumbeat.store.memory.state import MemoryState, MemoryTable, PoolRows, operation
from drumbeat.store.pruning import prune_all, prune_all_leases

_OF_POOLS = ("samples", "logs", "beats", "workers", "events", "steps", "results", "executions")
_NO_SCHEMA = 0


class MemoryUpkeep(MemoryTable):
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

    async def prune(self, older_than: timedelta, on_progress: ProgressCallback | None = None) -> Mapping[str, int]:
        deleted = await prune_all(self, [*self.state.pools], RECORDS, older_than, on_progress)
        return {
            **{str(what): rows for what, rows in deleted.items()},
            "leases": await prune_all_leases(self.prune_leases, older_than),
        }

    @operation
    def give_back(self) -> bool:
        return False

    @operation
    def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        """Delete all old rows of one kind from a pool at once: a memory store has no other process that would have to wait."""
        rows, before = self.state.pools.get(pool_id), self.state.now() - older_than
        if rows is None:
            return Pruned(rows=0, more=False)
        gone = (
            _prune_jobs(self.state, rows, JobStatus(what), before) if what in JOBS else self._prune_records(rows, what, before)
        )
        return Pruned(rows=gone, more=False)

    def _prune_records(self, rows: PoolRows, what: Prunable, before: datetime) -> int:
        had = len(getattr(rows, what))
        _prune(rows, what, before, billed_since(self.state.now()))
        return had - len(getattr(rows, what))

    @operation
    def prune_leases(self, older_than: timedelta, limit: int = 1000) -> Pruned:
        before = self.state.now() - older_than
        old = [
            name
            for name, stored in self.state.leases.items()
            if "/" in name and name not in self.state.pools and stored.lease.expires_at < before
        ][:limit]
        for name in old:
            del self.state.leases[name]
        return Pruned(rows=len(old), more=len(old) == limit)

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
            "job_steps": sum(len(steps) for rows in pools for steps in rows.jobs.steps.values()),
            **{table: sum(len(getattr(rows, table)) for rows in pools) for table in _OF_POOLS},
        }


def _prune(rows: PoolRows, what: Prunable, before: datetime, billed: datetime) -> None:
    match what:
        case Prunable.SAMPLES:
            rows.samples = {key: sample for key, sample in rows.samples.items() if sample.row.at >= before}
        case Prunable.LOGS:
            rows.logs = [log for log in rows.logs if log.at >= before]
        case Prunable.BEATS:
            last_with_view = next((beat.n for beat in reversed(rows.beats) if beat.view is not None), None)
            rows.beats = [beat for beat in rows.beats if beat.at >= before or beat.n in (rows.last_beat, last_with_view)]
        case Prunable.WORKERS:
            for worker in [rows.workers[name] for name in rows.ended]:
                if not _is_retained(rows, worker, before, billed):
                    rows.drop_worker(worker.worker_id)
        case Prunable.EVENTS if rows.run is None or rows.run.status in RUN_ENDED:
            rows.events = [event for event in rows.events if event.created_at >= before or not _is_spent(rows, event)]


def _is_spent(rows: PoolRows, event: Event) -> bool:
    """Whether no later worker needs the event: its run has ended, or it is a record, or an instruction for one worker."""
    return rows.run is not None or event.type in FACTS or event.scope is Scope.WORKER


def _prune_jobs(state: MemoryState, rows: PoolRows, status: JobStatus, before: datetime) -> int:
    old = [
        job
        for job in rows.jobs.of(status)
        if job.finished_at and job.finished_at < before and not (job.has_children and is_needed(state, job.job_id))
    ]
    for job in old:
        rows.jobs.remove(job.job_id)
        state.forget_job(job.job_id)
    rows.jobs.pruned[status] += len(old)
    return len(old)


def _is_retained(rows: PoolRows, worker: Worker, before: datetime, billed: datetime) -> bool:
    if worker.ended_at is None or worker.ended_at >= before:
        return True
    return rows.pool.is_scaled and (worker.reaped_at is None or worker.reaped_at >= billed)
