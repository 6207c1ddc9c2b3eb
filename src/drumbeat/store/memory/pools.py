"""Pools in memory: named sets of workers."""

from collections.abc import Sequence
from dataclasses import replace

from drumbeat.core.errors import AlreadyExists, Refused
from drumbeat.core.job import UNFINISHED
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.store.flow_rules import has_unfinished, needed_elsewhere
from drumbeat.store.interface import PoolChange
from drumbeat.store.memory.flows import child_elsewhere
from drumbeat.store.memory.state import MemoryState, MemoryTable, PoolRows, operation, plain


class MemoryPools(MemoryTable):
    @operation
    def create(self, pool: PoolRow) -> PoolRow:
        return make_pool(self.state, pool).pool

    @operation
    def get(self, pool_id: PoolId) -> PoolRow:
        return self.state.rows(pool_id).pool

    @operation
    def find(self, pool_id: PoolId) -> PoolRow | None:
        rows = self.state.pools.get(pool_id)
        return rows.pool if rows else None

    @operation
    def list(self, kind: PoolKind | None = None) -> Sequence[PoolRow]:
        return [rows.pool for rows in self.state.pools.values() if kind is None or rows.pool.kind is kind]

    @operation
    def change(self, pool_id: PoolId, change: PoolChange, *, fence: Fence | None = None) -> PoolRow:
        self.state.admit(fence)
        rows = self.state.rows(pool_id)
        changed = change.of(rows.pool)
        rows.pool = replace(changed, policy=plain(changed.policy))
        return rows.pool

    @operation
    def delete(self, pool_id: PoolId, *, unfinished: bool = True) -> None:
        drop_pool(self.state, pool_id, unfinished=unfinished)


def make_pool(state: MemoryState, pool: PoolRow) -> PoolRows:
    """Create an empty pool. Raises AlreadyExists."""
    if pool.pool_id in state.pools:
        raise AlreadyExists(f"pool {pool.pool_id!r} already exists; choose another name")
    rows = PoolRows(pool=replace(pool, policy=plain(pool.policy), created_at=state.now(), last_worker=-1))
    state.pools[pool.pool_id] = rows
    return rows


def drop_pool(state: MemoryState, pool_id: PoolId, *, unfinished: bool = True) -> None:
    """Delete a pool and everything that belongs to it. Raises Refused while it has live workers, while it has unfinished jobs
    and ``unfinished`` is False, and while an unfinished job of another pool depends on one of its jobs."""
    rows = state.pools.get(pool_id)
    live = [worker.worker_id for worker in rows.workers.values() if worker.is_live] if rows else []
    if live:
        raise Refused(f"pool {pool_id} has {len(live)} live workers ({', '.join(live[:5])}); drain them first")
    if rows and not unfinished and any(job.status in UNFINISHED for job in rows.jobs.jobs.values()):
        raise has_unfinished(pool_id)
    if child := child_elsewhere(state, pool_id):
        raise needed_elsewhere(pool_id, child.job_id, child.pool_id)
    state.pools.pop(pool_id, None)
    for job_id in rows.jobs.jobs if rows else ():
        state.forget_job(job_id)
