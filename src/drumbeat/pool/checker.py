"""Checks a pool once (takes back jobs, starts workers) or reaps it once (only takes back jobs)."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.pool.beats import MAX_WAIT, ONE_BEAT, BeatContext, beat_once, jobs_pool, pool_loop
from drumbeat.pool.decide import SPARED
from drumbeat.pool.due_jobs import has_waiting, is_watched, when_due
from drumbeat.pool.model import PoolPolicy
from drumbeat.pool.plugins import NO_PLUGINS, PoolPlugins
from drumbeat.runtime.beat import BeatReport
from drumbeat.spawn.interface import InstanceState, Spawner
from drumbeat.store.interface import PoolChange, Store

log = logging.getLogger(__name__)

_POLL_EVERY = timedelta(milliseconds=500)


class Checker:
    """Starts workers for the pools of one store and takes back jobs of lost workers. It acts only when called."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        owner: Callable[[], str],
        open_spawner: Callable[[str], AbstractAsyncContextManager[Spawner]],
        watch: Callable[[PoolId], Awaitable[object]] | None = None,
        after: Callable[[], Awaitable[object]] | None = None,
        plugins: Callable[[], PoolPlugins] = lambda: NO_PLUGINS,
        here: Callable[[str], str] = lambda engines: engines,
    ) -> None:
        """``owner`` returns a unique name for each beat. ``open_spawner`` returns a spawner for an engine or several (``a,b``);
        its workers must keep running when the spawner is closed. ``watch`` starts a process that watches a pool for delayed
        jobs and keeps running when this process ends. ``after`` is called after each beat that held the pool's lease.
        ``plugins`` returns the middleware and the storage of large values, for the jobs that schedules push. ``here`` returns
        those of an engine or several whose workers run on this machine, or an empty text."""
        self._here = here
        self._watch = watch
        self._store = store
        self._clock = clock
        self._owner = owner
        self._open_spawner = open_spawner
        self._after = after
        self._plugins = plugins

    async def check(self, pool_id: PoolId, *, max_workers: int | None = None, max_wait: timedelta = MAX_WAIT) -> BeatReport:
        """Take back jobs of dead workers, then start as many workers as the queue needs.

        ``max_workers`` is stored in the pool, so that later checks use it too. In a fleet's pool it is ignored and no workers
        are started, because the fleet does that. Raises NotFound, InvalidInput, InvalidSettings.
        """
        pool = await self._keep_cap(pool_id, max_workers)
        report = await self._beat(pool, max_wait)
        await self.watch_for_later(pool_id, again=SPARED in report.summary)
        return report

    async def check_each(self, *, max_workers: int | None = None) -> Mapping[PoolId, BeatReport]:
        """Check every pool of jobs. If the check of one fails, its report contains the error, and the next pool is checked."""
        pools = await self._store.pools.list(PoolKind.JOBS)
        return {each.pool_id: await _reported(each, self.check(each.pool_id, max_workers=max_workers)) for each in pools}

    async def reap(
        self, pool_id: PoolId | None = None, *, lost_after: timedelta | None = None, max_wait: timedelta = MAX_WAIT
    ) -> Mapping[PoolId, BeatReport]:
        """Take back jobs of dead workers in one pool or in all pools, without starting workers.

        ``lost_after`` replaces the time without a heartbeat after which a worker counts as lost. If it is not longer than
        the pool's heartbeat interval, InvalidInput is raised or, if all pools are reaped, that pool's own value is used. If
        all are reaped and one fails, its report contains the error, and the next pool is reaped.
        """
        pools = [await jobs_pool(self._store, pool_id)] if pool_id else await self._store.pools.list(PoolKind.JOBS)
        reports = {}
        for pool in pools:
            limit = lost_after
            if limit is not None and limit <= pool.thresholds.heartbeat_every:
                if pool_id is not None:
                    raise _too_soon(pool, limit)
                log.warning("%s; using the pool's own lost_after", _too_soon(pool, limit))
                limit = None
            beat = self._beat(pool, max_wait, only_recover=True, lost_after=limit)
            reports[pool.pool_id] = await (beat if pool_id else _reported(pool, beat))
        return reports

    async def stay(self, pool_id: PoolId, within: timedelta | None = None) -> bool:
        """Wait until no worker of a pool runs on this machine; return False if ``within`` passes first.

        Needed where child processes are killed when their parent exits, such as in a container or a cloud function. Workers of
        engines elsewhere go on without this process.
        """
        deadline = None if within is None else self._clock.elapsed() + within
        engines = self._here(_engines_of(await jobs_pool(self._store, pool_id)))
        if not engines:
            return True
        async with self._open_spawner(engines) as spawner:
            while any(one.state is not InstanceState.EXITED for one in await spawner.list(pool_id)):
                if deadline is not None and self._clock.elapsed() >= deadline:
                    return False
                await self._clock.sleep(_POLL_EVERY)
        return True

    async def after_exit(self, pool_id: PoolId, jobs_done: int) -> None:
        """Start new workers if an exiting worker ran jobs and more jobs are ready. Store errors are only logged.

        If the worker ran no job, no worker is started; otherwise jobs that are ready but cannot be claimed yet would start
        workers without end. If delayed jobs remain, a process that waits for them is started.
        """
        again = False
        try:
            if jobs_done:
                again = await self._check_after_exit(pool_id)
        except DrumbeatError as exc:
            log.warning("failed to check pool %s as this worker exits: %s; its jobs may be left without a worker", pool_id, exc)
        await self.watch_for_later(pool_id, again=again)

    async def watch_for_later(self, pool_id: PoolId, *, again: bool = False) -> None:
        """If the pool has delayed jobs, or jobs that wait for others, and no process waits for them yet, start one. ``again``:
        also if jobs are ready, as the pool must be checked again soon. Errors of the store and of starting the process are
        logged, not raised."""
        if self._watch is None:
            return
        try:
            due = await when_due(self._store, pool_id)
            later = due.next_in is not None or (due.is_ready and (again or await has_waiting(self._store, pool_id)))
            if later and not await is_watched(self._store, pool_id):
                await self._watch(pool_id)
        except DrumbeatError as exc:
            log.warning("failed to start a process that waits for delayed jobs of pool %s: %s", pool_id, exc)

    async def _check_after_exit(self, pool_id: PoolId) -> bool:
        """Check the pool if jobs are ready, unless another exiting worker, which holds the lease ``after-exit``, checks it.
        Returns whether the pool must be checked again soon."""
        leases = self._store.leases
        if not await self._store.jobs.size(pool_id, 1):
            return False
        pool = await jobs_pool(self._store, pool_id)
        max_wait = timedelta() if pool.is_scaled else MAX_WAIT
        turn = await leases.acquire(f"after-exit/{pool_id}", self._owner(), MAX_WAIT)
        if turn is None:
            return False
        report = await self._beat(pool, max_wait, before=lambda: leases.release(turn))
        return SPARED in report.summary

    def _spawner(self, pool: PoolRow) -> AbstractAsyncContextManager[Spawner]:
        return self._open_spawner(_engines_of(pool))

    async def _beat(
        self,
        pool: PoolRow,
        max_wait: timedelta,
        *,
        only_recover: bool = False,
        lost_after: timedelta | None = None,
        before: Callable[[], Awaitable[object]] | None = None,
    ) -> BeatReport:
        async with self._spawner(pool) as spawner:
            beating = BeatContext(
                store=self._store, spawner=spawner, clock=self._clock, owner=self._owner(), plugins=self._plugins
            )
            loop = pool_loop(
                beating, pool.pool_id, ONE_BEAT, ONE_BEAT, only_recover=only_recover, lost_after=lost_after, before=before
            )
            report = await beat_once(loop, self._clock, max_wait)
        if report.led and self._after is not None:
            await self._after()
        return report

    async def _keep_cap(self, pool_id: PoolId, max_workers: int | None) -> PoolRow:
        pool = await jobs_pool(self._store, pool_id)
        if max_workers is None or pool.is_scaled or pool.policy.get("max_workers") == max_workers:
            return pool
        PoolPolicy(max_workers=max_workers)  # raises InvalidSettings for an invalid number
        return await self._store.pools.change(pool_id, PoolChange(policy={"max_workers": max_workers}))


def _engines_of(pool: PoolRow) -> str:
    """Return the pool's engine or engines; for a fleet's pool, in which a check starts no workers, the engine local."""
    return DEFAULT_ENGINE if pool.is_scaled else pool.engine


async def _reported(pool: PoolRow, beat: Awaitable[BeatReport]) -> BeatReport:
    """Return the report of one of several pools; if its beat cannot be run, a report that contains the error."""
    try:
        return await beat
    except DrumbeatError as exc:
        log.warning("failed to check pool %s: %s; continuing with the other pools", pool.pool_id, exc)
        return BeatReport(led=False, error=str(exc) or type(exc).__name__)


def _too_soon(pool: PoolRow, lost_after: timedelta) -> InvalidInput:
    return InvalidInput(
        f"expected lost_after to be more than the {pool.thresholds.heartbeat_every.total_seconds():g} s between heartbeats of "
        f"pool {pool.pool_id}, got {lost_after.total_seconds():g} s"
    )
