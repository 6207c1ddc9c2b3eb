"""A pool's desk: everything a caller may ask of one pool of jobs. The client, the command line and adapters all stand here."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import AlreadyExists, InvalidInput, JobEnded, NotFound, Refused, StaleWrite
from drumbeat.core.job import Attempt, AttemptOutcome, Job, JobCounts, JobId, JobOutcome, JobStatus, NewJob, retry_delay
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, Thresholds, pool, with_heartbeat
from drumbeat.core.retention import IN_POLICY, USUAL, retention_of
from drumbeat.core.worker import Holder, Worker, WorkerId
from drumbeat.pool.job_options import new_job, new_jobs, one_job
from drumbeat.pool.payload import MOST_BYTES, as_json
from drumbeat.pool.validation import checked_text, how_far, how_many, job_filters, moment, names, time_span, words
from drumbeat.pool.worker.options import PLAN_FIELDS, WorkPlan, changed_handlers, parse_handlers, plan_of
from drumbeat.store.interface import Claiming, PoolChange, Store

if TYPE_CHECKING:
    from drumbeat.pool.explain import JobExplanation

PushOn = Callable[[Store, Any, PoolId, Sequence[NewJob]], Awaitable[Sequence[JobId]]]

FOREVER = datetime(9999, 1, 1, tzinfo=UTC)  #: until somebody resumes it
LOOK_EVERY = timedelta(milliseconds=50)
_LOOK_SELDOM = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """How a pool stands."""

    pool: PoolRow
    counts: JobCounts
    workers: tuple[Worker, ...]  #: the live ones
    now: datetime
    trouble: str | None = None  #: what keeps workers from being started
    unhandled: Mapping[str, int] = field(default_factory=dict)  #: ready jobs by type, of types the pool has no handler for

    @property
    def no_handler(self) -> str | None:
        """What to tell of jobs that wait for a handler."""
        from drumbeat.pool.model import no_handler

        return no_handler(self.pool.pool_id, self.unhandled)

    @property
    def is_paused(self) -> bool:
        return self.pool.paused_until is not None and self.pool.paused_until > self.now

    @property
    def oldest_waits(self) -> timedelta | None:
        """How long the oldest ready job has waited."""
        return None if self.counts.oldest_ready is None else max(self.now - self.counts.oldest_ready, timedelta())


class Pool:
    """One pool of jobs. It is made with its first push, if ``create`` did not make it before."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        name: str,
        who: str,
        on_push: Callable[[PoolId], Awaitable[object]] | None = None,
        push_on: PushOn | None = None,
    ) -> None:
        """``who`` is the name that ``claim`` claims under; ``on_push`` hears of every push once it is kept; ``push_on`` pushes
        on a connection of the caller's, where the store can."""
        self.pool_id = PoolId(name)
        self._store = store
        self._clock = clock
        self._who = WorkerId(who)
        self._on_push = on_push
        self._push_on = push_on
        self.most_bytes = MOST_BYTES

    async def create(
        self,
        plan: WorkPlan | None = None,
        thresholds: Thresholds | None = None,
        *,
        exist_ok: bool = False,
        **policy: Any,
    ) -> PoolRow:
        """Make the pool. Raises AlreadyExists, unless ``exist_ok``: then the one that is there gets this plan and policy; and
        InvalidSettings for a ``retention`` that cannot be read.

        The plan is the whole: what it has as usual becomes so. To change single fields of it, use ``update``.
        """
        wanted = {**(plan.to_json() if plan else {}), **policy}
        retention_of(pool(self.pool_id, PoolKind.JOBS, thresholds, **policy), USUAL)
        try:
            return await self._store.pools.create(pool(self.pool_id, PoolKind.JOBS, thresholds, **wanted))
        except AlreadyExists:
            if not exist_ok:
                raise
        return await self._change(wanted, PLAN_FIELDS if plan else (), await self.get(), thresholds)

    async def update(
        self,
        *,
        handlers: Mapping[str, str] | None = None,
        remove_handlers: Sequence[str] = (),
        heartbeat: timedelta | None = None,
        **changes: Any,
    ) -> PoolRow:
        """Change what is given, be it the usual value or not, and leave everything else as it is.

        ``handlers`` join those that are there, by type; ``changes`` are fields of a WorkPlan, max_workers and
        retention. Raises NotFound, InvalidInput, InvalidSettings, Refused for a heartbeat that live workers do not keep.
        """
        kept = await self.get()
        given = {name: value for name, value in changes.items() if name in PLAN_FIELDS}
        more: dict[str, Any] = {name: how_many(name, value) for name, value in changes.items() if name == "max_workers"}
        if IN_POLICY in changes:
            retention_of(replace(kept, policy={IN_POLICY: changes[IN_POLICY]}), USUAL)
            more[IN_POLICY] = changes[IN_POLICY]
        if unknown := sorted(changes.keys() - given.keys() - more.keys()):
            raise InvalidInput(f"expected one of {', '.join([*PLAN_FIELDS, 'max_workers', IN_POLICY])}, got {unknown[0]!r}")
        if handlers or remove_handlers:
            added = parse_handlers(handlers or {})
            given["handlers"] = changed_handlers(plan_of(kept).handlers, added, remove_handlers)
        wanted = replace(plan_of(kept), **given).to_json(given) | more
        return await self._change(wanted, (), kept, await self._paced(kept, heartbeat))

    async def _change(
        self, policy: Mapping[str, Any], dropped: Collection[str], kept: PoolRow, thresholds: Thresholds | None
    ) -> PoolRow:
        if not policy and not dropped and thresholds is None:
            return kept
        mended = await self._mended() if "handlers" in policy else {}
        change = PoolChange(policy={**policy, **mended}, dropped=dropped, thresholds=thresholds)
        return await self._store.pools.change(kept.pool_id, change)

    async def _paced(self, kept: PoolRow, heartbeat: timedelta | None) -> Thresholds | None:
        """The pool's thresholds with another heartbeat. Raises Refused where workers that run would be called silent by it."""
        if heartbeat is None:
            return None
        paced = with_heartbeat(kept.thresholds, heartbeat)
        live = await self._store.workers.list(self.pool_id, live=True)
        if live and paced.stale_after <= kept.thresholds.heartbeat_every:
            every = kept.thresholds.heartbeat_every.total_seconds()
            raise Refused(
                f"{len(live)} live workers of {self.pool_id} beat every {every:g} s and would be called silent after "
                f"{paced.stale_after.total_seconds():g} s; let them leave first, or choose a heartbeat above {every / 2:g} s"
            )
        return paced

    async def _mended(self) -> dict[str, str]:
        """For the pool's policy: what workers failed at until now is mended, so others need not be held back."""
        return {"mended_at": (await self._store.now()).isoformat()}

    async def get(self) -> PoolRow:
        """The pool's row. Raises NotFound, InvalidInput when it is no pool of jobs."""
        found = await self._store.pools.find(self.pool_id)
        if found is None:
            raise NotFound(f"no pool {self.pool_id!r}; make it with: drumbeat pool create {self.pool_id}, or push to it")
        if found.kind is not PoolKind.JOBS:
            raise InvalidInput(f"expected a pool of jobs, got {self.pool_id!r}, which is a {found.kind} pool")
        return found

    async def push(self, payload: Any, **options: Any) -> JobId:
        """Push one job; answers with its id, or with that of the one it is the same as."""
        return (await self.push_jobs(one_job(payload, self.most_bytes, **options)))[0]

    async def push_many(self, payloads: Iterable[Any], **options: Any) -> Sequence[JobId]:
        """Push many with the same options: all of them, or none."""
        return await self.push_jobs(new_jobs(payloads, self.most_bytes, **options))

    async def push_jobs(self, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        """Push jobs each with options of its own: all of them, or none."""
        if not jobs:
            return []
        try:
            ids = await self._store.queue.push(self.pool_id, jobs)
        except NotFound:
            await self.create(exist_ok=True)
            ids = await self._store.queue.push(self.pool_id, jobs)
        if self._on_push is not None:
            await self._on_push(self.pool_id)
        return ids

    async def push_on(self, connection: Any, payload: Any, **options: Any) -> JobId:
        """Push within the caller's own transaction on an asyncpg connection to the store's own database. The pool must exist
        already. Raises InvalidInput for any other connection."""
        if self._push_on is None:
            raise InvalidInput("expected a PostgreSQL store for push_on, got another; use push, which has its own transaction")
        jobs = [new_job(payload, self.most_bytes, **options)]
        return (await self._push_on(self._store, connection, self.pool_id, jobs))[0]

    async def claim(self, *, lease: timedelta = timedelta(minutes=1), **more: Any) -> Job | None:
        """Take one job, to be settled with ``complete``, ``fail`` or ``release`` before its lease runs out."""
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
        return await self._store.queue.claim(
            Claiming(
                pool_id=self.pool_id,
                holder=self._holder(WorkerId(words("worker_id", worker_id)) if worker_id else self._who),
                lease=time_span("lease", lease),
                limit=how_many("limit", limit),
                alone=limit == 1,
                capabilities=names("capabilities", capabilities),
                types=names("types", types),
            )
        )

    async def complete(self, job: Job, result: Any = None) -> None:
        """It is done. Raises StaleWrite when it is no longer this claim's."""
        await self._settle(job, AttemptOutcome.DONE, result=as_json(result, "result", self.most_bytes))

    async def fail(self, job: Job, error: str, *, fatal: bool = False, retry_in: timedelta | float | None = None) -> None:
        """This attempt has failed; it is tried again after its backoff, unless ``fatal`` or out of attempts."""
        wait = retry_delay(job.backoff, job.failures + 1, 0.5) if retry_in is None else time_span("retry_in", retry_in)
        await self._settle(job, AttemptOutcome.FAILED, error=checked_text("error", error), fatal=fatal, retry_in=wait)

    async def release(self, job: Job) -> None:
        """Give it back undone; it costs no attempt."""
        await self._settle(job, AttemptOutcome.RELEASED)

    async def renew(self, job: Job, lease: timedelta = timedelta(minutes=1)) -> bool:
        """Keep a claim; whether somebody has asked for the job to be stopped. Raises StaleWrite when it is gone."""
        renewed = await self._store.queue.renew(self._owner(job), [job.token], time_span("lease", lease))
        if renewed.stale:
            raise _stale(job)
        return bool(renewed.cancelled)

    async def progress(self, job: Job, share: float, note: str | None = None) -> None:
        """Say how far a job is, from 0 to 1. Raises StaleWrite when it is no longer this claim's."""
        known = how_far("share", share), None if note is None else checked_text("note", note)
        if not await self._store.jobs.progress(self._owner(job), job.token, *known):
            raise _stale(job)

    async def _settle(self, job: Job, outcome: AttemptOutcome, **more: Any) -> None:
        verdict = JobOutcome(token=job.token, outcome=outcome, **more)
        if (await self._store.queue.settle(self._owner(job), [verdict])).stale:
            raise _stale(job)

    def _owner(self, job: Job) -> Holder:
        return job.holder or self._holder(self._who)

    def _holder(self, worker_id: WorkerId) -> Holder:
        """Who claims by hand: a name in this pool, and no process that joined it."""
        return Holder(pool_id=self.pool_id, worker_id=worker_id)

    async def job(self, job_id: str) -> Job:
        """One job of this pool. Raises NotFound."""
        found = await self._store.jobs.get(JobId(job_id))
        if found.pool_id != self.pool_id:
            raise NotFound(f"pool {self.pool_id!r} has no job {job_id!r}; pool {found.pool_id!r} has one")
        return found

    async def attempts(self, job_id: str) -> Sequence[Attempt]:
        return await self._store.jobs.attempts((await self.job(job_id)).job_id)

    async def list(self, **filters: Any) -> Sequence[Job]:
        """Jobs in the order of their pushing; filters: statuses, job_type, group, worker_id, holder, after, limit."""
        return await self._store.jobs.list((await self.get()).pool_id, **job_filters(filters))

    async def size(self) -> int:
        """How many jobs are ready."""
        return await self._store.jobs.size(self.pool_id)

    async def status(self) -> PoolStatus:
        """Counts, workers and whether it is paused."""
        from drumbeat.pool.breaker import trouble
        from drumbeat.pool.model import PoolPolicy
        from drumbeat.pool.observe import read_streak, unhandled

        home = await self.get()
        policy = PoolPolicy.from_json(home.policy)
        return PoolStatus(
            pool=home,
            counts=await self._store.jobs.counts(self.pool_id),
            workers=tuple(await self._store.workers.list(self.pool_id, live=True)),
            now=await self._store.now(),
            trouble=trouble(await read_streak(self._store, self.pool_id, policy.mended_at)),
            unhandled=await unhandled(self._store, self.pool_id, policy),
        )

    async def explain(self, job_id: str) -> "JobExplanation":
        """Why a job is not running."""
        from drumbeat.pool.explain import explain
        from drumbeat.pool.explain_inputs import read_facts

        return explain(await read_facts(self._store, await self.get(), await self.job(job_id)))

    async def result(self, job_id: str, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109
        """A job's result, once it is done. Raises JobEnded when it was poisoned or cancelled, TimeoutError."""
        limit = None if timeout is None else self._clock.elapsed() + time_span("timeout", timeout)
        pause = LOOK_EVERY
        while True:
            job = await self.job(job_id)
            if job.status is JobStatus.DONE:
                return job.result
            if job.status in (JobStatus.POISONED, JobStatus.CANCELLED):
                raise JobEnded(f"job {job_id} is {job.status}" + (f": {job.last_error}" if job.last_error else ""))
            if limit is not None and self._clock.elapsed() >= limit:
                raise TimeoutError(f"job {job_id} is still {job.status}")
            await self._clock.sleep(pause)
            pause = min(pause * 1.5, _LOOK_SELDOM)

    async def cancel(self, *job_ids: str) -> Sequence[Job]:
        """Cancel jobs: pending ones at once, running ones within about a second, when their worker hears of it."""
        return await self._store.jobs.cancel([(await self.job(job_id)).job_id for job_id in job_ids])

    async def requeue(self, *job_ids: str) -> Sequence[JobId]:
        """Poisoned and cancelled jobs are pending again; none named: every poisoned one of the pool."""
        await self.get()
        return await self._store.jobs.requeue(self.pool_id, [JobId(each) for each in job_ids] or None)

    async def pause(self, until: datetime | None = None) -> PoolRow:
        """Nothing is claimed from the pool until then, or until it is resumed; what runs goes on."""
        wanted = PoolChange(paused_until=FOREVER if until is None else moment("until", until))
        return await self._store.pools.change((await self.get()).pool_id, wanted)

    async def resume(self) -> PoolRow:
        """Jobs may be claimed again; and workers are started again, whatever they failed at before."""
        kept = await self.get()
        return await self._store.pools.change(kept.pool_id, PoolChange(resumed=True, policy=await self._mended()))

    async def plan(self) -> WorkPlan:
        """How its workers work."""
        return plan_of(await self.get())


def _stale(job: Job) -> StaleWrite:
    return StaleWrite(f"job {job.job_id} is no longer held by claim {job.lease_epoch}; claim again and drop what this one did")
