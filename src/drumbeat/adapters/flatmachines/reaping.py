"""Workers that went silent, and what they held."""

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
class Stale:
    """A worker to be given up, as it was seen."""

    worker_id: str
    pool_id: str
    last_heartbeat: str | None
    host: str | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def find_stale(desk: PoolClaims, pool_id: str, threshold: timedelta | None) -> Sequence[Stale]:
    """Workers to give up, of two kinds.

    Live workers that were silent for longer than the threshold (default: twice the pool's heartbeat), and workers that hold a
    job although their row has ended, or although they have no row and the lease has run out.
    """
    registry = await desk.registration.place.store()
    pool = await registry.pools.get(await desk.registration.place.pool(pool_id))
    now = await registry.now()
    seen = await registry.workers.list(pool.pool_id, live=True)
    claimed = await _claimed(desk, pool_id)
    holders = sorted({job.lease_owner for job in claimed if job.lease_owner} - {row.worker_id for row in seen})
    gone = await registry.workers.list_unreaped(pool.pool_id, named=holders) if holders else ()
    rows = {row.worker_id: row for row in (*seen, *(row for row in gone if row.worker_id in holders))}
    silent = [
        _stale(row, pool_id, f"silent for {silence(row, now)}") for row in rows.values() if _silent(row, pool, threshold, now)
    ]
    return [*silent, *_holders(pool_id, rows, claimed, now)]


async def reap(desk: PoolClaims, worker: Stale) -> int | None:
    """Mark a worker lost and take back what it held, in every pool. None: it was heard of since, and is left alone.

    What a worker without a row holds (another pool's, or another process of the same name) is taken back by its lease.
    """
    registry = await desk.registration.place.store()
    row = await _find(registry, PoolId(worker.pool_id), WorkerId(worker.worker_id))
    if row is not None and row.is_live:
        if _heard(row) != worker.last_heartbeat:
            log.info("worker %s was heard of since it was found stale; it is left alone", worker.worker_id)
            return None
        try:
            await registry.workers.move(row, WorkerStatus.LOST, worker.reason)
        except StaleWrite as exc:
            log.info("worker %s is left alone: %s", worker.worker_id, exc)
            return None
    log.warning("worker %s is given up: %s", worker.worker_id, worker.reason)
    released = await desk.work.pool(worker.pool_id).release_by_worker(worker.worker_id)
    if row is None:
        released += len(await (await desk.work.place.store()).queue.expire())
    return released


async def as_stale(desk: PoolClaims, pool_id: str, given: Any) -> Stale:
    """A worker somebody names: by what ``find_stale`` said of it, or by its id alone, as it is now."""
    fields = given if isinstance(given, dict) else {"worker_id": str(given)}
    if not fields.get("worker_id"):
        raise ValueError(f"expected a worker's id, or what list_stale_workers said of it, got {given!r}")
    home = str(fields.get("pool_id") or pool_id)
    row = await _find(await desk.registration.place.store(), PoolId(home), WorkerId(fields["worker_id"]))
    return Stale(
        worker_id=fields["worker_id"],
        pool_id=home,
        last_heartbeat=fields.get("last_heartbeat") or (_heard(row) if row else None),
        host=fields.get("host"),
        reason=str(fields.get("reason") or "reaped by name"),
    )


def _silent(row: Worker, pool: PoolRow, threshold: timedelta | None, now: datetime) -> bool:
    """A worker that has not joined yet is given its time to start."""
    limit = pool.thresholds.stale_after if threshold is None else threshold
    if row.status is WorkerStatus.SPAWNING:
        limit = max(limit, pool.thresholds.start_within)
    return row.is_live and silence(row, now) > limit


def _holders(pool_id: str, rows: dict[WorkerId, Worker], claimed: Sequence[Job], now: datetime) -> list[Stale]:
    found: dict[WorkerId, Stale] = {}
    for job in claimed:
        owner = _owner(job, rows)
        row = rows.get(owner) if owner else None
        if owner is None or (row is not None and row.is_live):
            continue
        if row is not None:
            found[owner] = _stale(row, pool_id, f"it ended as {row.status} and holds a job")
        elif job.lease_until is not None and job.lease_until < now:
            found[owner] = Stale(
                worker_id=owner,
                pool_id=pool_id,
                last_heartbeat=None,
                host=None,
                reason="its lease has run out, and it has no row",
            )
    return list(found.values())


def _owner(job: Job, rows: dict[WorkerId, Worker]) -> WorkerId | None:
    """The worker that holds a job. A claim made with a worker id alone, by an unregistered worker, belongs to that id."""
    if job.holder is None:
        return None
    by_id_alone = job.lease_pool == job.pool_id and not job.lease_instance
    return job.lease_owner if by_id_alone else name_of(job.holder, job.pool_id, rows)


async def _claimed(desk: PoolClaims, pool_id: str) -> Sequence[Job]:
    pool = await desk.work.place.pool(pool_id)
    return await (await desk.work.place.store()).jobs.list(pool, statuses=[JobStatus.CLAIMED], limit=MOST_CLAIMS)


async def _find(store: Store, pool_id: PoolId, worker_id: WorkerId) -> Worker | None:
    try:
        return await store.workers.get(pool_id, worker_id)
    except NotFound:
        return None


def _stale(row: Worker, pool_id: str, reason: str) -> Stale:
    return Stale(worker_id=row.worker_id, pool_id=pool_id, last_heartbeat=_heard(row), host=row.host, reason=reason)


def _heard(row: Worker) -> str | None:
    heard = row.heartbeat_at or row.created_at
    return heard.isoformat() if heard else None
