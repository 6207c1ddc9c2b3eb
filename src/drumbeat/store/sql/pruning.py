"""Deletes old rows in many steps; each step is one short transaction."""

import time
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from drumbeat.core.billing import billed_since
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.core.retention import JOBS, Prunable, Pruned
from drumbeat.store.sql.database import Database, Row, Rows, Script, transact_again
from drumbeat.store.sql.job_scripts import note_ended
from drumbeat.store.sql.rows import at_us, dump, instant, to_us

_JOBS_PER_PAGE = 500

_ROWS = {Prunable.SAMPLES: 300, Prunable.LOGS: 500, Prunable.BEATS: 50, Prunable.WORKERS: 200, Prunable.EVENTS: 500}

PruneKey = tuple[PoolId, Prunable, timedelta]


@dataclass(frozen=True, slots=True)
class _Step:
    """Limits of one transaction that deletes jobs: its duration, and the number of jobs per statement."""

    seconds: float
    at_once: int  #: jobs per statement; the time is checked after each statement, since jobs can be large


_ONE_WRITER = _Step(0.01, 50)  #: short, since other writers wait meanwhile (SQLite)
_MANY_WRITERS = _Step(0.1, 250)  #: longer, since no writer waits for ended jobs and each statement is a round trip


class SqlPruning:
    """Deletes old rows of one kind from one pool, a short step at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._step = _MANY_WRITERS if database.traits.networked else _ONE_WRITER
        self._resume_after: dict[PruneKey, int] = {}  #: the number of the job after which the next step continues

    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        if what in JOBS:
            return await self._jobs(pool_id, what, older_than)
        values: dict[str, object] = {"pool_id": pool_id, "age": to_us(older_than), "limit": _ROWS[what]}
        if what is Prunable.WORKERS:
            now = instant((await self._database.read("now"))[0]["now"])
            values["billed_since"] = at_us(billed_since(now))
        rows = await self._database.write(f"prune_{what}", values)
        return Pruned(rows=len(rows), more=bool(rows))

    async def _jobs(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        key = (pool_id, what, older_than)
        values = {"pool_id": pool_id, "status": str(what), "age": to_us(older_than)}
        page = await self._database.read(
            "list_prunable", values | {"after": self._resume_after.get(key, 0), "limit": _JOBS_PER_PAGE}
        )
        old = [row["seq"] for row in page if row["is_old"]]
        parents = {row["seq"] for row in page if row["is_old"] and row["has_children"]}
        deletion = partial(_prune_jobs, pool_id, JobStatus(what), to_us(older_than), old, parents, self._step)
        gone = await transact_again(self._database, deletion) if old else []
        if len(gone) < len(old):
            return Pruned(rows=len(gone), more=True)
        more = len(page) == _JOBS_PER_PAGE and not page[-1]["is_young"]
        if more:
            self._resume_after[key] = page[-1]["seq"]
        else:
            self._resume_after.pop(key, None)
        return Pruned(rows=len(gone), more=more)


def _prune_jobs(
    pool_id: PoolId, status: JobStatus, age: int, numbers: Sequence[int], parents: Set[int], step: _Step
) -> Script[list[Row]]:
    """Delete jobs by number, with their attempts, steps and links to their parents, until all are deleted or ``step.seconds``
    have passed. ``parents`` are the jobs among them with children. Returns the rows of the deleted jobs."""
    gone: list[Row] = []
    until = time.monotonic() + step.seconds
    for first in range(0, len(numbers), step.at_once):
        some = numbers[first : first + step.at_once]
        free = yield from _without_needed([number for number in some if number in parents])
        rows: Rows = yield (
            "prune_jobs",
            {"numbers": dump(some), "parents": dump(free), "status": str(status), "age": age},
        )
        gone += rows
        deleted = dump([row["seq"] for row in rows])
        yield "prune_attempts", {"numbers": deleted}
        yield "prune_links", {"numbers": deleted}
        yield "prune_job_steps", {"numbers": deleted}
        if time.monotonic() > until:
            break
    yield from note_ended(((pool_id, status) for _ in gone), -1)
    if gone:
        yield "note_ended", {"pool_id": pool_id, "status": f"pruned {status}", "jobs": len(gone)}
    return gone


def _without_needed(parents: Sequence[int]) -> Script[list[int]]:
    """Lock jobs that have children, and return those of which no child may still run: see ``NEED_PARENTS``."""
    if not parents:
        return []
    numbers = {"numbers": dump(parents)}
    yield "lock_prunable", numbers
    kept = {row["parent_seq"] for row in (yield "list_needed_parents", numbers)}
    return [number for number in parents if number not in kept]
