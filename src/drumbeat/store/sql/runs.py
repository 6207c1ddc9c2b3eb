"""SQL table ``runs``: benchmark runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from drumbeat.core.errors import AlreadyExists, NotFound, Refused, StaleWrite
from drumbeat.core.event import NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.run import RUN_ENDED, Run, RunId, RunStatus, check_run_move
from drumbeat.store.interface import RunChange
from drumbeat.store.sql.database import Database, Script, check_fence
from drumbeat.store.sql.events import append_events
from drumbeat.store.sql.pools import create_pool, delete_pool
from drumbeat.store.sql.rows import at_us, dump, like_pattern, run_of

_AT_REST = RUN_ENDED | {RunStatus.PREPARED}


class SqlRuns:
    """Creates, lists, updates and deletes benchmark runs. Each run has a pool with the same id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, run: Run, pool: PoolRow) -> Run:
        return await self._database.transact(_create(run, pool))

    async def get(self, run_id: RunId) -> Run:
        rows = await self._database.read("find_run", {"run_id": run_id})
        if not rows:
            raise no_run(run_id)
        return run_of(rows[0])

    async def list(
        self,
        *,
        statuses: Sequence[RunStatus] = (),
        search: str | None = None,
        template_id: str | None = None,
        load_mode: str | None = None,
        scaling_mode: str | None = None,
        config_hash: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> Sequence[Run]:
        filters = {
            "statuses": f",{','.join(statuses)}," if statuses else "",
            "search": like_pattern(search),
            "template_id": template_id,
            "load_mode": load_mode,
            "scaling_mode": scaling_mode,
            "config_hash": config_hash,
            "since": at_us(since),
            "until": at_us(until),
        }
        query = _list_query(statuses, template_id)
        return [run_of(row) for row in await self._database.read(query, filters | {"offset": offset, "limit": limit})]

    async def update(self, run: Run, change: RunChange, events: Sequence[NewEvent] = (), *, fence: Fence | None = None) -> Run:
        return await self._database.transact(_update(run, change, events, fence))

    async def delete(self, run_id: RunId) -> None:
        await self._database.transact(_delete(run_id))


def _list_query(statuses: Sequence[RunStatus], template_id: str | None) -> str:
    """Return the name of the query that reads the fewest rows for these filters."""
    if statuses and RUN_ENDED.isdisjoint(statuses):
        return "list_runs_under_way"
    return "list_runs" if template_id is None else "list_runs_of_template"


def no_run(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id!r} in this store; see: drumbeat runs list")


def _create(run: Run, pool: PoolRow) -> Script[Run]:
    if pool.pool_id != PoolId(run.run_id):
        raise ValueError(f"run {run.run_id!r}: expected a pool with the same id, got pool {pool.pool_id!r}")
    rows = yield (
        "add_run",
        {
            "run_id": run.run_id,
            "name": run.name,
            "template_id": run.template_id,
            "config": dump(dict(run.config)),
            "status": run.status,
            "phase": run.phase,
            "expected_workers": run.expected_workers,
            "controller_state": dump(dict(run.controller_state)),
            "custom_metrics": dump(dict(run.custom_metrics)),
        },
    )
    if not rows:
        raise AlreadyExists(f"run {run.run_id!r} already exists; choose another id")
    yield from create_pool(pool)
    return run_of(rows[0])


def _update(run: Run, change: RunChange, events: Sequence[NewEvent], fence: Fence | None) -> Script[Run]:
    yield from check_fence(fence)
    rows = yield "lock_run", {"run_id": run.run_id}
    if not rows:
        raise no_run(run.run_id)
    before = RunStatus(rows[0]["status"])
    if before is not run.status:
        raise StaleWrite(f"run {run.run_id}: expected status {run.status}, found {before}; read the run again and decide again")
    if change.status is not None and change.status is not before:
        check_run_move(run.run_id, before, change.status)
    updated = yield "update_run", _change_values(run.run_id, change)
    yield from append_events(PoolId(run.run_id), events)
    return run_of(updated[0])


def _delete(run_id: RunId) -> Script[None]:
    rows = yield "lock_run", {"run_id": run_id}
    if not rows:
        return
    status = RunStatus(rows[0]["status"])
    if status not in _AT_REST:
        raise Refused(f"run {run_id} is {status}; stop it and let it end before deleting it")
    yield from delete_pool(PoolId(run_id))


def _change_values(run_id: RunId, change: RunChange) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "status": change.status,
        "phase": change.phase,
        "completion_reason": change.completion_reason,
        "expected_workers": change.expected_workers,
        "operations": change.operations,
        "errors": change.errors,
        "qps": change.qps,
        "controller_state": _json(change.controller_state),
        "custom_metrics": _json(change.custom_metrics),
        "started": int(change.started),
        "warmup_started": int(change.warmup_started),
        "warmup_ended": int(change.warmup_ended),
        "ended": int(change.ended),
    }


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else dump(dict(value))
