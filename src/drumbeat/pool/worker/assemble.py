"""Builds a worker's workload from its plan: claims, handlers, and the executor they run in."""

import contextlib
import random
from collections.abc import Callable

from drumbeat.core.clock import Clock
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Holder
from drumbeat.pool.worker.attempt import AttemptRunner
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.executors import executor
from drumbeat.pool.worker.handlers import Handlers, check_portable, load_all
from drumbeat.pool.worker.options import ExecutorKind, WorkPlan
from drumbeat.pool.worker.workload import JobWorkload
from drumbeat.store.interface import Store

_MB = 1024 * 1024


def job_workload(
    store: Store,
    pool: PoolRow,
    holder: Holder,
    plan: WorkPlan,
    clock: Clock,
    *,
    handlers: Handlers | None = None,
    chance: Callable[[], float] = random.random,
) -> JobWorkload:
    """The workload of one worker of a pool. ``handlers`` replace those of the plan. Raises InvalidInput for a handler that
    cannot run in the plan's executor."""
    if handlers is not None and plan.executor is ExecutorKind.PROCESSES:
        check_portable(handlers)
    claims = Claims(
        queue=store.queue,
        jobs=store.jobs,
        workers=store.workers,
        leases=store.leases,
        pool_id=pool.pool_id,
        holder=holder,
        lease=plan.lease_for(pool.thresholds),
        capabilities=plan.capabilities,
        ahead=bool(plan.prefetch),
        types=plan.types if handlers is None else () if "" in handlers else tuple(handlers),
    )

    def attempts() -> AttemptRunner:
        found = load_all(plan.handlers) if handlers is None else handlers
        return AttemptRunner(handlers=found, executor=executor(plan.executor), clock=clock, chance=chance, timeout=plan.timeout)

    return JobWorkload(plan, claims, attempts, clock, _memory(plan.executor))


def _memory(kind: ExecutorKind) -> Callable[[], float]:
    """A function that measures the memory of this process, and of its handlers' processes, in MB."""

    def measure() -> float:
        import psutil

        process = psutil.Process()
        used = process.memory_info().rss
        for child in process.children(recursive=True) if kind is ExecutorKind.PROCESSES else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                used += child.memory_info().rss
        return float(used) / _MB

    return measure
