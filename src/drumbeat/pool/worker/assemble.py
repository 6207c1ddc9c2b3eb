"""Builds the part of a worker that runs jobs, as its plan says: the claims, the handlers and their executor."""

import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial

from drumbeat.core.clock import Clock
from drumbeat.core.job import Job, JobId
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Holder
from drumbeat.pool.middleware import load_middleware
from drumbeat.pool.model import remove_handler_command
from drumbeat.pool.paused_types import ClaimableTypes
from drumbeat.pool.plugins import NO_PLUGINS, PoolPlugins
from drumbeat.pool.worker.attempt import AttemptRunner
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.executors import executor
from drumbeat.pool.worker.handlers import Handlers, check_importable, load_all, load_possible
from drumbeat.pool.worker.options import ExecutorKind, WorkPlan
from drumbeat.pool.worker.steps import StepStore
from drumbeat.pool.worker.store_retry import until_answered
from drumbeat.pool.worker.taken_back import TakenBackJobs
from drumbeat.pool.worker.workload import JobWorkload
from drumbeat.runtime.timeouts import truncate
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_MB = 1024 * 1024
_LONGEST_CAUSE = 500  #: characters of a cause that are kept in the row of the worker


def job_workload(
    store: Store,
    pool: PoolRow,
    holder: Holder,
    plan: WorkPlan,
    clock: Clock,
    *,
    handlers: Handlers | None = None,
    plugins: PoolPlugins = NO_PLUGINS,
    chance: Callable[[], float] = random.random,
    store_url: str | None = None,
) -> JobWorkload:
    """Build the workload of one worker of a pool. ``handlers`` replace the plan's handlers. Without ``store_url``, handlers
    cannot complete jobs in transactions of their own (``complete_on``). Raises InvalidInput for a handler in ``handlers`` that
    cannot run in the plan's executor.

    The plan's handlers are loaded later, in ``prepare``. If they are those of the pool, jobs whose handler cannot be loaded
    are not claimed; if the plan names other handlers than the pool, ``prepare`` fails unless all can be loaded."""
    if handlers is not None and plan.executor is ExecutorKind.PROCESSES:
        check_importable(handlers)
    loaded = [plugins]  #: replaced when the middleware of the plan is loaded, together with the handlers

    async def tell_poisoned(jobs: Sequence[Job]) -> None:
        await loaded[0].tell_poisoned(jobs)

    claims = Claims(
        queue=store.queue,
        jobs=store.jobs,
        steps=store.job_steps,
        workers=store.workers,
        leases=store.leases,
        pool_id=pool.pool_id,
        holder=holder,
        lease=plan.lease_for(pool.thresholds),
        capabilities=plan.capabilities,
        store_url=store_url,
        claimable=ClaimableTypes(store.pools, pool.pool_id, clock),
        ahead=bool(plan.prefetch),
        taken_back=TakenBackJobs(tell_poisoned),
        types=plan.types if handlers is None else () if "" in handlers else tuple(handlers),
    )

    async def read_parents(job_id: JobId) -> Sequence[Job]:
        return await until_answered(clock, partial(claims.parents, job_id), f"the parents of job {job_id}")

    def attempts(steps: StepStore) -> AttemptRunner:
        found = _load(plan, pool, claims) if handlers is None else handlers
        loaded[0] = plugins.with_middleware(load_middleware(plan.middleware))
        return AttemptRunner(
            handlers=found,
            executor=executor(plan.executor),
            clock=clock,
            chance=chance,
            timeout=plan.timeout,
            read_parents=read_parents,
            steps=steps,
            plugins=loaded[0],
        )

    return JobWorkload(plan, claims, attempts, clock, _memory(plan.executor))


def _load(plan: WorkPlan, pool: PoolRow, claims: Claims) -> Handlers:
    """Load the handlers of a plan, and let the worker claim no jobs of a type whose handler cannot be loaded.

    Raises InvalidInput if no handler can be loaded or, for a plan with other handlers than the pool's, if one cannot be."""
    if dict(plan.handlers) != pool.policy.get("handlers"):
        return load_all(plan.handlers)
    found, causes = load_possible(plan.handlers)
    for kind, cause in causes.items():
        log.warning(
            "this worker does not run jobs of type %r, they stay pending: %s; fix it and restart the worker, or remove the "
            "handler with: %s",
            kind,
            cause,
            remove_handler_command(pool.pool_id, kind),
        )
    claims.limit_to(found, {kind: truncate(cause, _LONGEST_CAUSE) for kind, cause in causes.items()})
    return found


def _memory(kind: ExecutorKind) -> Callable[[], float]:
    """Return a function that measures the memory in MB of this process and of the child processes that run handlers."""

    def measure() -> float:
        import psutil

        process = psutil.Process()
        used = process.memory_info().rss
        for child in process.children(recursive=True) if kind is ExecutorKind.PROCESSES else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                used += child.memory_info().rss
        return float(used) / _MB

    return measure
