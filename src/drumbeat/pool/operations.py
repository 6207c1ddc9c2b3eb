"""Methods of a pool: change all jobs that match a filter, pause the pool or some job types, and list groups of errors."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.job import UNFINISHED, Job, JobId, JobStatus
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.pool.model import no_pool
from drumbeat.pool.paused_types import ClaimableTypes, pause_change, resume_change
from drumbeat.pool.validation import check_count, check_priority, check_time, names
from drumbeat.store.interface import PoolChange, Store

if TYPE_CHECKING:
    from drumbeat.pool.bulk import BulkChange, BulkResult, Change
    from drumbeat.pool.error_groups import ErrorGroups
    from drumbeat.pool.job_filter import JobFilter

FOREVER = datetime(9999, 1, 1, tzinfo=UTC)  #: stored as the end of a pause without an end
_REQUEUABLE = frozenset({JobStatus.POISONED, JobStatus.CANCELLED})
_PENDING = frozenset({JobStatus.PENDING})
_POISONED = frozenset({JobStatus.POISONED})


class PoolOperations:
    """Reads a pool's row, pauses and resumes the pool, and changes many jobs at once. ``Pool`` inherits these methods."""

    pool_id: PoolId
    _store: Store
    _claimable: ClaimableTypes
    _on_push: Callable[[PoolId], Awaitable[object]] | None

    async def get(self) -> PoolRow:
        """Return the pool's row. Raises NotFound; InvalidInput if it is not a pool of jobs."""
        found = await self._store.pools.find(self.pool_id)
        if found is None:
            raise NotFound(no_pool(self.pool_id))
        if found.kind is not PoolKind.JOBS:
            raise InvalidInput(f"expected a pool of jobs, got {self.pool_id!r}, which is a {found.kind} pool")
        return found

    async def _work_added(self, changed: object = True, pools: Sequence[PoolId] = ()) -> None:
        """Call ``on_push``, which can start workers for jobs that can now run; do nothing if nothing has ``changed``.

        ``pools``: the pools of the jobs, by default this one."""
        if changed and self._on_push is not None:
            for pool_id in pools or [self.pool_id]:
                await self._on_push(pool_id)

    async def _reset_failures(self) -> dict[str, str]:
        """Return the policy field that makes the circuit breaker ignore failures until now, so that workers start again."""
        return {"mended_at": (await self._store.now()).isoformat()}

    async def pause(self, until: datetime | None = None, *, types: Sequence[str] = ()) -> PoolRow:
        """Pause the pool until ``until``, or until it is resumed: no jobs are claimed; running jobs continue.

        With ``types``, only jobs of these types are paused, until they are resumed; workers notice it within a second.
        """
        row, kinds = await self.get(), names("types", types)
        if kinds and until is not None:
            raise InvalidInput(
                "until: expected no time when types are given, got one; leave it out: paused types stay paused until resumed"
            )
        if not kinds:
            change = PoolChange(paused_until=FOREVER if until is None else check_time("until", until))
            return await self._store.pools.change(row.pool_id, change)
        return await self._change_types(pause_change(kinds, await self._store.now()))

    async def resume(self, *, types: Sequence[str] = ()) -> PoolRow:
        """End a pause, and let workers be started again even if the last workers failed. Paused types stay paused.

        With ``types``, only resume jobs of these types.
        """
        row, kinds = await self.get(), names("types", types)
        if kinds:
            resumed = await self._change_types(resume_change(kinds))
        else:
            change = PoolChange(resumed=True, policy=await self._reset_failures())
            resumed = await self._store.pools.change(row.pool_id, change)
        await self._work_added()
        return resumed

    async def _change_types(self, change: PoolChange) -> PoolRow:
        changed = await self._store.pools.change(self.pool_id, change)
        self._claimable.forget()
        return changed

    async def cancel_where(
        self,
        selected: "JobFilter | Mapping[str, Any]",
        *,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> "BulkResult":
        """Cancel the unfinished jobs that match a filter, oldest first; with ``dry_run`` only count them.

        A job that is running, also one that was claimed while this call ran, is not ended: its worker is asked to stop it, and
        it is counted as ``requested``. ``on_progress`` is called with the number of jobs so far. Raises InvalidInput.
        """
        return await self._change_matching(
            selected, UNFINISHED, UNFINISHED, "cancelled", self._cancel_page, limit, dry_run, on_progress
        )

    async def requeue(self, *job_ids: str) -> Sequence[JobId]:
        """Make poisoned and cancelled jobs pending again. Returns their ids.

        Without ids, requeues every poisoned job of the pool, some hundred at a time. Check a list that may be empty before it
        is unpacked here: ``requeue(*[])`` is a call without ids.
        """
        from drumbeat.pool.bulk import requeue_poisoned

        await self.get()
        if job_ids:
            requeued = await self._store.jobs.requeue(self.pool_id, [JobId(each) for each in job_ids])
        else:
            requeued = await requeue_poisoned(self._store, self.pool_id)
        await self._work_added(requeued)
        return requeued

    async def requeue_where(
        self,
        selected: "JobFilter | Mapping[str, Any]",
        *,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> "BulkResult":
        """Make the poisoned jobs that match a filter pending again, oldest first; with ``dry_run`` only count them.

        Cancelled jobs are requeued only if ``statuses`` names them. A job is skipped if an unfinished job has its unique key.
        ``on_progress`` is called with the number of jobs so far. Raises InvalidInput.
        """
        done = await self._change_matching(
            selected, _REQUEUABLE, _POISONED, "requeued", self._requeue_page, limit, dry_run, on_progress
        )
        await self._work_added(done.changed)
        return done

    async def reschedule_where(
        self,
        selected: "JobFilter | Mapping[str, Any]",
        run_at: datetime,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> "BulkResult":
        """Give the pending jobs that match a filter another earliest start; with ``dry_run`` only count them.

        A time in the past makes them ready. A job that was claimed meanwhile is skipped. Raises InvalidInput.
        """
        change = partial(self._change_page, run_at=check_time("run_at", run_at))
        done = await self._change_matching(selected, _PENDING, _PENDING, "rescheduled", change, limit, dry_run, on_progress)
        await self._work_added(done.changed)
        return done

    async def prioritise_where(
        self,
        selected: "JobFilter | Mapping[str, Any]",
        priority: int,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> "BulkResult":
        """Give the pending jobs that match a filter another priority; with ``dry_run`` only count them.

        A job that was claimed meanwhile is skipped. Raises InvalidInput.
        """
        change = partial(self._change_page, priority=check_priority("priority", priority))
        return await self._change_matching(selected, _PENDING, _PENDING, "prioritised", change, limit, dry_run, on_progress)

    async def _change_page(self, jobs: Sequence[Job], **change: Any) -> "BulkChange":
        from drumbeat.pool.bulk import BulkChange

        return BulkChange(changed=await self._store.jobs.change_pending(self.pool_id, [job.job_id for job in jobs], **change))

    async def errors(self, selected: "JobFilter | Mapping[str, Any] | None" = None) -> "ErrorGroups":
        """Group the poisoned jobs by their error; errors that differ only in numbers, ids and addresses are one group.

        Reads all poisoned jobs that match the filter, some hundred at a time. Raises InvalidInput.
        """
        from drumbeat.pool.error_groups import read_error_groups
        from drumbeat.pool.job_filter import as_filter

        found = as_filter(selected or {})
        if not found.is_empty:
            found.with_statuses(_POISONED, _POISONED, "grouped by error")
        return await read_error_groups(self._store, (await self.get()).pool_id, found)

    async def _change_matching(
        self,
        selected: "JobFilter | Mapping[str, Any]",
        allowed: frozenset[JobStatus],
        default: frozenset[JobStatus],
        verb: str,
        change: "Change",
        limit: int | None,
        dry_run: bool,
        on_progress: Callable[[int], object] | None,
    ) -> "BulkResult":
        from drumbeat.pool.bulk import change_matching
        from drumbeat.pool.job_filter import as_filter

        found = as_filter(selected)
        return await change_matching(
            self._store,
            (await self.get()).pool_id,
            found,
            found.with_statuses(allowed, default, verb),
            None if dry_run else change,
            limit=None if limit is None else check_count("limit", limit),
            on_progress=on_progress,
        )

    async def _cancel_page(self, jobs: Sequence[Job]) -> "BulkChange":
        from drumbeat.pool.bulk import BulkChange
        from drumbeat.pool.flows import cancel_jobs

        found = await cancel_jobs(self._store, [job.job_id for job in jobs])
        return BulkChange(
            changed=[job.job_id for job in found if job.status is JobStatus.CANCELLED],
            requested=[job.job_id for job in found if job.status is JobStatus.CLAIMED],
        )

    async def _requeue_page(self, jobs: Sequence[Job]) -> "BulkChange":
        from drumbeat.pool.bulk import BulkChange

        return BulkChange(changed=await self._store.jobs.requeue(self.pool_id, [job.job_id for job in jobs]))
