"""FlatMachines' RegistrationBackend on our ``workers`` rows: pools apart, and nobody comes back from the dead."""

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
from drumbeat.store.interface import Heartbeat, Joining, Store, WorkerChange

log = logging.getLogger(__name__)

DEFAULT_POOL = "default"
MOST_CLAIMS = 10_000  #: claimed jobs looked through for what each worker works on
_PATH_TO_ACTIVE = (WorkerStatus.WAITING, WorkerStatus.ACTIVE)

WORDS: Mapping[str, WorkerStatus] = {status.value: status for status in WorkerStatus} | {
    "terminating": WorkerStatus.DRAINING,
    "failed": WorkerStatus.ERROR,
}  #: the seed's words, and ours


@dataclass
class PoolWorkerRegistration(WorkerRegistration):  # type: ignore[misc]
    """A registration that says which pool the worker is of (C62)."""

    pool_id: str | None = None


@dataclass
class PoolWorkerFilter(WorkerFilter):  # type: ignore[misc]
    """The package's filter, with a pool and with several statuses at once."""

    pool_id: str | None = None
    statuses: Sequence[str] = field(default_factory=tuple)


def word_of(status: WorkerStatus) -> str:
    """A status in the seed's words."""
    return "terminating" if status is WorkerStatus.DRAINING else status.value


class DrumbeatRegistrationBackend:
    """Workers of pools of jobs. Only who registered a worker may speak for it, and only while its row is live."""

    def __init__(
        self, where: str | Store | LazyStore, *, pool_id: str = DEFAULT_POOL, thresholds: Thresholds | None = None
    ) -> None:
        """``pool_id`` is for registrations that name none; ``thresholds`` for pools that are made here."""
        self.place = where if isinstance(where, LazyStore) else LazyStore(where)
        self._pool_id = pool_id
        self._thresholds = thresholds
        self._instance = process_name()
        self._own: dict[WorkerId, Worker] = {}
        self._notes = 0

    async def register(self, worker: WorkerRegistration) -> WorkerRecord:
        """Join and be active. Raises WorkerGone when the name's row has ended, or another process has it."""
        pool_id = await self.place.pool(getattr(worker, "pool_id", None) or self._pool_id, self._thresholds)
        own = self._own.get(WorkerId(worker.worker_id))
        if own is not None and own.pool_id != pool_id:
            raise InvalidInput(f"expected another name than {worker.worker_id}, which is registered here for {own.pool_id}")
        store = await self.place.store()
        row = await store.membership.join(await self._joining(store, pool_id, worker))
        for status in _PATH_TO_ACTIVE[_PATH_TO_ACTIVE.index(row.status) + 1 if row.status in _PATH_TO_ACTIVE else 0 :]:
            row = await store.membership.move(pool_id, row.worker_id, self._instance, status, "registered")
        self._own[row.worker_id] = row
        return _record(row)

    async def heartbeat(self, worker_id: str, metadata: dict[str, Any] | None = None) -> None:
        """A sign of life. KeyError for a worker that was not registered here, has ended, or was given up."""
        row = self._own.get(WorkerId(worker_id))
        if row is None:
            raise KeyError(f"worker {worker_id} was not registered here; only who registered it may beat for it")
        beat = Heartbeat(
            pool_id=row.pool_id,
            worker_id=row.worker_id,
            instance=self._instance,
            read_to=0,
            sample=self._note(metadata) if metadata else None,
        )
        try:
            await (await self.place.store()).membership.beat(beat)
        except WorkerGone as exc:
            self._own.pop(row.worker_id, None)
            log.warning("heartbeat of %s refused: %s", worker_id, exc)
            raise KeyError(f"heartbeat of {worker_id} refused: {exc}") from exc

    async def update_status(self, worker_id: str, status: str, error: str | None = None) -> None:
        """Move a worker. KeyError for one nobody knows; Refused when it has ended, or was heard of meanwhile."""
        to = _status_of(status)
        store = await self.place.store()
        row = await self._find(store, worker_id)
        if row is None:
            raise KeyError(f"worker {worker_id} not found")
        change = WorkerChange(error=error) if error else None
        if row.status is not to:
            if row.instance == self._instance:
                await store.membership.move(row.pool_id, row.worker_id, self._instance, to, f"said: {status}", change)
            else:
                await store.workers.move(row, to, error or f"said from outside: {status}", change)
        if to in (WorkerStatus.TERMINATED, WorkerStatus.ERROR, WorkerStatus.LOST):
            self._own.pop(row.worker_id, None)

    async def get(self, worker_id: str) -> WorkerRecord | None:
        store = await self.place.store()
        row = await self._find(store, worker_id)
        return None if row is None else (await self._records(store, row.pool_id, [row]))[0]

    async def list(self, filter: WorkerFilter | None = None) -> Sequence[WorkerRecord]:  # noqa: A002 - the protocol's name
        """Workers of the filter's pool, or of every pool of jobs. Without a threshold given, none is stale."""
        store = await self.place.store()
        now = await store.now()
        wanted = filter or WorkerFilter()
        records: list[WorkerRecord] = []
        for pool_id in await self._pools(store, getattr(wanted, "pool_id", None)):
            rows = [row for row in await store.workers.list(pool_id) if _fits(row, wanted, now)]
            records += await self._records(store, pool_id, rows)
        return tuple(records)

    def holder(self, worker_id: str) -> Holder | None:
        """Under what identity a worker that was registered here holds jobs."""
        row = self._own.get(WorkerId(worker_id))
        return row.holder if row else None

    def own(self) -> frozenset[WorkerId]:
        """Workers that were registered here and have not ended, as far as is known."""
        return frozenset(self._own)

    def twin(self) -> "DrumbeatRegistrationBackend":
        """This backend, its workers included, by connections of its own."""
        made = DrumbeatRegistrationBackend(self.place.twin(), pool_id=self._pool_id, thresholds=self._thresholds)
        made._instance, made._own = self._instance, self._own
        return made

    async def close(self) -> None:
        await self.place.close()

    async def __aenter__(self) -> "DrumbeatRegistrationBackend":
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self.close()

    async def _joining(self, store: Store, pool_id: PoolId, worker: WorkerRegistration) -> Joining:
        rows = await store.workers.list(pool_id, live=True)
        asked_for = next((row for row in rows if row.worker_id == worker.worker_id), None)
        taken = {row.slot for row in rows}
        free = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        return Joining(
            pool_id=pool_id,
            worker_id=WorkerId(worker.worker_id),
            slot=asked_for.slot if asked_for else free,
            instance=self._instance,
            host=worker.host or socket.gethostname(),
            pid=worker.pid or os.getpid(),
            capabilities=tuple(worker.capabilities or (asked_for.capabilities if asked_for else ())),
        )

    def _note(self, metadata: Mapping[str, Any]) -> Sample:
        """A worker's row has no room for notes; what it measured has."""
        self._notes += 1
        return Sample(n=self._notes, interval=timedelta(), extra=dict(metadata))

    async def _find(self, store: Store, worker_id: str) -> Worker | None:
        """The worker that was registered here, or else that of the backend's pool, or else the only one of this name.

        Raises InvalidInput if several other pools have one.
        """
        own = self._own.get(WorkerId(worker_id))
        found = []
        for pool_id in [own.pool_id] if own else await self._pools(store, None):
            with suppress(NotFound):
                found.append(await store.workers.get(pool_id, WorkerId(worker_id)))
        found = [row for row in found if row.pool_id == self._pool_id] or found
        if len(found) > 1:
            pools = ", ".join(sorted(row.pool_id for row in found))
            raise InvalidInput(f"expected one worker {worker_id}, got one in each of {pools}; give the backend its pool_id")
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
    heard = row.heartbeat_at or row.created_at
    return WorkerRecord(
        worker_id=str(row.worker_id),
        status=word_of(row.status),
        last_heartbeat=heard.isoformat() if heard else "",
        host=row.host,
        pid=row.pid,
        capabilities=list(row.capabilities) or None,
        started_at=row.started_at.isoformat() if row.started_at else None,
        current_task_id=task,
        metadata=dict(metadata) if metadata else None,
    )


def _fits(row: Worker, wanted: WorkerFilter, now: datetime) -> bool:
    words = [wanted.status] if isinstance(wanted.status, str) else list(wanted.status or ())
    statuses = {_status_of(word) for word in (*words, *getattr(wanted, "statuses", ()))}
    if statuses and row.status not in statuses:
        return False
    if wanted.capability and wanted.capability not in row.capabilities:
        return False
    limit = wanted.stale_threshold_seconds
    return not limit or silence(row, now) > timedelta(seconds=float(limit))


def _status_of(word: str) -> WorkerStatus:
    if word not in WORDS:
        raise InvalidInput(f"expected a worker's status to be one of {', '.join(sorted(WORDS))}, got {word!r}")
    return WORDS[word]
