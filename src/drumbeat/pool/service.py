"""The methods of a pool of jobs (push, claim, complete, cancel, pause …), for the client, the commands and the adapters."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from drumbeat.core.clock import Clock
from drumbeat.core.engine import ENGINE_IN_POLICY
from drumbeat.core.errors import AlreadyExists, JobEnded, NotFound, ResultExpired, StaleWrite
from drumbeat.core.job import Attempt, AttemptOutcome, Job, JobCounts, JobId, JobOutcome, JobStatus, NewJob, retry_delay
from drumbeat.core.job_step import JobStep
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, Thresholds, pool
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.engine_change import check_engine_change, engine_settings
from drumbeat.pool.job_options import new_jobs, one_job
from drumbeat.pool.model import no_job, task_handler_fields
from drumbeat.pool.operations import FOREVER as FOREVER, PoolOperations
from drumbeat.pool.own_transaction import OwnTransactionMethods, not_renewed, stale_write
from drumbeat.pool.paused_types import ClaimableTypes
from drumbeat.pool.payload import MOST_BYTES, as_json
from drumbeat.pool.plugins import NO_PLUGINS, PoolPlugins
from drumbeat.pool.result_ttl import without_expired
from drumbeat.pool.settings import checked_settings, new_handlers
from drumbeat.pool.status import PoolStatus as PoolStatus
from drumbeat.pool.validation import (
    check_count,
    check_duration,
    check_event,
    check_progress,
    check_text,
    checked_text,
    job_filters,
    names,
)
from drumbeat.pool.worker.options import PLAN_FIELDS, WorkPlan, parse_handlers, plan_of
from drumbeat.pool.workflows import PoolWorkflows
from drumbeat.runtime.heartbeat_change import changed_heartbeat, check_live_workers
from drumbeat.store.interface import ClaimRequest, PoolChange, Store

if TYPE_CHECKING:
    from drumbeat.pool.explain import JobExplanation
    from drumbeat.pool.schedules.service import Schedules

_NEED_A_CHECK = frozenset({"handlers", ENGINE_IN_POLICY, "max_workers"})  #: settings whose change lets workers be started
_FIRST_POLL, _SLOWEST_POLL = timedelta(milliseconds=50), timedelta(seconds=1)  #: pauses between polls for a result
_SLOWEST_LOOK = timedelta(minutes=1)  #: longest pause between checks whether the job waits for a failed job


class Pool(OwnTransactionMethods, PoolOperations, PoolWorkflows):
    """A pool of jobs. It is created in the store by ``create``, or by the first push."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        name: str,
        who: str,
        on_push: Callable[[PoolId], Awaitable[object]] | None = None,
        store_url: str | None = None,
        check_engine: Callable[[str], Awaitable[object]] | None = None,
        plugins: PoolPlugins = NO_PLUGINS,
    ) -> None:
        """``who`` is the worker name that ``claim`` uses; ``on_push`` is called when jobs were pushed, requeued or rescheduled,
        after an event, when the pool is resumed, and when it has pending jobs and its handlers, engine or max_workers change;
        ``store_url`` is the store's URL, which ``push_on`` and ``complete_on`` need; ``check_engine`` raises InvalidSettings
        for an engine that is not known, or whose workers could not reach the store; ``plugins``: middleware, and where large
        values go."""
        self._check_engine = check_engine
        super().__init__(PoolId(name), store_url, plugins)
        self._store = store
        self._clock = clock
        self._who = WorkerId(who)
        self._on_push = on_push
        self.create_missing: Callable[[], Awaitable[object]] = partial(self.create, exist_ok=True)  #: called by a push
        self._claimable = ClaimableTypes(store.pools, self.pool_id, clock)

    async def create(
        self,
        plan: WorkPlan | None = None,
        thresholds: Thresholds | None = None,
        *,
        exist_ok: bool = False,
        engine: str | None = None,
        **policy: Any,
    ) -> PoolRow:
        """Create the pool. With ``exist_ok``, an existing pool gets this plan and policy; else AlreadyExists is raised.

        The plan replaces the whole plan of an existing pool, defaults included; to change single fields, use ``update``.
        ``engine`` runs the pool's workers; with several (``a,b``), the first is preferred.
        Raises InvalidInput for an unknown or invalid setting, and InvalidSettings for an invalid ``retention`` or ``engine``.
        """
        row = pool(self.pool_id, PoolKind.JOBS, thresholds)
        settings = (
            (plan.to_json() if plan else {}) | checked_settings(row, policy) | await engine_settings(engine, self._check_engine)
        )
        await self._plugins.prepare()
        try:
            return await self._store.pools.create(replace(row, policy=settings))
        except AlreadyExists:
            if not exist_ok:
                raise
        row = await self.get()
        await check_engine_change(self._store, row, engine)
        await check_live_workers(self._store, row, thresholds)
        dropped = (*PLAN_FIELDS, *task_handler_fields(plan.handlers)) if plan else ()
        return await self._change(settings, dropped, row, thresholds)

    async def update(
        self,
        *,
        handlers: Mapping[str, str] | None = None,
        remove_handlers: Sequence[str] = (),
        heartbeat: timedelta | None = None,
        engine: str | None = None,
        **changes: Any,
    ) -> PoolRow:
        """Change the given settings of the pool, and leave all others as they are.

        ``handlers`` are added to the existing handlers, by type; ``changes`` are fields of WorkPlan, max_workers, retention.
        Raises NotFound, InvalidInput, InvalidSettings; Refused for a heartbeat so short that live workers would seem silent,
        and for a new ``engine`` while workers of the old one might run.
        """
        row, given, by_hand = await self.get(), changes, list[str]()
        await check_engine_change(self._store, row, engine)
        if handlers or remove_handlers:
            added = parse_handlers(handlers or {})
            given = changes | {"handlers": new_handlers(row, added, remove_handlers)}
            by_hand = task_handler_fields([*added, *remove_handlers])
        policy = checked_settings(row, given) | await engine_settings(engine, self._check_engine)
        expected = {"handlers": row.policy.get("handlers")} if handlers or remove_handlers else {}
        try:
            return await self._change(policy, by_hand, row, await changed_heartbeat(self._store, row, heartbeat), expected)
        except StaleWrite:  # another process has changed the handlers meanwhile
            return await self.update(
                handlers=handlers, remove_handlers=remove_handlers, heartbeat=heartbeat, engine=engine, **changes
            )

    async def _change(
        self,
        policy: Mapping[str, Any],
        dropped: Collection[str],
        row: PoolRow,
        thresholds: Thresholds | None,
        expected: Mapping[str, Any] | None = None,
    ) -> PoolRow:
        if not policy and not dropped and thresholds is None:
            return row
        reset = await self._reset_failures() if "handlers" in policy else {}
        change = PoolChange(policy={**policy, **reset}, dropped=dropped, thresholds=thresholds, expected=expected or {})
        changed = await self._store.pools.change(row.pool_id, change)
        if self._on_push is not None and not _NEED_A_CHECK.isdisjoint(policy):
            counts = await self._store.jobs.counts(row.pool_id, 1)
            await self._work_added(counts.pending or counts.waiting)
        return changed

    async def push(self, payload: Any, **options: Any) -> JobId:
        """Push one job; options are fields of NewJob. Returns its id, or the id of an existing job with the same unique key."""
        return (await self.push_jobs(one_job(payload, self.most_bytes, **options)))[0]

    async def push_many(self, payloads: Iterable[Any], **options: Any) -> Sequence[JobId]:
        """Push many jobs with the same options: all of them, or none. Returns their ids."""
        return await self.push_jobs(new_jobs(payloads, self.most_bytes, **options))

    async def push_jobs(self, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        """Push jobs that each have their own options: all of them, or none. Returns their ids."""
        if not jobs:
            return []
        ids = await self._plugins.push(self.pool_id, jobs, self._send)
        await self._work_added()
        return ids

    async def _send(self, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        try:
            return await self._store.queue.push(self.pool_id, jobs)
        except NotFound:
            await self.create_missing()
            return await self._store.queue.push(self.pool_id, jobs)

    async def claim(self, *, lease: timedelta = timedelta(minutes=1), **more: Any) -> Job | None:
        """Claim one job; None if no job is ready. Call ``complete``, ``fail`` or ``release`` before its lease runs out."""
        claimed = await self.claim_many(1, lease=lease, **more)
        return claimed[0] if claimed else None

    async def claim_many(
        self,
        limit: int,
        *,
        lease: timedelta = timedelta(minutes=1),
        worker_id: str | None = None,
        capabilities: Sequence[str] = (),
        types: Sequence[str] = (),
    ) -> Sequence[Job]:
        """Claim up to ``limit`` jobs; ``types`` and ``capabilities`` say what the caller can run (no types: every type). A job
        that must run alone is returned by itself; with a ``limit`` above 1, only if no other job can be claimed. Results of
        parents that are arguments of a task are filled in.
        Raises LargeUnavailable if a large value cannot be read now; then all claimed jobs return to the queue."""
        claimable = await self._claimable.of(names("types", types))
        if claimable is None:
            return []
        holder = self._holder(WorkerId(check_text("worker_id", worker_id)) if worker_id else self._who)
        claimed = await self._store.queue.claim(
            ClaimRequest(
                pool_id=self.pool_id,
                holder=holder,
                lease=check_duration("lease", lease),
                limit=check_count("limit", limit),
                alone=True,
                capabilities=names("capabilities", capabilities),
                types=claimable.types,
                without=claimable.without,
            )
        )
        settle = partial(self._store.queue.settle, holder)
        poison = partial(self.fail, fatal=True)
        return await self._plugins.opened_claims(claimed, poison, settle, self._store.jobs.parents)

    async def complete(self, job: Job, result: Any = None) -> None:
        """Mark a claimed job as done. Raises StaleWrite if the job was taken back or claimed again meanwhile."""
        await self._settle(job, AttemptOutcome.DONE, result=await self._plugins.sealed_result(job, result))

    async def fail(self, job: Job, error: str, *, fatal: bool = False, retry_in: timedelta | float | None = None) -> None:
        """Record a failed attempt. The job is retried after its backoff, unless ``fatal`` or out of attempts.
        Raises StaleWrite if the job was taken back or claimed again meanwhile."""
        wait = retry_delay(job.backoff, job.failures + 1, 0.5) if retry_in is None else check_duration("retry_in", retry_in)
        await self._settle(job, AttemptOutcome.FAILED, error=checked_text("error", error), fatal=fatal, retry_in=wait)

    async def release(self, job: Job) -> None:
        """Return a claimed job to the queue without counting an attempt. Raises StaleWrite if it was taken back meanwhile."""
        await self._settle(job, AttemptOutcome.RELEASED)

    async def renew(self, job: Job, lease: timedelta = timedelta(minutes=1)) -> bool:
        """Renew the lease of a claimed job. Returns True if the job must stop, because its cancellation was requested.
        Raises StaleWrite if the job was taken back, and StoreUnavailable if an open transaction has locked it."""
        renewed = await self._store.queue.renew(self._owner(job), [job.token], check_duration("lease", lease))
        if renewed.stale:
            raise _stale(job)
        if renewed.locked:
            raise not_renewed(job.token)
        return bool(renewed.cancelled)

    async def progress(self, job: Job, share: float, note: str | None = None) -> None:
        """Report a job's progress, from 0 to 1. Raises StaleWrite if the job was taken back meanwhile."""
        checked = check_progress("share", share), None if note is None else checked_text("note", note)
        if not await self._store.jobs.progress(self._owner(job), job.token, *checked):
            raise _stale(job)

    async def _settle(self, job: Job, outcome: AttemptOutcome, **more: Any) -> None:
        verdict = JobOutcome(token=job.token, outcome=outcome, **more)
        if (await self._store.queue.settle(self._owner(job), [verdict])).stale:
            raise _stale(job)

    def _owner(self, job: Job) -> Holder:
        return job.holder or self._holder(self._who)

    def _holder(self, worker_id: WorkerId) -> Holder:
        """Return the identity for a claim that is made without a worker process: just a worker name in this pool."""
        return Holder(pool_id=self.pool_id, worker_id=worker_id)

    async def job(self, job_id: str) -> Job:
        """Return a job of this pool. Its result is None if it has expired. Raises NotFound."""
        found = await self._stored_job(job_id)
        return await self._plugins.opened(await self._unless_expired(found))

    async def _unless_expired(self, job: Job) -> Job:
        """Return the job, without its result if that is older than the pool's ``result_ttl``."""
        return job if job.result is None else (await without_expired(self._store, [await self.get()], [job]))[0]

    async def _stored_job(self, job_id: str) -> Job:
        """Return a job as it is stored, with references to large values. Raises NotFound."""
        try:
            found = await self._store.jobs.get(JobId(job_id))
        except NotFound as exc:
            raise NotFound(no_job(self.pool_id, job_id)) from exc
        if found.pool_id != self.pool_id:
            raise NotFound(f"pool {self.pool_id!r} has no job {job_id!r}; that job is in pool {found.pool_id!r}")
        return found

    async def attempts(self, job_id: str) -> Sequence[Attempt]:
        return await self._store.jobs.attempts((await self._stored_job(job_id)).job_id)

    async def steps(self, job_id: str) -> Sequence[JobStep]:
        """Return the events that were sent to a job, then the durable steps that it has recorded. Raises NotFound."""
        return await self._store.job_steps.list((await self._stored_job(job_id)).job_id)

    async def send_event(self, job_id: str, name: str, value: Any = None) -> None:
        """Send an event to a job: ``wait_for(name)`` in its handler returns ``value``. It is kept until the job waits for it.
        Raises NotFound; Refused if the job has ended; AlreadyExists if an event of this name was sent before (it counts)."""
        event, checked, job = check_event("name", name), as_json(value, "value"), await self._stored_job(job_id)
        if not await self._store.job_steps.send(job.job_id, event, checked):
            raise AlreadyExists(
                f"event {event!r} was sent to job {job_id} before; the first one counts, and this one is dropped"
            )
        await self._work_added()

    async def list(self, **filters: Any) -> Sequence[Job]:
        """List jobs in push order. Filters: statuses, job_type, group, worker_id, holder, after, limit.
        A payload or result of more than a megabyte is shown as a reference; ``job`` and ``result`` return it."""
        row = await self.get()
        jobs = await self._store.jobs.list(row.pool_id, **job_filters(filters))
        return [await self._plugins.opened(job, MOST_BYTES) for job in await without_expired(self._store, [row], jobs)]

    async def size(self) -> int:
        """Count the jobs that are ready to be claimed."""
        return await self._store.jobs.size(self.pool_id)

    async def status(self) -> PoolStatus:
        """Read the pool's job counts, live workers, whether it is paused, and problems that keep jobs waiting."""
        from drumbeat.pool.breaker import breaker_message
        from drumbeat.pool.model import PoolPolicy
        from drumbeat.pool.observe import read_not_loaded, read_streak, unhandled

        row = await self.get()
        policy, not_loaded = PoolPolicy.from_json(row.policy), await read_not_loaded(self._store, row)
        streak = await read_streak(self._store, self.pool_id, policy.mended_at)
        return PoolStatus(
            pool=row,
            counts=await self._store.jobs.counts(self.pool_id),
            workers=tuple(await self._store.workers.list(self.pool_id, live=True)),
            now=await self._store.now(),
            trouble=breaker_message(streak),
            unhandled=await unhandled(self._store, self.pool_id, policy, not_loaded),
            not_loaded=not_loaded,
            failure=streak.error,
        )

    async def explain(self, job_id: str) -> "JobExplanation":
        """Return the reasons why a job is not running, or how it ended."""
        from drumbeat.pool.explain import explain
        from drumbeat.pool.explain_inputs import read_explain_inputs

        return explain(await read_explain_inputs(self._store, await self.get(), await self._stored_job(job_id)))

    async def result(self, job_id: str, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109
        """Wait until a job is done, and return its result. Raises TimeoutError; JobEnded if it was poisoned or cancelled,
        or if a job that it waits for was, and must be requeued first; ResultExpired if the result is older than the pool's
        ``result_ttl``; LargeValueError."""
        limit = None if timeout is None else self._clock.elapsed() + check_duration("timeout", timeout)
        pause, look_every = _FIRST_POLL, _SLOWEST_POLL
        look_at = self._clock.elapsed() + look_every
        while True:
            job = await self._stored_job(job_id)
            if job.status is JobStatus.DONE:
                if job.result is not None and (await self._unless_expired(job)).result is None:
                    raise ResultExpired(f"the result of job {job_id} has expired: its pool keeps results for a limited time")
                return await self._plugins.opened_result(job)
            if job.status in (JobStatus.POISONED, JobStatus.CANCELLED):
                raise JobEnded(f"job {job_id} is {job.status}" + (f": {job.last_error}" if job.last_error else ""))
            timed_out = limit is not None and self._clock.elapsed() >= limit
            if job.status is JobStatus.WAITING and (timed_out or self._clock.elapsed() >= look_at):
                from drumbeat.pool.flows import check_not_blocked

                await check_not_blocked(self._store, job)
                look_at = self._clock.elapsed() + (look_every := min(look_every * 2, _SLOWEST_LOOK))
            if timed_out:
                raise TimeoutError(f"job {job_id} was not done in time: it is still {job.status}")
            await self._clock.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST_POLL)

    async def cancel(self, *job_ids: str) -> Sequence[Job]:
        """Cancel jobs: pending jobs at once, running jobs within about a second, when their worker polls for cancellations."""
        return await self._store.jobs.cancel([(await self._stored_job(job_id)).job_id for job_id in job_ids])

    async def delete(self, *, unfinished: bool = False, on_progress: Callable[[int], object] | None = None) -> JobCounts:
        """Delete the pool with its jobs, workers, beats and logs, and return the counts of the jobs it had.

        Raises NotFound; Refused while workers are live or can still cost money, while jobs wait or run and ``unfinished`` is
        False, or while an unfinished job of another pool depends on a job of this one (which ``unfinished`` cancels first).
        Finished jobs and old rows are deleted in short steps, so that other processes can write in between; after each
        step, ``on_progress`` gets the number of rows deleted so far. Then one step deletes unfinished jobs and the pool.
        If interrupted, call it again. If a job is pushed or a worker joins meanwhile, the last step may be refused.
        """
        from drumbeat.pool.deletion import delete_pool

        large = self._plugins.large
        return await delete_pool(self._store, await self.get(), large, unfinished=unfinished, on_progress=on_progress)

    @property
    def schedules(self) -> "Schedules":
        """The schedules that push jobs to this pool periodically."""
        from drumbeat.pool.schedules.service import Schedules

        return Schedules(self._store, self.pool_id, lambda: self.create(exist_ok=True))

    async def plan(self) -> WorkPlan:
        """Return the pool's WorkPlan: how its workers run jobs."""
        return plan_of(await self.get())


def _stale(job: Job) -> StaleWrite:
    return stale_write(job.token)
