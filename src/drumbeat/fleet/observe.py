"""One look at a pool, its queue and its money, with the policy it is to be judged by. Every read is bounded."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from drumbeat.core.beat import Beat
from drumbeat.core.errors import InvalidInput, NotFound, SpawnCause, StoreError
from drumbeat.core.job import Job, JobId, JobStatus, Outcome
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.fleet.breaker import cause_of
from drumbeat.fleet.model import (
    Arrivals,
    Finished,
    FleetPolicy,
    FleetState,
    FleetView,
    Held,
    LastBeat,
    PolicyName,
    Provider,
    Queue,
    SpawnResult,
)
from drumbeat.fleet.money import spend, tariff
from drumbeat.runtime.sight import last_look, look
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

HELD = 10_000  #: claimed jobs looked at
COUNTED = 100_000  #: where counting stops
PAGE = 1000
PAGES = 3  #: of new jobs in one beat; what is left is counted at the next
ENDED = 100  #: jobs whose end is looked up in one beat
SAMPLED = 200  #: ready jobs whose types are looked at
_RECENT = timedelta(hours=1)  #: for so long ended workers stay in sight
_LAG_FROM = 9  #: workers kept in sight for the spawn lag they tell


async def observe(store: Store, spawner: Spawner, pool_id: PoolId, gap: timedelta) -> FleetView:
    """The pool as it is now. Raises InvalidInput for the pool of a benchmark run, whose orchestrator decides for it."""
    pool = await store.pools.get(pool_id)
    if pool.kind is PoolKind.BENCH:
        raise InvalidInput(
            f"expected a fleet or a pool of jobs, got {pool_id}, which is a run; see: drumbeat bench show {pool_id}"
        )
    last = await last_look(store, pool, await store.now())
    sight = await look(store, spawner, pool, gap, last, unlisted_too=True)
    policy, provider = FleetPolicy.from_json(pool.policy), _provider(spawner)
    view = FleetView(
        pool_id=pool_id,
        now=sight.now,
        looking_since=sight.looking_since,
        paused_until=pool.paused_until,
        thresholds=pool.thresholds,
        policy=policy,
        workers=in_sight(sight.workers, sight.now),
        instances=sight.instances,
        unnoted=sight.unnoted,
        instances_partial=sight.partial,
        provider=provider,
        last_number=_last_number(sight.workers),
        spent=spend(sight.workers, sight.now, tariff(policy, provider)),
        last=_last_beat(last, sight.workers),
        state=remembered(last),
    )
    return view if policy.policy is PolicyName.FIXED else await _Queues(store, view, last).seen()


def _provider(spawner: Spawner) -> Provider:
    traits = spawner.traits
    return Provider(
        name=traits.name,
        unique_names=traits.unique_names,
        settle=traits.settle,
        price_per_hour=traits.price_per_hour,
        billing_granule=traits.billing_granule,
        usual_start=traits.usual_start,
        expands_volumes=traits.expands_volumes,
    )


def in_sight(workers: Sequence[Worker], now: datetime) -> tuple[Worker, ...]:
    """Who must be decided about, who ended of late, and a few who tell how long a start takes."""
    ready = sorted((each for each in workers if each.ready_at), key=lambda each: each.ready_at or now)[-_LAG_FROM:]
    telling = {each.worker_id for each in ready}
    return tuple(
        each
        for each in workers
        if each.reaped_at is None or each.worker_id in telling or now - (each.ended_at or now) <= _RECENT
    )


def _last_number(workers: Sequence[Worker]) -> int:
    numbers = (each.worker_id.removeprefix("worker-") for each in workers)
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


def remembered(last: Beat | None) -> FleetState | None:
    """What the last beat left. What cannot be read is not remembered: the fleet is the more cautious for it."""
    if last is None or "state" not in last.summary:
        return None
    try:
        return msgspec.convert(last.summary["state"], FleetState)
    except msgspec.ValidationError as exc:
        log.warning("what the last beat left cannot be read, and is forgotten: %s", exc)
        return None


def _last_beat(last: Beat | None, workers: Sequence[Worker]) -> LastBeat | None:
    if last is None or last.view is None:
        return None
    at = datetime.fromisoformat(last.view["now"])
    rows = {each.worker_id: each for each in workers}
    return LastBeat(at=at, spawns=tuple(_results(last.actions, rows, last.at)))


def _results(actions: Sequence[Mapping[str, Any]], rows: Mapping[WorkerId, Worker], at: datetime) -> Iterator[SpawnResult]:
    """What the provider said to each creation it was asked for; what was not tried was not asked."""
    for action in actions:
        error = action.get("error")
        if action["type"] != "Spawn" or (error and error.startswith("not ")):
            continue
        name = WorkerId(action["worker_id"])
        row = rows.get(name)
        if error and row is not None and row.meta.get("spawn_failed"):
            yield SpawnResult(worker_id=name, at=row.ended_at or at, cause=cause_of(row), retry_after=_retry_after(row))
        else:
            yield SpawnResult(worker_id=name, at=at, cause=SpawnCause.AMBIGUOUS if error else None)


def _retry_after(row: Worker) -> timedelta | None:
    told = row.meta.get("retry_after_seconds")
    return timedelta(seconds=float(told)) if isinstance(told, int | float) else None


@dataclass(frozen=True, slots=True)
class _Queues:
    """The queue's side of a look."""

    store: Store
    view: FleetView
    last: Beat | None

    async def seen(self) -> FleetView:
        """The view with its queue. A queue that cannot be read is not an empty one."""
        try:
            held = await self._held()
            arrived, cursor = await self._arrived()
            return replace(
                self.view,
                queue=await self._queue(),
                held=held[:HELD],
                held_partial=len(held) > HELD,
                finished=tuple(await self._finished({each.job_id: each.claimed_at for each in held})),
                arrived=arrived,
                cursor=cursor,
            )
        except StoreError as exc:
            log.warning("the queue of %s could not be read: %s", self.view.pool_id, exc)
            return replace(self.view, held_partial=True)

    async def _queue(self) -> Queue:
        jobs, pool_id = self.store.jobs, self.view.pool_id
        counts = await jobs.counts(pool_id, COUNTED)
        types: Mapping[str, int] = {}
        if counts.ready and self.view.policy.policy is PolicyName.LAG_AWARE:
            types = Counter(job.type for job in await jobs.list(pool_id, statuses=[JobStatus.PENDING], limit=SAMPLED))
        return Queue(
            ready=counts.ready,
            delayed=counts.delayed,
            claimed=counts.claimed,
            oldest_ready=counts.oldest_ready,
            demand=await jobs.demand(pool_id, COUNTED) if counts.ready else {},
            types=types,
        )

    async def _held(self) -> tuple[Held, ...]:
        claimed = await self.store.jobs.list(self.view.pool_id, statuses=[JobStatus.CLAIMED], limit=HELD + 1)
        return tuple(
            Held(
                job_id=job.job_id,
                worker_id=job.lease_owner,
                claimed_at=job.claimed_at or self.view.now,
                type=job.type,
                lease_until=job.lease_until,
                timeout=job.timeout,
                progress=job.progress,
            )
            for job in claimed
            if job.lease_owner is not None
        )

    async def _arrived(self) -> tuple[tuple[Arrivals, ...], JobId | None]:
        """Jobs that came since the last beat, by the minute, and how far they were counted."""
        cursor = self.view.state.cursor if self.view.state else None
        since = self.view.last.at if self.view.last else self.view.now
        minutes: Counter[datetime] = Counter()
        for _ in range(PAGES):
            page = await self._page(cursor)
            minutes.update(_minute(job.created_at) for job in page if job.created_at and job.created_at > since)
            cursor = page[-1].job_id if page else cursor
            if len(page) < PAGE:
                break
        return tuple(Arrivals(minute=minute, count=count) for minute, count in sorted(minutes.items())), cursor

    async def _page(self, cursor: JobId | None) -> Sequence[Job]:
        """The jobs after the cursor. Without one, or if its job is pruned, what is unfinished is where to begin."""
        jobs, pool_id = self.store.jobs, self.view.pool_id
        try:
            if cursor is not None:
                return await jobs.list(pool_id, after=cursor, limit=PAGE)
        except NotFound:
            log.info("job %s, up to which arrivals were counted, is gone; counting begins anew", cursor)
        return await jobs.list(pool_id, statuses=[JobStatus.PENDING, JobStatus.CLAIMED], limit=PAGE)

    async def _finished(self, held: Mapping[JobId, datetime]) -> list[Finished]:
        """How the jobs ended that the last beat saw running."""
        before = msgspec.convert((self.last.view or {}).get("held", []), tuple[Held, ...]) if self.last else ()
        gone = [each for each in before if held.get(each.job_id) != each.claimed_at][:ENDED]
        found = [await self._ending(each) for each in gone]
        return [each for each in found if each is not None]

    async def _ending(self, held: Held) -> Finished | None:
        try:
            job = await self.store.jobs.get(held.job_id)
        except NotFound:
            return None
        if job.status is JobStatus.DONE and job.claimed_at == held.claimed_at and job.finished_at:
            took = job.finished_at - held.claimed_at
            return Finished(worker_id=held.worker_id, took=took, type=held.type, at=job.finished_at)
        return await self._attempt(held)

    async def _attempt(self, held: Held) -> Finished | None:
        """The attempt that ended otherwise, if its handler did or failed: one given back or lost tells nothing."""
        for attempt in reversed(await self.store.jobs.attempts(held.job_id)):
            if attempt.worker_id == held.worker_id and attempt.ended_at and attempt.outcome in _TELLING:
                took, ok = attempt.ended_at - attempt.started_at, attempt.outcome is Outcome.DONE
                return Finished(worker_id=held.worker_id, took=took, type=held.type, ok=ok, at=attempt.ended_at)
        return None


_TELLING = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.TIMED_OUT})


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
