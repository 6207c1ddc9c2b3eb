"""The checker and the reaper as anyone may call them: one beat, and away again."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.pool.beats import ONE_BEAT, PATIENCE, Beating, beat_once, jobs_pool, pool_loop
from drumbeat.pool.due_jobs import is_watched, when_due
from drumbeat.pool.model import PoolPolicy
from drumbeat.runtime.beat import BeatReport
from drumbeat.spawn.interface import InstanceState, Spawner
from drumbeat.store.interface import PoolChange, Store

log = logging.getLogger(__name__)

_LOOK_AGAIN = timedelta(milliseconds=500)


class Checker:
    """Checks and reaps the pools of one store. Every call is a beat of its own, with a spawner of its own."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        owner: Callable[[], str],
        open_spawner: Callable[[], Spawner],
        watch: Callable[[PoolId], Awaitable[object]] | None = None,
        after: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """``owner`` names a beat as nobody else is named; workers that ``open_spawner``'s start must outlive it. ``watch`` has
        a process watch for jobs of a pool that come due later, since nobody may be here then. ``after`` is done after a beat
        that led."""
        self._watch = watch
        self._store = store
        self._clock = clock
        self._owner = owner
        self._open_spawner = open_spawner
        self._after = after

    async def check(self, pool_id: PoolId, *, max_workers: int | None = None, patience: timedelta = PATIENCE) -> BeatReport:
        """Recover, then start as many workers as the queue is worth. Raises NotFound, InvalidInput, InvalidSettings.

        A cap that is given is kept: whoever checks later, as every worker does that leaves, goes by it. Where the workers are
        a fleet's, jobs of the dead are taken back and that is all: who comes and goes, the fleet's policy decides.
        """
        await self._keep_cap(pool_id, max_workers)
        report = await self._beat(pool_id, patience)
        await self.watch_for_later(pool_id)
        return report

    async def reap(
        self, pool_id: PoolId | None = None, *, lost_after: timedelta | None = None, patience: timedelta = PATIENCE
    ) -> Mapping[PoolId, BeatReport]:
        """Recover only, in one pool or in all. ``lost_after`` judges silence by another threshold than each pool's own.

        Raises InvalidInput where that is within a heartbeat's time; of all pools, such a one is judged by its own.
        """
        pools = [await jobs_pool(self._store, pool_id)] if pool_id else await self._store.pools.list(PoolKind.JOBS)
        reports = {}
        for pool in pools:
            limit = lost_after
            if limit is not None and limit <= pool.thresholds.heartbeat_every:
                if pool_id is not None:
                    raise _too_soon(pool, limit)
                log.warning("%s; its own is kept", _too_soon(pool, limit))
                limit = None
            reports[pool.pool_id] = await self._beat(pool.pool_id, patience, only_recover=True, lost_after=limit)
        return reports

    async def stay(self, pool_id: PoolId, within: timedelta | None = None) -> bool:
        """Return once no worker of a pool runs on this machine: where processes end with the one that started them, a
        container or a function of a cloud, whoever starts workers stays for them. False: ``within`` was over first."""
        deadline = None if within is None else self._clock.elapsed() + within
        async with self._open_spawner() as spawner:
            while any(one.state is not InstanceState.EXITED for one in await spawner.list(pool_id)):
                if deadline is not None and self._clock.elapsed() >= deadline:
                    return False
                await self._clock.sleep(_LOOK_AGAIN)
        return True

    async def after_exit(self, pool_id: PoolId, jobs_done: int) -> None:
        """What a worker does last of all (C61): a check, if it did something and jobs are left. Never raises for a store.

        One that did nothing calls nobody: jobs that are ready but may not be claimed yet would start workers for ever. Where
        jobs come due later, some process is made to watch for them.
        """
        try:
            if jobs_done:
                await self._check_for_all_who_leave(pool_id)
        except DrumbeatError as exc:
            log.warning("jobs are left in %s, and nobody was called for them: %s", pool_id, exc)
        await self.watch_for_later(pool_id)

    async def watch_for_later(self, pool_id: PoolId) -> None:
        """Where jobs come due later, have a process watch for them, unless one does: those that are ready may be jobs that
        nobody may claim now. Never raises for a store, nor for a process that cannot be started."""
        if self._watch is None:
            return
        try:
            due = await when_due(self._store, pool_id)
            if due.next_in is not None and not await is_watched(self._store, pool_id):
                await self._watch(pool_id)
        except DrumbeatError as exc:
            log.warning("jobs of %s come due later, and nobody watches for them: %s", pool_id, exc)

    async def _check_for_all_who_leave(self, pool_id: PoolId) -> None:
        """One check, unless another who left is about to make one: a lease says so, until that one begins to look."""
        leases = self._store.leases
        if not await self._store.jobs.size(pool_id, 1):
            return
        patience = timedelta() if (await jobs_pool(self._store, pool_id)).is_scaled else PATIENCE
        turn = await leases.acquire(f"after-exit/{pool_id}", self._owner(), PATIENCE)
        if turn is not None:
            await self._beat(pool_id, patience, before=lambda: leases.release(turn))

    async def _beat(
        self,
        pool_id: PoolId,
        patience: timedelta,
        *,
        only_recover: bool = False,
        lost_after: timedelta | None = None,
        before: Callable[[], Awaitable[object]] | None = None,
    ) -> BeatReport:
        async with self._open_spawner() as spawner:
            beating = Beating(store=self._store, spawner=spawner, clock=self._clock, owner=self._owner())
            loop = pool_loop(
                beating, pool_id, ONE_BEAT, ONE_BEAT, only_recover=only_recover, lost_after=lost_after, before=before
            )
            report = await beat_once(loop, self._clock, patience)
        if report.led and self._after is not None:
            await self._after()
        return report

    async def _keep_cap(self, pool_id: PoolId, max_workers: int | None) -> None:
        pool = await jobs_pool(self._store, pool_id)
        policy = PoolPolicy.from_json(pool.policy)
        is_kept = "max_workers" in pool.policy and policy.max_workers == max_workers
        if max_workers is None or pool.is_scaled or is_kept:
            return
        replace(policy, max_workers=max_workers)
        await self._store.pools.change(pool_id, PoolChange(policy={"max_workers": max_workers}))


def _too_soon(pool: PoolRow, lost_after: timedelta) -> InvalidInput:
    return InvalidInput(
        f"expected to call a worker of {pool.pool_id} lost after more than its "
        f"{pool.thresholds.heartbeat_every.total_seconds():g} s between heartbeats, got {lost_after.total_seconds():g} s"
    )
