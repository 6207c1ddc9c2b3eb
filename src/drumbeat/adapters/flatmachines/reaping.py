"""Finds stale workers (without recent heartbeats), marks them lost and returns their jobs to the queue."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from drumbeat.adapters.flatmachines.registration import MOST_CLAIMS
from drumbeat.adapters.flatmachines.session import PoolClaims
from drumbeat.core.errors import NotFound, StaleWrite
from drumbeat.core.job import Job, JobStatus
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus, name_of, silence
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleWorker:
    """A worker that was found stale (without recent heartbeats), and the time of the last heartbeat known at that moment."""

    worker_id: str
    pool_id: str
    last_heartbeat: str | None
    host: str | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def find_stale(backends: PoolClaims, pool_id: str, threshold: timedelta | None) -> Sequence[StaleWorker]:
    """Return the stale workers of a pool.

    These are live workers without a heartbeat for longer than ``threshold`` (default: twice the pool's heartbeat interval),
    workers that have ended but hold a job, and workers that have no row and hold a job with an expired lease.
    """
    registry = await backends.registration.place.store()
    pool = await registry.pools.get(await backends.registration.place.pool(pool_id))
    now = await registry.now()
    live = await registry.workers.list(pool.pool_id, live=True)
    claimed = await _claimed(backends, pool_id)
    holders = sorted({job.lease_owner for job in claimed if job.lease_owner} - {row.worker_id for row in live})
    ended = await registry.workers.list_unreaped(pool.pool_id, named=holders) if holders else ()
    rows = {row.worker_id: row for row in (*live, *(row for row in ended if row.worker_id in holders))}
    silent = [
        _stale(row, pool_id, f"no heartbeat for {silence(row, now)}")
        for row in rows.values()
        if _is_silent(row, pool, threshold, now)
    ]
    return [*silent, *_holders(pool_id, rows, claimed, now)]


async def reap(backends: PoolClaims, worker: StaleWorker) -> int | None:
    """Mark a worker lost and return its jobs, in every pool, to the queue. Returns the number of jobs.

    If the worker has sent a heartbeat since it was found, changes nothing and returns None. For a worker without a row, also
    returns to the queue, and counts, every other job whose lease has expired, whichever worker holds it.
    """
    registry = await backends.registration.place.store()
    row = await _find(registry, PoolId(worker.pool_id), WorkerId(worker.worker_id))
    if row is not None and row.is_live:
        if _last_heartbeat(row) != worker.last_heartbeat:
            log.info("worker %s is not marked lost: it has sent a heartbeat since it was found stale", worker.worker_id)
            return None
        try:
            await registry.workers.move(row, WorkerStatus.LOST, worker.reason)
        except StaleWrite as exc:
            log.info("worker %s is not marked lost, because its row has changed: %s", worker.worker_id, exc)
            return None
    log.warning("worker %s is lost: %s; returning its jobs to the queue", worker.worker_id, worker.reason)
    released = await backends.work.pool(worker.pool_id).release_by_worker(worker.worker_id)
    if row is None:
        released += len(await (await backends.work.place.store()).queue.expire())
    return released


async def as_stale(backends: PoolClaims, pool_id: str, given: Any) -> StaleWorker:
    """Return the StaleWorker for an entry of ``list_stale_workers``, or for a worker's id (its last heartbeat is then read
    from its row). Raises ValueError if ``given`` has no worker id.
    """
    fields = given if isinstance(given, dict) else {"worker_id": str(given)}
    if not fields.get("worker_id"):
        raise ValueError(f"expected a worker's id, or an entry of list_stale_workers, got {given!r}")
    pool = str(fields.get("pool_id") or pool_id)
    row = await _find(await backends.registration.place.store(), PoolId(pool), WorkerId(fields["worker_id"]))
    return StaleWorker(
        worker_id=fields["worker_id"],
        pool_id=pool,
        last_heartbeat=fields.get("last_heartbeat") or (_last_heartbeat(row) if row else None),
        host=fields.get("host"),
        reason=str(fields.get("reason") or "reaped by name"),
    )


def _is_silent(row: Worker, pool: PoolRow, threshold: timedelta | None, now: datetime) -> bool:
    """Whether a live worker has sent no heartbeat for too long; until it joins, the longer limit ``start_within`` applies."""
    limit = pool.thresholds.stale_after if threshold is None else threshold
    if row.status is WorkerStatus.SPAWNING:
        limit = max(limit, pool.thresholds.start_within)
    return row.is_live and silence(row, now) > limit


def _holders(pool_id: str, rows: dict[WorkerId, Worker], claimed: Sequence[Job], now: datetime) -> list[StaleWorker]:
    found: dict[WorkerId, StaleWorker] = {}
    for job in claimed:
        owner = _owner(job, rows)
        row = rows.get(owner) if owner else None
        if owner is None or (row is not None and row.is_live):
            continue
        if row is not None:
            found[owner] = _stale(row, pool_id, f"it ended as {row.status} but still holds a job")
        elif job.lease_until is not None and job.lease_until < now:
            found[owner] = StaleWorker(
                worker_id=owner,
                pool_id=pool_id,
                last_heartbeat=None,
                host=None,
                reason="it has no row, and its lease has expired",
            )
    return list(found.values())


def _owner(job: Job, rows: dict[WorkerId, Worker]) -> WorkerId | None:
    """Return the name of the worker that holds a job; None if no worker holds it.

    This is the plain worker id, also for a worker that never registered. If the holder belongs to another pool, or is another
    process with the same id, the name is longer, so that it does not match a row of this pool.
    """
    if job.holder is None:
        return None
    by_id_alone = job.lease_pool == job.pool_id and not job.lease_instance
    return job.lease_owner if by_id_alone else name_of(job.holder, job.pool_id, rows)


async def _claimed(backends: PoolClaims, pool_id: str) -> Sequence[Job]:
    pool = await backends.work.place.pool(pool_id)
    return await (await backends.work.place.store()).jobs.list(pool, statuses=[JobStatus.CLAIMED], limit=MOST_CLAIMS)


async def _find(store: Store, pool_id: PoolId, worker_id: WorkerId) -> Worker | None:
    try:
        return await store.workers.get(pool_id, worker_id)
    except NotFound:
        return None


def _stale(row: Worker, pool_id: str, reason: str) -> StaleWorker:
    return StaleWorker(
        worker_id=row.worker_id, pool_id=pool_id, last_heartbeat=_last_heartbeat(row), host=row.host, reason=reason
    )


def _last_heartbeat(row: Worker) -> str | None:
    last = row.heartbeat_at or row.created_at
    return last.isoformat() if last else None
