"""Deleting what is old, a little at a time: each step is one short transaction."""

import time
from collections.abc import Sequence
from datetime import timedelta

from drumbeat.core.billing import billed_since
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.core.retention import JOBS, Prunable, Pruned
from drumbeat.store.sql.database import Database, Row, Rows, Script
from drumbeat.store.sql.job_scripts import note_ended
from drumbeat.store.sql.rows import at_us, dump, instant, to_us

_JOBS_LOOKED_AT = 500
_JOBS_AT_ONCE = 50  #: so many may be large, and are deleted before the time is looked at again
_STEP = 0.01  #: seconds after which a step goes no further
_ROWS = {Prunable.SAMPLES: 300, Prunable.LOGS: 500, Prunable.BEATS: 50, Prunable.WORKERS: 200, Prunable.EVENTS: 500}

Course = tuple[PoolId, Prunable, timedelta]


class SqlPruning:
    """Deletes what is old in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._passed: dict[Course, int] = {}  #: jobs up to this number were looked at, by steps that will go on

    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        if what in JOBS:
            return await self._jobs(pool_id, what, older_than)
        now = instant((await self._database.read("now"))[0]["now"])
        values = {"pool_id": pool_id, "age": to_us(older_than), "limit": _ROWS[what], "billed_since": at_us(billed_since(now))}
        rows = await self._database.write(f"prune_{what}", values)
        return Pruned(rows=len(rows), more=bool(rows))

    async def _jobs(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        course = (pool_id, what, older_than)
        values = {"pool_id": pool_id, "status": str(what), "age": to_us(older_than)}
        page = await self._database.read(
            "list_prunable", values | {"after": self._passed.get(course, 0), "limit": _JOBS_LOOKED_AT}
        )
        old = [row["seq"] for row in page if row["is_old"]]
        gone = await self._database.transact(_prune_jobs(pool_id, JobStatus(what), to_us(older_than), old)) if old else []
        if len(gone) < len(old):
            return Pruned(rows=len(gone), more=True)
        more = len(page) == _JOBS_LOOKED_AT and not page[-1]["is_young"]
        if more:
            self._passed[course] = page[-1]["seq"]
        else:
            self._passed.pop(course, None)
        return Pruned(rows=len(gone), more=more)


def _prune_jobs(pool_id: PoolId, status: JobStatus, age: int, numbers: Sequence[int]) -> Script[list[Row]]:
    """Delete jobs by their numbers until the time is over."""
    gone: list[Row] = []
    until = time.monotonic() + _STEP
    for first in range(0, len(numbers), _JOBS_AT_ONCE):
        some = dump(numbers[first : first + _JOBS_AT_ONCE])
        rows: Rows = yield "prune_jobs", {"numbers": some, "status": str(status), "age": age}
        gone += rows
        yield "prune_attempts", {"numbers": dump([row["seq"] for row in rows])}
        if time.monotonic() > until:
            break
    yield from note_ended(((pool_id, status) for _ in gone), -1)
    return gone
