"""Runs a worker in this process: it joins a pool, works and leaves. Controllers need not import this module."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from drumbeat.composition.base import ControlPlaneBase, WorkerArguments, WorkerSummary, process_name
from drumbeat.composition.worker_ids import find_free_id
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.run import RunId
from drumbeat.core.worker import ExitCode, WorkerId
from drumbeat.extras import bench_part
from drumbeat.runtime.disk import find_disk
from drumbeat.runtime.logs import LogShipper
from drumbeat.runtime.probe import Probe
from drumbeat.runtime.signals import run_until_signalled
from drumbeat.runtime.task_group import plain_task_group
from drumbeat.runtime.worker import WorkerLifecycle, Workload
from drumbeat.spawn.leash import hold_leash
from drumbeat.store.interface import JoinRequest

if TYPE_CHECKING:
    from drumbeat.pool.checker import Checker
    from drumbeat.pool.worker.handlers import Handlers
    from drumbeat.pool.worker.options import Mode, WorkPlan
    from drumbeat.pool.worker.workload import JobWorkload


log = logging.getLogger(__name__)

REPORT_CLOCK_VARIABLE = "DRUMBEAT_REPORT_CLOCK"  #: environment variable: if set, a worker logs what its clock shows
CLOCK_SHOWN = "the clock here shows "  #: begins that log line


class WorkerRunner:
    """Runs one worker in this process. Meanwhile, the context manager ``watching`` watches pools for delayed jobs."""

    def __init__(self, base: ControlPlaneBase, checker: "Checker", watching: AbstractAsyncContextManager[None]) -> None:
        self._base = base
        self._checker = checker
        self._watching = watching
        self._store = base.store
        self._clock = base.clock

    async def run_spawned(self, arguments: WorkerArguments) -> ExitCode:
        """Run a worker that a controller has started. Raises NotFound if its pool or run does not exist."""
        hold_leash()
        pool = await self._store.pools.get(PoolId(arguments.run_id))
        identity = _identity(arguments)
        workload = self._workload(pool, identity)
        life = self._life(pool, identity, workload)
        code = await self._run(pool, identity, life, _mode(pool))
        if pool.kind is PoolKind.JOBS and life.work_is_done and self._may_check(pool):
            done = workload.figures
            await self._checker.after_exit(pool.pool_id, done.operations + done.errors)
        return code

    async def run_adhoc(
        self,
        name: str,
        plan: "WorkPlan",
        worker_id: str | None,
        handlers: "Handlers | None",
        *,
        signals: bool,
        grace: timedelta | None = None,
        on_start: Callable[[Callable[[str], object]], object] | None = None,
    ) -> WorkerSummary:
        """Run a worker that no controller has started, in a job pool. If a worker used ``worker_id`` before, a number is
        added to the id. Raises NotFound, InvalidInput, and Refused if the earlier worker still runs in another process."""
        from drumbeat.pool.service import Pool

        pool = await Pool(self._store, self._clock, name, process_name()).get()
        if grace is not None:
            pool = replace(pool, thresholds=replace(pool.thresholds, drain_within=grace))
        own_id = await find_free_id(self._store, pool, worker_id) if worker_id else f"{name}-{process_name()}"
        arguments = WorkerArguments(run_id=name, worker_id=own_id, worker_group_id=0, worker_group_count=1)
        identity = replace(_identity(arguments), capabilities=plan.capabilities)
        workload = self._job_workload(pool, identity, plan, handlers)
        life = self._life(pool, identity, workload)
        if on_start is not None:
            on_start(life.request_stop)
        code = await self._run(pool, identity, life, plan.mode, signals=signals)
        if code is ExitCode.CLEAN and self._may_check(pool) and await self._store.beats.last(pool.pool_id) is not None:
            await self._checker.watch_for_later(pool.pool_id)
        tally = workload.in_flight.tally
        counts = {"ended": tally.ended, "finished": tally.done, "failed": tally.failed, "suspended": tally.suspended}
        return WorkerSummary(worker_id=own_id, code=code, **counts)

    def _may_check(self, pool: PoolRow) -> bool:
        """Whether this process can check the pool: it has settings for the pool's engine, or a fleet starts the workers."""
        return pool.is_scaled or pool.engine == DEFAULT_ENGINE or self._base.engines.knows(pool.engine)

    def _workload(self, pool: PoolRow, identity: JoinRequest) -> Workload:
        if pool.kind is PoolKind.FLEET:
            from drumbeat.fleet.workload import Metronome

            return Metronome(self._clock)
        if pool.kind is PoolKind.BENCH:
            run_id, folder = RunId(pool.pool_id), self._base.settings.state_dir / "executions"
            from drumbeat.bench.targets.vault import open_vault

            workload: Workload = bench_part("worker.assemble").bench_workload(
                self._store, run_id, identity.worker_id, identity.slot, folder, self._clock, open_vault(os.environ)
            )
            return workload
        return self._job_workload(pool, identity, None)

    def _job_workload(
        self, pool: PoolRow, identity: JoinRequest, plan: "WorkPlan | None", handlers: "Handlers | None" = None
    ) -> "JobWorkload":
        from drumbeat.pool.worker.assemble import job_workload
        from drumbeat.pool.worker.options import plan_of

        return job_workload(
            self._store,
            pool,
            identity.holder,
            plan or plan_of(pool),
            self._clock,
            handlers=handlers,
            plugins=self._base.plugins,
            store_url=self._base.settings.store,
        )

    def _life(self, pool: PoolRow, identity: JoinRequest, workload: Workload) -> WorkerLifecycle:
        return WorkerLifecycle(
            self._store,
            identity,
            pool.thresholds,
            workload,
            clock=self._clock,
            probe=Probe(self._clock, disk=find_disk(os.environ, self._clock)),
            gated=pool.kind is not PoolKind.JOBS,
        )

    async def _run(
        self, pool: PoolRow, identity: JoinRequest, life: WorkerLifecycle, mode: "Mode | None", *, signals: bool = True
    ) -> ExitCode:
        shipper = LogShipper(
            self._store, pool.pool_id, self._clock, worker_id=identity.worker_id, may_send=lambda: not life.is_replaced
        )
        if pool.kind is PoolKind.JOBS:
            from drumbeat.pool.worker.log_context import JobLogFilter

            shipper.handler.addFilter(JobLogFilter())
        async with shipper, self._watching, self._pushing_ticks(pool, mode):
            if os.environ.get(REPORT_CLOCK_VARIABLE):
                log.warning("%s%s", CLOCK_SHOWN, self._clock.now().isoformat())
            try:
                return await (run_until_signalled(life) if signals else life.run())
            except asyncio.CancelledError:
                await life.leave_at_once("cancelled")
                raise

    @asynccontextmanager
    async def _pushing_ticks(self, pool: PoolRow, mode: "Mode | None") -> AsyncIterator[None]:
        """While the block runs, push the jobs of the pool's schedules when they are due. A worker that exits by itself
        (any mode but LOOP) pushes only the jobs that are due at its start. ``mode`` None: the pool has no queue."""
        if mode is None:
            yield
            return
        from drumbeat.pool.schedules.tick_pusher import TickPusher
        from drumbeat.pool.worker.options import Mode

        ticks = TickPusher(self._store, self._clock, process_name(), lambda: self._base.plugins)
        if mode is not Mode.LOOP:
            await ticks.try_to_push_due(pool)
            yield
            return
        async with plain_task_group() as group:
            task = group.create_task(ticks.keep(pool.pool_id))
            try:
                yield
            finally:
                task.cancel()


def _mode(pool: PoolRow) -> "Mode | None":
    """Return the mode of a pool's workers, which says when they exit; None for a pool that has no queue."""
    from drumbeat.pool.worker.options import plan_of

    return plan_of(pool).mode if pool.kind is PoolKind.JOBS else None


def _identity(arguments: WorkerArguments) -> JoinRequest:
    return JoinRequest(
        pool_id=PoolId(arguments.run_id),
        worker_id=WorkerId(arguments.worker_id),
        slot=arguments.worker_group_id,
        instance=process_name(),
        host=socket.gethostname(),
        pid=os.getpid(),
    )
