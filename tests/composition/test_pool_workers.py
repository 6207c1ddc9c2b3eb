"""Workers of several pools in one process: a pool is never left without a worker while the process runs."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from drumbeat.composition.base import WorkerSummary
from drumbeat.composition.plane import ControlPlane
from drumbeat.composition.pool_workers import PoolWork, PoolWorkers, _sum
from drumbeat.core.worker import ExitCode, WorkerId
from drumbeat.pool.worker.options import Mode, WorkPlan


class Workers:
    """Stands for the control plane: the worker of pool ``stuck`` ends at once, the others when they are told to."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    async def work(self, pool: str, plan: WorkPlan, worker_id: str | None, **more: Any) -> WorkerSummary:
        leave = asyncio.Event()

        def stop(reason: str) -> None:
            self.told.append((pool, reason))
            leave.set()

        on_start: Callable[[Callable[[str], object]], None] = more["on_start"]
        on_start(stop)
        if pool != "stuck":
            await leave.wait()
        return WorkerSummary(worker_id=WorkerId(pool), code=ExitCode.CLEAN, ended=0, finished=0, failed=0)


async def test_when_one_worker_ends_in_mode_loop_the_others_are_told_to_end() -> None:
    workers = Workers()
    works = [PoolWork(pool=name, plan=WorkPlan(mode=Mode.LOOP), handlers={}) for name in ("well", "stuck")]

    async with asyncio.timeout(30):
        done = await PoolWorkers(cast("ControlPlane", workers)).run(works)

    assert [each.worker_id for each in done] == ["well", "stuck"]
    assert ("well", "the worker of pool stuck has ended") in workers.told


def test_the_rounds_of_a_drain_are_added_up() -> None:
    first, second = (
        WorkerSummary(worker_id=WorkerId(name), code=ExitCode.CLEAN, ended=10, finished=5, failed=3, suspended=2)
        for name in ("w1", "w1.2")
    )

    assert _sum(first, second) == replace(second, ended=20, finished=10, failed=6, suspended=4)
