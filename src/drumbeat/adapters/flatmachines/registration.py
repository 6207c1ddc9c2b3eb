"""FlatMachines' RegistrationBackend on Drumbeat's store: each worker is a row in a pool. An ended worker cannot rejoin."""

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from flatmachines.distributed import WorkerFilter, WorkerRecord, WorkerRegistration

from drumbeat.adapters.flatmachines.lazy_store import LazyStore
from drumbeat.composition.base import process_name
from drumbeat.core.errors import InvalidInput, NotFound, WorkerGone
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId, PoolKind, Thresholds
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Holder, Worker, WorkerId, WorkerStatus, silence
from drumbeat.store.interface import Heartbeat, JoinRequest, Store, WorkerChange

log = logging.getLogger(__name__)

DEFAULT_POOL = "default"
MOST_CLAIMS = 10_000  #: most claimed jobs that are read to find the job of each worker
_PATH_TO_ACTIVE = (WorkerStatus.WAITING, WorkerStatus.ACTIVE)

WORDS: Mapping[str, WorkerStatus] = {status.value: status for status in WorkerStatus} | {
    "terminating": WorkerStatus.DRAINING,
    "failed": WorkerStatus.ERROR,
}  #: a status as Drumbeat or FlatMachines names it → Drumbeat's status


@dataclass
class PoolWorkerRegistration(WorkerRegistration):  # type: ignore[misc]
    """FlatMachines' WorkerRegistration, with the pool of the worker added."""

    pool_id: str | None = None


@dataclass
class PoolWorkerFilter(WorkerFilter):  # type: ignore[misc]
    """FlatMachines' WorkerFilter, with a pool and a list of statuses added."""

    pool_id: str | None = None
    statuses: Sequence[str] = field(default_factory=tuple)


def word_of(status: WorkerStatus) -> str:
    """Return FlatMachines' name for a worker's status."""
    return "terminating" if status is WorkerStatus.DRAINING else status.value


class DrumbeatRegistrationBackend:
    """Registers workers of job pools. Only the backend that registered a live worker can send its heartbeats."""

    def __init__(
        self, where: str | Store | LazyStore, *, pool_id: str = DEFAULT_POOL, thresholds: Thresholds | None = None
    ) -> None:
        """``pool_id`` is used for registrations that name no pool; ``thresholds`` for pools that this backend creates."""
        self.place = where if isinstance(where, LazyStore) else LazyStore(where)
        self._pool_id = pool_id
        self._thresholds = thresholds
        self._instance = process_name()
        self._own: dict[WorkerId, Worker] = {}
        self._notes = 0

    async def register(self, worker: WorkerRegistration) -> WorkerRecord:
        """Register a worker and make it active. Raises WorkerGone if it has ended, or another process runs under its id."""
        pool_id = await self.place.pool(getattr(worker, "pool_id", None) or self._pool_id, self._thresholds)
        own = self._own.get(WorkerId(worker.worker_id))
        if own is not None and own.pool_id != pool_id:
            raise InvalidInput(f"worker {worker.worker_id} is already registered here in pool {own.pool_id}; use another id")
        store = await self.place.store()
        row = await store.membership.join(await self._joining(store, pool_id, worker))
        for status in _PATH_TO_ACTIVE[_PATH_TO_ACTIVE.index(row.status) + 1 if row.status in _PATH_TO_ACTIVE else 0 :]:
            row = await store.membership.move(pool_id, row.worker_id, self._instance, status, "registered")
        self._own[row.worker_id] = row
        return _record(row)

    async def heartbeat(self, worker_id: str, metadata: dict[str, Any] | None = None) -> None:
        """Write a worker's heartbeat. Raises KeyError if the worker was not registered here, has ended, or was marked lost."""
        row = self._own.get(WorkerId(worker_id))
        if row is None:
            raise KeyError(
                f"worker {worker_id} is not registered with this backend; register it here before sending its heartbeats"
            )
        beat = Heartbeat(
            pool_id=row.pool_id,
            worker_id=row.worker_id,
            instance=self._instance,
            read_to=0,
            sample=self._as_sample(metadata) if metadata else None,
        )
        try:
            await (await self.place.store()).membership.beat(beat)
        except WorkerGone as exc:
            self._own.pop(row.worker_id, None)
            log.warning("worker %s sends no more heartbeats, the store refused one: %s; register it again", worker_id, exc)
            raise KeyError(f"the store refused a heartbeat of worker {worker_id}: {exc}") from exc

    async def update_status(self, worker_id: str, status: str, error: str | None = None) -> None:
        """Change a worker's status. Raises KeyError if there is none, Refused if it has ended or its row just changed."""
        to = _status_of(status)
        store = await self.place.store()
        row = await self._find(store, worker_id)
        if row is None:
            raise KeyError(f"there is no worker {worker_id!r} in this store's job pools; register it first")
        change = WorkerChange(error=error) if error else None
        if row.status is not to:
            if row.instance == self._instance:
                await store.membership.move(
                    row.pool_id, row.worker_id, self._instance, to, f"set by its process: {status}", change
                )
            else:
                await store.workers.move(row, to, error or f"set by another process: {status}", change)
        if to in (WorkerStatus.TERMINATED, WorkerStatus.ERROR, WorkerStatus.LOST):
            self._own.pop(row.worker_id, None)

    async def get(self, worker_id: str) -> WorkerRecord | None:
        store = await self.place.store()
        row = await self._find(store, worker_id)
        return None if row is None else (await self._records(store, row.pool_id, [row]))[0]

    async def list(self, filter: WorkerFilter | None = None) -> Sequence[WorkerRecord]:  # noqa: A002 - the protocol's name
        """List the workers that match a filter. A filter without a pool matches the workers of every job pool."""
        store = await self.place.store()
        now = await store.now()
        criteria = filter or WorkerFilter()
        records: list[WorkerRecord] = []
        for pool_id in await self._pools(store, getattr(criteria, "pool_id", None)):
            rows = [row for row in await store.workers.list(pool_id) if _matches(row, criteria, now)]
            records += await self._records(store, pool_id, rows)
        return tuple(records)

    def holder(self, worker_id: str) -> Holder | None:
        """Return the identity with which a worker claims jobs; None if this backend did not register the worker."""
        row = self._own.get(WorkerId(worker_id))
        return row.holder if row else None

    def own(self) -> frozenset[WorkerId]:
        """Return the ids of the workers that this backend registered and that have not ended, as far as it knows."""
        return frozenset(self._own)

    def clone(self) -> "DrumbeatRegistrationBackend":
        """Copy this backend for another thread: with separate connections and the same registered workers."""
        copy = DrumbeatRegistrationBackend(self.place.clone(), pool_id=self._pool_id, thresholds=self._thresholds)
        copy._instance, copy._own = self._instance, self._own
        return copy

    async def close(self) -> None:
        await self.place.close()

    async def __aenter__(self) -> "DrumbeatRegistrationBackend":
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self.close()

    async def _joining(self, store: Store, pool_id: PoolId, worker: WorkerRegistration) -> JoinRequest:
        rows = await store.workers.list(pool_id, live=True)
        existing = next((row for row in rows if row.worker_id == worker.worker_id), None)
        taken = {row.slot for row in rows}
        free = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        return JoinRequest(
            pool_id=pool_id,
            worker_id=WorkerId(worker.worker_id),
            slot=existing.slot if existing else free,
            instance=self._instance,
            host=worker.host or socket.gethostname(),
            pid=worker.pid or os.getpid(),
            capabilities=tuple(worker.capabilities or (existing.capabilities if existing else ())),
        )

    def _as_sample(self, metadata: Mapping[str, Any]) -> Sample:
        """Convert a heartbeat's metadata to a sample (a row of measurements), because a worker's row cannot store metadata."""
        self._notes += 1
        return Sample(n=self._notes, interval=timedelta(), extra=dict(metadata))

    async def _find(self, store: Store, worker_id: str) -> Worker | None:
        """Return a worker's row; None if there is none. A worker that this backend registered is searched in its pool only. Any
        other worker is searched in all job pools; if the backend's own pool has such a worker, that one is returned.

        Raises InvalidInput if several pools have a worker with this id and none of them is the backend's own pool.
        """
        own = self._own.get(WorkerId(worker_id))
        found = []
        for pool_id in [own.pool_id] if own else await self._pools(store, None):
            with suppress(NotFound):
                found.append(await store.workers.get(pool_id, WorkerId(worker_id)))
        found = [row for row in found if row.pool_id == self._pool_id] or found
        if len(found) > 1:
            pools = ", ".join(sorted(row.pool_id for row in found))
            raise InvalidInput(
                f"expected one worker {worker_id}, got one in each of these pools: {pools}; set the backend's pool_id"
            )
        return found[0] if found else None

    async def _pools(self, store: Store, name: str | None) -> Sequence[PoolId]:
        return [PoolId(name)] if name else [each.pool_id for each in await store.pools.list(PoolKind.JOBS)]

    async def _records(self, store: Store, pool_id: PoolId, rows: Sequence[Worker]) -> Sequence[WorkerRecord]:
        if not rows:
            return ()
        claimed = await store.jobs.list(pool_id, statuses=[JobStatus.CLAIMED], limit=MOST_CLAIMS)
        tasks = {(job.lease_pool, job.lease_owner): str(job.job_id) for job in claimed}
        only = rows[0].worker_id if len(rows) == 1 else None
        notes: dict[WorkerId, dict[str, Any]] = {}
        for sample in await store.samples.list(pool_id, worker_id=only):
            notes.setdefault(sample.worker_id, {}).update(sample.extra)
        return [_record(row, tasks.get((row.pool_id, row.worker_id)), notes.get(row.worker_id)) for row in rows]


def _record(row: Worker, task: str | None = None, metadata: Mapping[str, Any] | None = None) -> WorkerRecord:
    last_seen = row.heartbeat_at or row.created_at
    return WorkerRecord(
        worker_id=str(row.worker_id),
        status=word_of(row.status),
        last_heartbeat=last_seen.isoformat() if last_seen else "",
        host=row.host,
        pid=row.pid,
        capabilities=list(row.capabilities) or None,
        started_at=row.started_at.isoformat() if row.started_at else None,
        current_task_id=task,
        metadata=dict(metadata) if metadata else None,
    )


def _matches(row: Worker, criteria: WorkerFilter, now: datetime) -> bool:
    words = [criteria.status] if isinstance(criteria.status, str) else list(criteria.status or ())
    statuses = {_status_of(word) for word in (*words, *getattr(criteria, "statuses", ()))}
    if statuses and row.status not in statuses:
        return False
    if criteria.capability and criteria.capability not in row.capabilities:
        return False
    limit = criteria.stale_threshold_seconds
    return not limit or silence(row, now) > timedelta(seconds=float(limit))


def _status_of(word: str) -> WorkerStatus:
    if word not in WORDS:
        raise InvalidInput(f"expected a worker's status to be one of {', '.join(sorted(WORDS))}, got {word!r}")
    return WORDS[word]
