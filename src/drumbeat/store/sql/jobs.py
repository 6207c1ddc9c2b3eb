"""SQL table ``jobs``, as users and controllers use it; the queue for workers is in ``queue.py``."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.errors import NotFound
from drumbeat.core.job import ENDED, Attempt, Job, JobCounts, JobId, JobStatus, Token
from drumbeat.core.pool import PoolId
from drumbeat.core.retention import Prunable
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store.interface import ClaimRequest, Due
from drumbeat.store.job_ids import number_of
from drumbeat.store.pruning import prune_all
from drumbeat.store.sql.database import Database, MayConflict, NotifyingQueue, Row, Script, transact_again
from drumbeat.store.sql.flow_scripts import ended_parents, pass_on_ends, state_of_requeued, wait_again
from drumbeat.store.sql.job_rows import attempts_of, holder_values, job_of, row_id, text
from drumbeat.store.sql.job_scripts import note_ended
from drumbeat.store.sql.pruning import SqlPruning
from drumbeat.store.sql.rows import at_us, dump, moment, to_us

_SAMPLE_FACTOR = 10  #: ``demand(most)`` first looks at this many times ``most`` jobs, and at the whole queue only if needed
_ALL = 2_000_000_000
_MOST_PARTS = 64  #: a count of ended jobs is the sum of several rows; above this many they are merged into one


class SqlJobs:
    """Inspects, counts, cancels, requeues and prunes jobs."""

    def __init__(self, database: Database, queue: NotifyingQueue) -> None:
        self._database = database
        self._queue = queue

    async def get(self, job_id: JobId) -> Job:
        return job_of(await self._row(job_id))

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
        values = {
            "pool_id": pool_id,
            "statuses": dump([*dict.fromkeys(statuses or JobStatus)]),
            "type": job_type,
            "group": group,
            "worker_id": worker_id,
            "holder_pool": None if worker_id is None else pool_id,
            "instance": None,
            "after": 0 if after is None else await self._number(pool_id, after),
            "limit": limit,
            **(holder_values(holder) if holder else {}),
        }
        return [job_of(row) for row in await self._database.read("list_jobs", values)]

    async def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        row = await self._row(job_id)
        return attempts_of(job_of(row), await self._database.read("list_attempts", {"seq": row["seq"]}))

    async def size(self, pool_id: PoolId, most: int = 10_000) -> int:
        [row] = await self._database.read("count_ready", {"pool_id": pool_id, "most": most})
        return min(int(row["ready"]), most)

    async def counts(self, pool_id: PoolId, most: int = 10_000) -> JobCounts:
        [row] = await self._database.read("count_queue", {"pool_id": pool_id, "most": most})
        if row["parts"] > _MOST_PARTS:
            await self._database.write("fold_counts", {"pool_id": pool_id})
        waiting = [since for since in (row["oldest_ready"], row["oldest_due"]) if since is not None]
        return JobCounts(
            ready=min(row["ready"] + row["due"], most),
            delayed=row["delayed"],
            waiting=row["waiting"],
            claimed=row["claimed"],
            oldest_ready=moment(min(waiting, default=None)),
            **{status: max(int(row[status] or 0), 0) for status in (*ENDED, "done_so_far", "poisoned_so_far")},
        )

    async def ahead(self, job: Job, most: int = 10_000) -> int:
        seq = (await self._row(job.job_id))["seq"]
        values = {"pool_id": job.pool_id, "priority": job.priority, "seq": seq, "most": most}
        [row] = await self._database.read("count_ahead", values)
        return min(int(row["ahead"]), most)

    async def recent_claims(self, pool_id: PoolId, group: str, per: timedelta) -> int:
        values = {"pool_id": pool_id, "group": group, "per": to_us(per)}
        [row] = await self._database.read("count_recent_claims", values)
        return int(row["claims"])

    async def demand(
        self, pool_id: PoolId, most: int = 10_000, types: Sequence[str] = (), without: Sequence[str] = ()
    ) -> Mapping[str, int]:
        values = {"pool_id": pool_id, "most": most, "types": dump([*types]), "without": dump([*without])}
        rows = await self._counted(values)
        needed = Counter[str]()
        for row in rows:
            needed[row["capability"]] += 0 if row["limited"] else row["jobs"]
        if any(row["limited"] and row["due"] for row in rows):
            await self._database.transact(_promote(pool_id))
        if any(row["limited"] for row in rows):
            for group in await self._database.read("list_limited", values):
                needed.update(claimable_capabilities(group))
        return {capability: min(count, most) for capability, count in needed.items() if count}

    async def by_type(self, pool_id: PoolId, most: int = 10_000, without: Sequence[str] = ()) -> Mapping[str, int]:
        rows = await self._database.read("count_types", {"pool_id": pool_id, "most": most, "without": dump([*without])})
        return {row["type"]: int(row["jobs"]) for row in rows}

    async def _counted(self, values: Mapping[str, Any]) -> Sequence[Row]:
        """Count ready jobs by the capability they need. Counts only the first part of a long queue, unless a job in this part
        needs a capability or belongs to a group with limits: then more such jobs may follow, and the whole queue is counted."""
        some = values["most"] * _SAMPLE_FACTOR
        rows = await self._database.read("count_demand", {**values, "most": some})
        others = [row for row in rows if row["capability"] or row["limited"]]
        if not others or all(sum(row["jobs"] for row in rows if row["due"] == due) < some for due in (0, 1)):
            return rows
        return await self._database.read("count_demand", {**values, "most": _ALL})

    async def cancel(self, job_ids: Sequence[JobId]) -> Sequence[Job]:
        cancelled, pools = await transact_again(self._database, lambda: _cancel(job_ids))
        await self._queue.notify(pools)
        return cancelled

    async def to_stop(self, holder: Holder) -> Sequence[Token]:
        rows = await self._database.read("list_to_stop", holder_values(holder))
        return [Token(job_id=row_id(row), epoch=row["lease_epoch"]) for row in rows]

    async def wait_alone(self, pool_id: PoolId) -> bool:
        return bool(await self._database.read("any_alone", {"pool_id": pool_id}))

    async def overdue_in(self, claiming: ClaimRequest) -> timedelta | None:
        rows = await self._database.read("list_overdue", {"pool_id": claiming.pool_id})
        left = [row["lease_until"] - row["now"] for row in rows if claiming.could_have(row["type"], row["capability"])]
        return timedelta(microseconds=max(min(left), 0)) if left else None

    async def due(self, claiming: ClaimRequest) -> Due:
        needs = {name: dump([*getattr(claiming, name)]) for name in ("types", "without", "capabilities")}
        [row] = await self._database.read("find_next_due", {"pool_id": claiming.pool_id, **needs})
        left = None if row["next_due"] is None else timedelta(microseconds=row["next_due"] - row["now"])
        return Due(is_ready=bool(row["ready"]), next_in=left)

    async def requeue(self, pool_id: PoolId, job_ids: Sequence[JobId]) -> Sequence[JobId]:
        requeued = await transact_again(self._database, lambda: _requeue(pool_id, job_ids))
        await self._queue.notify([pool_id] if requeued else [])
        return requeued

    async def change_pending(
        self, pool_id: PoolId, job_ids: Sequence[JobId], *, priority: int | None = None, run_at: datetime | None = None
    ) -> Sequence[JobId]:
        due = at_us(run_at)
        changed = await transact_again(self._database, lambda: _change_pending(pool_id, job_ids, priority, due))
        await self._queue.notify([pool_id] if changed else [])
        return changed

    async def progress(self, holder: Holder, token: Token, share: float, note: str | None = None) -> bool:
        return await self._database.transact(_progress(holder, token, share, note))

    async def parents(self, job_id: JobId, limit: int | None = None) -> Sequence[Job]:
        values = {"seq": (await self._row(job_id))["seq"], "limit": _ALL if limit is None else limit}
        return [job_of(row) for row in await self._database.read("list_parents", values)]

    async def children(self, job_id: JobId, limit: int = 1000) -> Sequence[Job]:
        values = {"seq": (await self._row(job_id))["seq"], "limit": limit}
        return [job_of(row) for row in await self._database.read("list_children", values)]

    async def child_elsewhere(self, pool_id: PoolId) -> Job | None:
        rows = await self._database.read("find_child_elsewhere", {"pool_id": pool_id})
        return job_of(rows[0]) if rows else None

    async def of_workflow(
        self, workflow_id: str, *, statuses: Sequence[JobStatus] = (), after: JobId | None = None, limit: int = 1000
    ) -> Sequence[Job]:
        values = {
            "workflow_id": workflow_id,
            "statuses": dump([*dict.fromkeys(statuses or JobStatus)]),
            "after": 0 if after is None else (await self._row(after))["seq"],
            "limit": limit,
        }
        return [job_of(row) for row in await self._database.read("list_workflow", values)]

    async def workflow_counts(self, workflow_id: str) -> Mapping[JobStatus, int]:
        rows = await self._database.read("count_workflow", {"workflow_id": workflow_id})
        return {JobStatus(row["status"]): int(row["jobs"]) for row in rows}

    async def prune(
        self,
        older_than: timedelta,
        statuses: Sequence[JobStatus] = (JobStatus.DONE, JobStatus.CANCELLED),
        on_progress: Callable[[int], object] | None = None,
    ) -> int:
        kinds = [Prunable(status) for status in statuses if status in ENDED]
        pools = [row["pool_id"] for row in await self._database.read("list_pools", {"kind": None})]
        return (await prune_all(SqlPruning(self._database), pools, kinds, older_than, on_progress)).total()

    async def _number(self, pool_id: PoolId, job_id: JobId) -> int:
        """Return the number of a job of this pool. Raises NotFound, also for a job of another pool."""
        row = await self._found(job_id)
        if row is None or row["pool_id"] != pool_id:
            raise NotFound(f"cannot list the jobs after {job_id!r}: this pool has no such job; list from the start")
        return int(row["seq"])

    async def _row(self, job_id: JobId) -> Row:
        row = await self._found(job_id)
        if row is None:
            raise NotFound(f"there is no job {job_id!r}: it was never pushed, or was deleted")
        return row

    async def _found(self, job_id: JobId) -> Row | None:
        number = number_of(job_id)
        by_id, by_number = ("find_job_by_id", {"job_id": job_id}), ("find_job_by_number", {"seq": number})
        rows = await self._database.read(*(by_id if number is None else by_number))
        return rows[0] if rows else None


def claimable_capabilities(group: Row) -> Iterator[str]:
    """Yield the capability that each job of a group needs, for as many jobs as the group's limit and rate allow now."""
    for place, (capability, limit, rate) in enumerate(json.loads(group["firsts"]), 1):
        if (limit is None or group["running"] + place <= limit) and (rate is None or group["recent"] + place <= rate):
            yield capability or ""


def _promote(pool_id: PoolId) -> Script[None]:
    now = (yield "now", {})[0]["now"]
    yield "promote_jobs", {"pool_id": pool_id, "now": now}


def _find(job_id: JobId) -> Script[Row | None]:
    number = number_of(job_id)
    if number is None:
        rows = yield "find_job_by_id", {"job_id": job_id}
    else:
        rows = yield "find_job_by_number", {"seq": number}
    return rows[0] if rows else None


def _cancel(job_ids: Sequence[JobId]) -> Script[tuple[list[Job], set[PoolId]]]:
    """Cancel jobs. Returns them, and the pools in which jobs that waited for them became ready.

    All are cancelled before the jobs that wait for them are updated, so that no job in ``job_ids`` is skipped, or
    made pending, because another one of them has ended.
    """
    changed: list[Row] = []
    for job_id in sorted(set(job_ids)):
        row = yield from _find(job_id)
        changed += (yield "cancel_job", {"seq": row["seq"]}) if row else ()
    ends = ended_parents((row["seq"], JobStatus(row["status"]), bool(row["has_children"])) for row in changed)
    pools = yield from pass_on_ends(ends)
    cancelled = [job_of(row) for row in changed]
    yield from note_ended((job.pool_id, job.status) for job in cancelled)
    return cancelled, pools


def _requeue(pool_id: PoolId, job_ids: Sequence[JobId]) -> Script[list[JobId]]:
    candidates: list[Row] = []
    for job_id in dict.fromkeys(job_ids):
        row = yield from _find(job_id)
        candidates += [row] if row else []
    requeued: list[Row] = []
    for row in sorted(candidates, key=lambda row: int(row["seq"])):
        state = yield from state_of_requeued(row)
        values = {"seq": row["seq"], "pool_id": pool_id, "status": row["status"]}
        changed = yield "requeue_job", values if row["unique_key"] is None else MayConflict(values=values)
        if changed:
            requeued.append(row)
            yield from wait_again(row["seq"], state, has_children=bool(changed[0]["has_children"]))
    yield from note_ended(((pool_id, JobStatus(row["status"])) for row in requeued), -1)
    return [row_id(row) for row in requeued]


def _change_pending(pool_id: PoolId, job_ids: Sequence[JobId], priority: int | None, run_at: int | None) -> Script[list[JobId]]:
    changed: list[JobId] = []
    for job_id in sorted(set(job_ids)):
        row = yield from _find(job_id)
        values = {"pool_id": pool_id, "priority": priority, "run_at": run_at}
        if row is not None and (yield "change_pending_job", {"seq": row["seq"], **values}):
            changed.append(job_id)
    return changed


def _progress(holder: Holder, token: Token, share: float, note: str | None) -> Script[bool]:
    row = yield from _find(token.job_id)
    if row is None:
        return False
    values = {"share": share, "note": text(note), "seq": row["seq"], "epoch": token.epoch, **holder_values(holder)}
    return bool((yield "note_progress", values))
