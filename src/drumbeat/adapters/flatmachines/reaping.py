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
from drumbeat.core.recovery import stays
from drumbeat.core.worker import CRASH, Worker, WorkerId, WorkerStatus, name_of, silence
from drumbeat.store.interface import Store, WorkerChange

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleWorker:
    """A worker that was found stale (without recent heartbeats), and the time of the last heartbeat known at that moment."""

    worker_id: str
    pool_id: str
    last_heartbeat: str | None
    host: str | None
    reason: str
    by_name: bool = False  #: the caller named this worker, so it is reaped even if it is not stale

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "by_name"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClaimedJobs:
    """The claimed jobs of a pool, and the rows of its live workers and of the ended workers that hold one of these jobs."""

    pool: PoolRow
    jobs: Sequence[Job]
    rows: dict[WorkerId, Worker]
    now: datetime

    def held_by(self, worker_id: str) -> Sequence[Job]:
        return [job for job in self.jobs if _owner(job, self.rows) == worker_id]

    def is_expired(self, job: Job) -> bool:
        return job.lease_until is not None and job.lease_until < self.now


async def find_stale(backends: PoolClaims, pool_id: str, threshold: timedelta | None) -> Sequence[StaleWorker]:
    """Return the stale workers of a pool.

    These are live workers without a heartbeat for longer than ``threshold`` (default: the pool's ``stale_after``; a worker that
    is starting gets more time), ended workers that hold a job, and workers without a row that hold a job with an expired lease.
    """
    claimed = await _read(backends, pool_id)
    silent = [
        _stale(row, pool_id, f"no heartbeat for {silence(row, claimed.now)}")
        for row in claimed.rows.values()
        if _is_silent(row, claimed.pool, threshold, claimed.now)
    ]
    return [*silent, *_holders(pool_id, claimed)]


async def reap(backends: PoolClaims, worker: StaleWorker) -> int | None:
    """Mark a worker lost and return its jobs, in every pool, to the queue. Returns the number of jobs.

    If the worker has sent a heartbeat since it was found stale, changes nothing and returns None. A worker without a row cannot
    send heartbeats: see ``_reap_without_row``.
    """
    registry = await backends.registration.place.store()
    row = await _find(registry, PoolId(worker.pool_id), WorkerId(worker.worker_id))
    if row is None:
        return await _reap_without_row(backends, worker)
    if row.is_live:
        if _last_heartbeat(row) != worker.last_heartbeat:
            log.info("worker %s is not marked lost: it has sent a heartbeat since it was found stale", worker.worker_id)
            return None
        try:
            await registry.workers.move(row, WorkerStatus.LOST, worker.reason, WorkerChange(meta={CRASH: stays(row)}))
        except StaleWrite as exc:
            log.info("worker %s is not marked lost, because its row has changed: %s", worker.worker_id, exc)
            return None
    return await _release_all(backends, worker)


async def _reap_without_row(backends: PoolClaims, worker: StaleWorker) -> int | None:
    """Return the jobs of a worker without a row to the queue. Returns the number of these jobs; None if the worker was found
    stale but keeps all its jobs, because its leases were renewed or extended meanwhile.

    All jobs are returned if the worker was given by its id (``by_name``), or if all its leases have expired. If only some
    leases have expired, the worker may be alive. Then the store's rule for expired leases is applied: a lease is extended
    once, and the job is taken back when the lease expires again. The same rule is applied to a worker of another pool and to
    an earlier process of a worker.
    """
    claimed = await _read(backends, worker.pool_id)
    held = claimed.held_by(worker.worker_id)
    expired = {job.job_id for job in held if claimed.is_expired(job)}
    released = 0
    if worker.by_name or (expired and len(expired) == len(held)):
        released = await _release_all(backends, worker)
    if released < len(expired):
        taken_back = await (await backends.work.place.store()).queue.expire()
        released += sum(job.job_id in expired for job in taken_back)
    if not released and not worker.by_name:
        log.info("worker %s is not reaped: its leases were renewed or extended since it was found stale", worker.worker_id)
        return None
    return released


async def _release_all(backends: PoolClaims, worker: StaleWorker) -> int:
    log.warning("worker %s is lost: %s; returning its jobs to the queue", worker.worker_id, worker.reason)
    return await backends.work.pool(worker.pool_id).release_by_worker(worker.worker_id)


async def as_stale(backends: PoolClaims, pool_id: str, given: Any) -> StaleWorker:
    """Return the StaleWorker for ``given``: an entry of ``list_stale_workers``, or a worker's id.

    For an id, the last heartbeat is read from the worker's row now, so that ``reap`` marks the worker lost even if it is not
    stale. Raises ValueError if ``given`` has no worker id.
    """
    fields = given if isinstance(given, dict) else {"worker_id": str(given)}
    if not fields.get("worker_id"):
        raise ValueError(f"expected a worker's id, or an entry of list_stale_workers, got {given!r}")
    pool, by_name = str(fields.get("pool_id") or pool_id), "last_heartbeat" not in fields
    row = None
    if by_name:
        row = await _find(await backends.registration.place.store(), PoolId(pool), WorkerId(fields["worker_id"]))
    return StaleWorker(
        worker_id=fields["worker_id"],
        pool_id=pool,
        last_heartbeat=_last_heartbeat(row) if row else fields.get("last_heartbeat"),
        host=fields.get("host"),
        reason=str(fields.get("reason") or "reaped by name"),
        by_name=by_name,
    )


def _is_silent(row: Worker, pool: PoolRow, threshold: timedelta | None, now: datetime) -> bool:
    """Whether a live worker has sent no heartbeat for too long. A worker that is starting has at least ``start_within``."""
    limit = pool.thresholds.stale_after if threshold is None else threshold
    if row.status is WorkerStatus.SPAWNING:
        limit = max(limit, pool.thresholds.start_within)
    return row.is_live and silence(row, now) > limit


def _holders(pool_id: str, claimed: _ClaimedJobs) -> list[StaleWorker]:
    found: dict[WorkerId, StaleWorker] = {}
    for job in claimed.jobs:
        owner = _owner(job, claimed.rows)
        row = claimed.rows.get(owner) if owner else None
        if owner is None or (row is not None and row.is_live):
            continue
        if row is not None:
            found[owner] = _stale(row, pool_id, f"it ended as {row.status} but still holds a job")
        elif claimed.is_expired(job):
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

    The name is the plain worker id, also for a worker that never registered. A worker of another pool, or another process with
    the same id, gets a longer name, which matches no row of this pool.
    """
    if job.holder is None:
        return None
    by_id_alone = job.lease_pool == job.pool_id and not job.lease_instance
    return job.lease_owner if by_id_alone else name_of(job.holder, job.pool_id, rows)


async def _read(backends: PoolClaims, pool_id: str) -> _ClaimedJobs:
    registry, work = await backends.registration.place.store(), await backends.work.place.store()
    pool = await registry.pools.get(await backends.registration.place.pool(pool_id))
    now = await registry.now()
    live = await registry.workers.list(pool.pool_id, live=True)
    work_pool = await backends.work.place.pool(pool_id)
    jobs = await work.jobs.list(work_pool, statuses=[JobStatus.CLAIMED], limit=MOST_CLAIMS)
    holders = sorted({job.lease_owner for job in jobs if job.lease_owner} - {row.worker_id for row in live})
    ended = await registry.workers.list_unreaped(pool.pool_id, named=holders) if holders else ()
    rows = {row.worker_id: row for row in (*live, *(row for row in ended if row.worker_id in holders))}
    return _ClaimedJobs(pool=pool, jobs=jobs, rows=rows, now=now)


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
