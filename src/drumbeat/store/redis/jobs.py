"""Reading, counting, cancelling, requeueing and pruning jobs, in Redis."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.job import ENDED, Attempt, Job, JobCounts, JobId, JobStatus, Token
from drumbeat.core.pool import PoolId
from drumbeat.core.retention import Prunable
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store.interface import ClaimRequest, Due
from drumbeat.store.job_ids import job_id_of
from drumbeat.store.pruning import prune_all
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.job_rows import attempts_of, claiming_arguments, holder_argument, job_of, jobs_of, type_arguments
from drumbeat.store.redis.rows import at_us, moment, to_us
from drumbeat.store.redis.upkeep import RedisUpkeep

_ALL = 1_000_000_000
_PAGE = 500  #: jobs per script call, so that other clients are served in between


class RedisJobs:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def get(self, job_id: JobId) -> Job:
        found = await self._database.run("job_get", job_id)
        if found is None:
            raise _no_job(job_id)
        return job_of(found)

    async def list(
        self,
        pool_id: PoolId,
        *,
        statuses: Sequence[JobStatus] = (),
        job_type: str | None = None,
        group: str | None = None,
        worker_id: WorkerId | None = None,
        holder: Holder | None = None,
        after: JobId | None = None,
        limit: int = 100,
    ) -> Sequence[Job]:
        last: bytes | None = b"" if after is None else await self._number(pool_id, after)
        held_by = None if holder is None else holder_argument(holder)
        filters = (_statuses_argument(statuses), job_type, group, worker_id, held_by)
        jobs: list[Job] = []
        while last is not None and len(jobs) < limit:
            text, last = await self._database.run("job_page", pool_id, last, _PAGE, limit - len(jobs), *filters)
            jobs += jobs_of(text)
        return jobs

    async def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        found = await self._database.run("job_attempts", job_id)
        if found is None:
            raise _no_job(job_id)
        return attempts_of(*found)

    async def size(self, pool_id: PoolId, most: int = 10_000) -> int:
        return (await self.counts(pool_id, most)).ready

    async def counts(self, pool_id: PoolId, most: int = 10_000) -> JobCounts:
        found = await self._database.run("job_counts", pool_id, most)
        ready, delayed, claimed, done, poisoned, cancelled, oldest, waiting, done_so_far, poisoned_so_far = found
        return JobCounts(
            ready=ready,
            delayed=delayed,
            waiting=waiting,
            claimed=claimed,
            done=done,
            poisoned=poisoned,
            cancelled=cancelled,
            done_so_far=done_so_far,
            poisoned_so_far=poisoned_so_far,
            oldest_ready=moment(oldest),
        )

    async def ahead(self, job: Job, most: int = 10_000) -> int:
        ahead: int = await self._database.run("job_ahead", job.pool_id, job.priority, job.job_id, most)
        return ahead

    async def recent_claims(self, pool_id: PoolId, group: str, per: timedelta) -> int:
        claims: int = await self._database.run("job_recent", pool_id, group, to_us(per))
        return claims

    async def demand(
        self, pool_id: PoolId, most: int = 10_000, types: Sequence[str] = (), without: Sequence[str] = ()
    ) -> Mapping[str, int]:
        return _counts(await self._database.run("job_demand", pool_id, most, *type_arguments(types, without)))

    async def by_type(self, pool_id: PoolId, most: int = 10_000, without: Sequence[str] = ()) -> Mapping[str, int]:
        return _counts(await self._database.run("job_types", pool_id, most, *type_arguments((), without)))

    async def cancel(self, job_ids: Sequence[JobId]) -> Sequence[Job]:
        return jobs_of(await self._database.run("job_cancel", *dict.fromkeys(job_ids)))

    async def to_stop(self, holder: Holder) -> Sequence[Token]:
        found = await self._database.run("job_to_stop", holder_argument(holder))
        return [
            Token(job_id=job_id_of(int(number)) if own is None else JobId(own.decode()), epoch=int(epoch))
            for number, own, epoch in found
        ]

    async def wait_alone(self, pool_id: PoolId) -> bool:
        return bool(await self._database.run("job_wait_alone", pool_id))

    async def overdue_in(self, claiming: ClaimRequest) -> timedelta | None:
        left = await self._database.run("job_overdue", *claiming_arguments(claiming))
        return None if left is None else timedelta(microseconds=int(left))

    async def due(self, claiming: ClaimRequest) -> Due:
        is_ready, left = await self._database.run("job_due", *claiming_arguments(claiming))
        return Due(is_ready=bool(is_ready), next_in=None if left is None else timedelta(microseconds=int(left)))

    async def requeue(self, pool_id: PoolId, job_ids: Sequence[JobId]) -> Sequence[JobId]:
        requeued = await self._database.run("job_requeue", pool_id, *dict.fromkeys(job_ids))
        return [JobId(job_id.decode()) for job_id in requeued]

    async def change_pending(
        self, pool_id: PoolId, job_ids: Sequence[JobId], *, priority: int | None = None, run_at: datetime | None = None
    ) -> Sequence[JobId]:
        found = await self._database.run("job_change", pool_id, priority, at_us(run_at), *dict.fromkeys(job_ids))
        return [JobId(job_id.decode()) for job_id in found]

    async def progress(self, holder: Holder, token: Token, share: float, note: str | None = None) -> bool:
        if not isfinite(share):
            raise InvalidInput(f"expected a job's progress (share) to be a number from 0 to 1, got {share}")
        arguments = (holder_argument(holder), token.job_id, token.epoch, float(share), note)
        return bool(await self._database.run("job_progress", *arguments))

    async def parents(self, job_id: JobId, limit: int | None = None) -> Sequence[Job]:
        return await self._linked(job_id, "parents", _ALL if limit is None else limit)

    async def children(self, job_id: JobId, limit: int = 1000) -> Sequence[Job]:
        return await self._linked(job_id, "children", limit)

    async def child_elsewhere(self, pool_id: PoolId) -> Job | None:
        last: bytes | None = b""
        while last is not None:
            found, last = await self._database.run("job_child_elsewhere", pool_id, last, _PAGE)
            if found is not None:
                return job_of(found)
        return None

    async def of_workflow(
        self, workflow_id: str, *, statuses: Sequence[JobStatus] = (), after: JobId | None = None, limit: int = 1000
    ) -> Sequence[Job]:
        last: bytes | None = b"" if after is None else await self._database.run("job_any_number", after)
        if last is None:
            raise _no_job(after or JobId(""))
        jobs: list[Job] = []
        while last is not None and len(jobs) < limit:
            arguments = (workflow_id, last, _PAGE, limit - len(jobs), _statuses_argument(statuses))
            text, last = await self._database.run("workflow_page", *arguments)
            jobs += jobs_of(text)
        return jobs

    async def workflow_counts(self, workflow_id: str) -> Mapping[JobStatus, int]:
        counted = _counts(await self._database.run("workflow_counts", workflow_id))
        return {JobStatus(status): count for status, count in counted.items()}

    async def _linked(self, job_id: JobId, which: str, limit: int) -> Sequence[Job]:
        jobs: list[Job] = []
        last: bytes | None = b""
        while last is not None and len(jobs) < limit:
            page = await self._database.run("job_linked", job_id, which, last, min(_PAGE, limit - len(jobs)))
            if page is None:
                raise _no_job(job_id)
            text, last = page
            jobs += jobs_of(text)
        return jobs

    async def prune(
        self,
        older_than: timedelta,
        statuses: Sequence[JobStatus] = (JobStatus.DONE, JobStatus.CANCELLED),
        on_progress: Callable[[int], object] | None = None,
    ) -> int:
        kinds = [Prunable(status) for status in statuses if status in ENDED]
        pools = [PoolId(pool.decode()) for pool in await self._database.run("pool_names")] if kinds else []
        return (await prune_all(RedisUpkeep(self._database), pools, kinds, older_than, on_progress)).total()

    async def _number(self, pool_id: PoolId, job_id: JobId) -> bytes:
        number: bytes | None = await self._database.run("job_number", pool_id, job_id)
        if number is None:
            raise NotFound(f"cannot list the jobs after {job_id!r}: this pool has no such job; list from the start")
        return number


def _statuses_argument(statuses: Sequence[JobStatus]) -> str:
    """Return the statuses as one argument of a script, each once: the script reads the jobs of each status."""
    return ",".join(dict.fromkeys(statuses))


def _counts(flat: Sequence[Any]) -> dict[str, int]:
    return {name.decode(): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}


def _no_job(job_id: JobId) -> NotFound:
    return NotFound(f"there is no job {job_id!r}: it was never pushed, or was deleted")
