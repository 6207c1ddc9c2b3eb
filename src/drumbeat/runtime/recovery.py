"""Carries out recovery actions and starts workers. It writes a worker's row before it asks the provider for an instance."""

import logging
from collections.abc import Mapping
from functools import singledispatchmethod
from typing import Any

from drumbeat.core.engine import covers
from drumbeat.core.errors import DrumbeatError, Fenced, SpawnError, SpawnFailed, StaleWrite, StoreUnavailable, Unanswered
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.recovery import ASKED_AT, EndOverdue, EndStray, MarkFailed, MarkLost, Reap, Recovery, asked_at
from drumbeat.core.refusal import TIMES_REFUSED, is_curable, refusal_meta, refusal_of, refusal_text
from drumbeat.core.worker import CRASH, REFUSED, SPAWN_FAILED, UNANSWERED, Worker, WorkerId, WorkerStatus
from drumbeat.spawn.interface import Instance, InstanceState, Order, Spawner, list_reachable
from drumbeat.store.interface import Store, WorkerChange

log = logging.getLogger(__name__)

_VOLATILE = frozenset({"status", "gpus"})  #: details of an instance that change often and so are not stored


class RecoveryActor:
    """Marks workers of one pool as lost or failed, and ends their instances. Every action is safe to repeat."""

    def __init__(self, store: Store, spawner: Spawner, pool_id: PoolId) -> None:
        self._store = store
        self._spawner = spawner
        self._pool_id = pool_id

    async def recover(self, action: Recovery, fence: Fence) -> None:
        """Carry out one recovery action. Raises Fenced if another controller leads."""
        await self._do(action, fence)

    @singledispatchmethod
    async def _do(self, action: Recovery, fence: Fence) -> None:
        raise TypeError(f"unknown recovery action {type(action).__name__}; expected a type that this class has a method for")

    @_do.register
    async def _(self, action: MarkLost, fence: Fence) -> None:
        change = WorkerChange(meta={CRASH: action.is_crash})
        await self._store.workers.move(action.worker, WorkerStatus.LOST, action.reason, change, fence=fence)

    @_do.register
    async def _(self, action: MarkFailed, fence: Fence) -> None:
        to = WorkerStatus.TERMINATED if action.exit_code == 0 else WorkerStatus.ERROR
        error = None if action.exit_code == 0 else action.reason
        change = WorkerChange(exit_code=action.exit_code, error=error, meta={CRASH: action.is_crash})
        await self._store.workers.move(action.worker, to, action.reason, change, fence=fence)

    @_do.register
    async def _(self, action: Reap, fence: Fence) -> None:
        await self.check(fence)
        row = await self._store.workers.get(self._pool_id, action.worker_id)
        check_provider(row, self._spawner)
        try:
            await self._spawner.terminate(self._pool_id, action.worker_id)
        except Unanswered:
            if await self._may_run(row):
                raise
        await self._store.workers.mark_reaped(self._pool_id, action.worker_id, fence=fence)

    async def _may_run(self, row: Worker) -> bool:
        """Whether an ended worker's instance might still run: it is listed, or an engine or host that might have it is silent.

        Always False if its start was refused. Raises Unanswered if no engine or host answers.
        """
        if row.meta.get(SPAWN_FAILED):
            return False
        found = await list_reachable(self._spawner, self._pool_id)
        running = {one.worker_id for one in found.instances if one.state is not InstanceState.EXITED}
        return row.worker_id in running or bool(found.may_hold(row))

    @_do.register
    async def _(self, action: EndStray, fence: Fence) -> None:
        await self.check(fence)
        await self._spawner.terminate(self._pool_id, action.worker_id)

    @_do.register
    async def _(self, action: EndOverdue, fence: Fence) -> None:
        change = WorkerChange(meta={"drain_timed_out": True}, error=action.reason)
        await self._store.workers.move(action.worker, WorkerStatus.TERMINATED, action.reason, change, fence=fence)

    async def start(self, row: Worker, group_count: int, fence: Fence, *, is_new: bool, keep_refused: bool = False) -> None:
        """Add the worker's row if ``is_new``, then start its instance. If the engine refuses, marks the row as ended and raises
        SpawnFailed; if it is not known whether the worker was started, records that in the row and raises SpawnError.

        ``keep_refused``: leave the row open if the engine might start the worker later, so that a later beat can ask again.
        """
        before = row
        if is_new:
            await self._store.workers.add([row], fence=fence)
        else:
            await self.check(fence)
            before = await self._ask_again(row.worker_id, fence)
        is_first = is_new or refusal_of(before) is not None
        order = Order(pool_id=self._pool_id, worker_id=row.worker_id, slot=row.slot, group_count=group_count, is_first=is_first)
        try:
            instance = await self._spawner.spawn(order)
        except SpawnFailed as exc:
            if keep_refused and is_curable(exc.cause, row.provider):
                await self._keep(before, exc, fence)
            else:
                await self._close(row, exc, fence)
            raise
        except SpawnError as exc:
            await self._note_unanswered(before, exc, fence)
            raise
        await self._note(instance, fence, {UNANSWERED: None} if before.meta.get(UNANSWERED) else {})

    async def add_unasked(self, row: Worker, error: SpawnError, fence: Fence) -> None:
        """Add a worker's row without asking the engine to start it yet, as the engine has just failed to start another one."""
        await self._store.workers.add([row], fence=fence)
        await self._keep(row, SpawnFailed(str(error), cause=error.cause), fence)

    async def check(self, fence: Fence) -> None:
        """Raise Fenced if another controller leads. To check that, append an empty list of events, which writes nothing."""
        await self._store.events.append(self._pool_id, (), fence=fence)

    async def _ask_again(self, worker_id: WorkerId, fence: Fence) -> Worker:
        """Check that the provider can be asked again to start this worker, and record the new request. Returns the row as it
        was before. Clears a refusal in the row, because if this controller dies now, the worker might have been started.

        Raises StaleWrite if the worker has ended, SpawnError while the instance of an earlier request might still appear: a
        controller might have died before it got the provider's answer, and the provider's list might lag behind.
        """
        found, now = await self._store.workers.get(self._pool_id, worker_id), await self._store.now()
        if not found.is_live:
            raise StaleWrite(f"worker {worker_id} has ended as {found.status}; no instance is started for it")
        settle, was_refused = self._spawner.traits.settle, refusal_of(found) is not None
        left = settle - (now - asked_at(found, now))
        if left.total_seconds() > 0 and not was_refused:
            wait = f"{left.total_seconds():.0f} s"
            raise SpawnError(
                f"worker {worker_id}: no new instance requested, as the earlier one might still start within {wait}"
            )
        if settle or was_refused:
            meta = {ASKED_AT: now.isoformat(), **({REFUSED: None} if was_refused else {})}
            await self._store.workers.note_instance(self._pool_id, worker_id, found.provider_ref or "", meta, fence=fence)
        return found

    async def _keep(self, row: Worker, refusal: SpawnFailed, fence: Fence) -> None:
        """Record in a worker's row why, when and how often the engine refused to start it, so that a later beat asks again."""
        meta = refusal_meta(refusal, await self._store.now(), int(row.meta.get(TIMES_REFUSED) or 0) + 1)
        await self._store.workers.note_instance(self._pool_id, row.worker_id, row.provider_ref or "", meta, fence=fence)

    async def _note_unanswered(self, row: Worker, error: SpawnError, fence: Fence) -> None:
        """Record in the row why it is not known whether the worker was started. If the store fails too, that is only logged."""
        meta = {UNANSWERED: refusal_text(str(error))}
        try:
            await self._store.workers.note_instance(self._pool_id, row.worker_id, row.provider_ref or "", meta, fence=fence)
        except Fenced:
            raise
        except DrumbeatError as exc:
            log.warning("worker %s may have been started; failed to record the error of its engine: %s", row.worker_id, exc)

    async def _note(self, instance: Instance, fence: Fence, cleared: Mapping[str, None]) -> None:
        """Store the provider's id, price and location of an instance, if known. A store outage is only logged."""
        told = {name: value for name, value in instance.meta.items() if name not in _VOLATILE and value is not None}
        meta: dict[str, Any] = {**told, **cleared}
        if instance.price_per_hour is not None:
            meta["price_per_hour"] = instance.price_per_hour
        if not meta:
            return
        try:
            await self._store.workers.note_instance(self._pool_id, instance.worker_id, instance.ref, meta, fence=fence)
        except StoreUnavailable as exc:
            log.warning("failed to record details of instance %s of worker %s: %s", instance.ref, instance.worker_id, exc)

    async def _close(self, row: Worker, refusal: SpawnFailed, fence: Fence) -> None:
        """End the row of a worker that could not be started, with the status terminated, not error: the worker did not fail."""
        try:
            change = WorkerChange(error=str(refusal), meta={**row.meta, **_refusal_meta(refusal)})
            await self._store.workers.move(row, WorkerStatus.TERMINATED, "could not be started", change, fence=fence)
        except StaleWrite:
            return


def check_provider(row: Worker, spawner: Spawner) -> None:
    """Raise SpawnError if ``spawner`` cannot end the worker's instance, because another provider started the worker."""
    if not covers(spawner.traits.name, row.provider):
        raise SpawnError(
            f"engine {spawner.traits.name} cannot end worker {row.worker_id}, which engine {row.provider} started; "
            f"run the fleet with --engine {row.provider} until the workers of that engine are gone"
        )


def _refusal_meta(refusal: SpawnFailed) -> dict[str, Any]:
    """Return entries for ``meta`` of a worker's row: why the provider refused to start it, and how long it asks to wait."""
    wait = {} if refusal.retry_after is None else {"retry_after_seconds": refusal.retry_after.total_seconds()}
    return {SPAWN_FAILED: True, "cause": refusal.cause.value, **wait}
