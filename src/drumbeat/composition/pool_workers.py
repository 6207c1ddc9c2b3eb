"""Runs the workers of several job pools in one process, until all have ended."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from drumbeat.composition.base import WorkerSummary
from drumbeat.core.worker import ExitCode
from drumbeat.pool.worker.options import Mode, WorkPlan
from drumbeat.runtime.signals import on_stop_signals

if TYPE_CHECKING:
    from drumbeat.composition.plane import ControlPlane
    from drumbeat.pool.worker.handlers import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWork:
    """A pool to work on, with the settings and the handlers of its worker."""

    pool: str
    plan: WorkPlan
    handlers: "Mapping[str, Handler]"


class PoolWorkers:
    """The workers of several pools in this process. A signal to stop reaches all of them."""

    def __init__(self, plane: "ControlPlane", worker_id: str | None = None, grace: timedelta | None = None) -> None:
        self._plane = plane
        self._worker_id = worker_id
        self._grace = grace
        self._stops: list[Callable[[str], object]] = []
        self._stopped = False

    async def run(self, works: Sequence[PoolWork]) -> Sequence[WorkerSummary]:
        """Run a worker for each pool. In mode once, one job of one pool is run. In mode drain, the workers run until all
        pools are empty, also if a job of one pool pushes to another. In mode loop, all end when one of them ends, so that no
        pool is left without a worker while the process runs. Returns a summary for each pool."""
        with on_stop_signals(self._stop):
            if any(work.plan.mode is Mode.ONCE for work in works):
                return await self._run_one_job(works)
            total = ended = await self._run_all(works)
            drains = len(works) > 1 and all(work.plan.mode is Mode.DRAIN for work in works)
            while drains and self._may_have_pushed(ended):
                ended = await self._run_all(works)
                total = [_sum(*pair) for pair in zip(total, ended, strict=True)]
            return total

    def _may_have_pushed(self, ended: Sequence[WorkerSummary]) -> bool:
        """Whether the workers must run again: they ran jobs, which may have pushed to a pool whose worker had ended. False if a
        worker failed or was asked to stop."""
        return any(each.ended for each in ended) and all(each.code is ExitCode.CLEAN for each in ended) and not self._stopped

    async def _run_one_job(self, works: Sequence[PoolWork]) -> Sequence[WorkerSummary]:
        done = list[WorkerSummary]()
        for work in works:
            done.append(await self._run(work))
            if done[-1].ended or done[-1].code is not ExitCode.CLEAN or self._stopped:
                break
        return done

    async def _run_all(self, works: Sequence[PoolWork]) -> Sequence[WorkerSummary]:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._run_with_others(work)) for work in works]
        return [each.result() for each in running]

    async def _run_with_others(self, work: PoolWork) -> WorkerSummary:
        done = await self._run(work)
        if work.plan.mode is Mode.LOOP:
            self._stop(f"the worker of pool {work.pool} has ended")
        return done

    async def _run(self, work: PoolWork) -> WorkerSummary:
        return await self._plane.work(
            work.pool,
            work.plan,
            self._worker_id,
            handlers=work.handlers,
            signals=False,
            grace=self._grace,
            on_start=self._started,
        )

    def _started(self, stop: Callable[[str], object]) -> None:
        self._stops.append(stop)
        if self._stopped:
            stop("stop")

    def _stop(self, reason: str) -> None:
        self._stopped = True
        for stop in self._stops:
            stop(reason)


def _sum(first: WorkerSummary, second: WorkerSummary) -> WorkerSummary:
    return replace(
        second,
        ended=first.ended + second.ended,
        finished=first.finished + second.finished,
        failed=first.failed + second.failed,
        suspended=first.suspended + second.suspended,
    )
