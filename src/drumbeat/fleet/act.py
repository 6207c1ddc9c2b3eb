"""Carry out the fleet's actions. The store's rows are changed before the provider is called; every action can be repeated."""

import logging
from datetime import datetime
from functools import singledispatchmethod
from typing import Any

from drumbeat.core.errors import SpawnError, StaleWrite
from drumbeat.core.event import WorkerTarget
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.recovery import Recovery
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.fleet.model import (
    AskToDrain,
    ExpandVolume,
    ExpireJobs,
    Fail,
    ForgetRefusals,
    NoteInstance,
    ReleaseJobs,
    SetTarget,
    Spawn,
    Warn,
)
from drumbeat.runtime.recovery import RecoveryActor
from drumbeat.spawn.interface import ExpandsVolumes, ForgetsRefusals, Spawner
from drumbeat.store.interface import Store, WorkerChange

log = logging.getLogger(__name__)


class FleetActor:
    """Carries out the actions that one pool's controller has decided."""

    def __init__(self, store: Store, spawner: Spawner, pool_id: PoolId) -> None:
        self._store = store
        self._pool_id = pool_id
        self._spawner = spawner
        self._provider = spawner.traits.name
        self._recovery = RecoveryActor(store, spawner, pool_id)
        self._refused: tuple[datetime, str] | None = None  #: time of the beat in which the provider last failed, and its error

    @singledispatchmethod
    async def act(self, action: Recovery, fence: Fence) -> None:
        """Carry out one action. ``fence``: the controller's lease; once the lease is lost, the store refuses the action."""
        await self._recovery.recover(action, fence)

    @act.register
    async def _(self, action: Spawn, fence: Fence) -> None:
        """Start a worker. If the provider has already failed in this beat, raise SpawnError without calling it again."""
        if self._refused is not None and action.at is not None and self._refused[0] == action.at:
            raise SpawnError(f"not tried: worker {action.worker_id}: an earlier start in this beat failed: {self._refused[1]}")
        try:
            await self._recovery.start(self._row(action), action.group_count, fence, is_new=action.is_new)
        except SpawnError as exc:
            self._refused = None if action.at is None else (action.at, str(exc))
            raise

    @act.register
    async def _(self, action: ForgetRefusals, fence: Fence) -> None:
        if isinstance(self._spawner, ForgetsRefusals):
            self._spawner.forget_refusals(self._pool_id)

    @act.register
    async def _(self, action: NoteInstance, fence: Fence) -> None:
        await self._store.workers.note_instance(self._pool_id, action.worker_id, action.ref, {}, fence=fence)

    @act.register
    async def _(self, action: SetTarget, fence: Fence) -> None:
        target = WorkerTarget(connections=action.target, reason=action.reason, ramp=action.ramp)
        await self._store.workers.set_targets(self._pool_id, {action.worker_id: target}, fence=fence)

    @act.register
    async def _(self, action: AskToDrain, fence: Fence) -> None:
        leaving = [action.worker_id]
        await self._store.workers.ask_to_drain(self._pool_id, leaving, action.reason, action.within, fence=fence)

    @act.register
    async def _(self, action: Fail, fence: Fence) -> None:
        change = WorkerChange(error=action.reason, meta={**action.worker.meta, "fault": action.rule})
        await self._store.workers.move(action.worker, WorkerStatus.ERROR, action.reason, change, fence=fence)

    @act.register
    async def _(self, action: ReleaseJobs, fence: Fence) -> None:
        """Return an ended worker's jobs to the queue. Raises StaleWrite if the worker is live again and so keeps its jobs."""
        row = await self._store.workers.get(self._pool_id, action.worker_id)
        if row.is_live:
            raise StaleWrite(f"jobs not released: worker {action.worker_id} is {row.status} again and keeps its jobs")
        await self._store.queue.release(row.holder, action.reason, charge=row.has_crashed, fence=fence)

    @act.register
    async def _(self, action: ExpireJobs, fence: Fence) -> None:
        await self._recovery.check(fence)
        await self._store.queue.expire()

    @act.register
    async def _(self, action: ExpandVolume, fence: Fence) -> None:
        """Expand a volume to the requested size, unless the volume at the provider is already larger."""
        if not isinstance(self._spawner, ExpandsVolumes):
            raise SpawnError(
                f"expected a provider that can expand volumes, got {self._provider}; expand {action.volume} by hand"
            )
        await self._recovery.check(fence)
        size = await self._spawner.expand_volume(action.volume, action.to_gb, action.seen_gb)
        log.info("volume %s now has %d GB; requested %d GB", action.volume, size, action.to_gb)

    @act.register
    async def _(self, action: Warn, fence: Fence) -> None:
        log.warning("worker %s needs attention (rule %s): %s", action.worker_id, action.rule, action.reason)

    def _row(self, action: Spawn) -> Worker:
        meta: dict[str, Any] = {"price_per_hour": action.price_per_hour or 0.0, "contract": action.contract}
        return Worker(
            pool_id=self._pool_id,
            worker_id=action.worker_id,
            slot=action.slot,
            provider=self._provider,
            meta={name: value for name, value in meta.items() if value is not None},
        )
