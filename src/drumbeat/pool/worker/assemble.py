"""From a plan to a worker's workload: claims, handlers, and where they run."""

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
    home: PoolRow,
    holder: Holder,
    plan: WorkPlan,
    clock: Clock,
    *,
    handlers: Handlers | None = None,
    chance: Callable[[], float] = random.random,
) -> JobWorkload:
    """The work of one worker of a pool. ``handlers`` stand in for those the plan names. Raises InvalidInput for one that cannot
    run where the plan says."""
    if handlers is not None and plan.executor is ExecutorKind.PROCESSES:
        check_portable(handlers)
    claims = Claims(
        queue=store.queue,
        jobs=store.jobs,
        workers=store.workers,
        leases=store.leases,
        pool_id=home.pool_id,
        holder=holder,
        lease=plan.lease_for(home.thresholds),
        capabilities=plan.capabilities,
        ahead=bool(plan.prefetch),
        types=plan.types if handlers is None else () if "" in handlers else tuple(handlers),
    )

    def attempts() -> AttemptRunner:
        found = load_all(plan.handlers) if handlers is None else handlers
        return AttemptRunner(handlers=found, executor=executor(plan.executor), clock=clock, chance=chance, timeout=plan.timeout)

    return JobWorkload(plan, claims, attempts, clock, _memory(plan.executor))


def _memory(kind: ExecutorKind) -> Callable[[], float]:
    """How many MB this process, and those it runs handlers in, take up."""

    def measure() -> float:
        import psutil

        me = psutil.Process()
        taken = me.memory_info().rss
        for child in me.children(recursive=True) if kind is ExecutorKind.PROCESSES else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                taken += child.memory_info().rss
        return float(taken) / _MB

    return measure
