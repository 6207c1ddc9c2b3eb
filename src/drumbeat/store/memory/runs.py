"""Benchmark runs in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from drumbeat.core.errors import AlreadyExists, Refused, StaleWrite
from drumbeat.core.event import NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.run import RUN_ENDED, Run, RunId, RunStatus, check_run_move
from drumbeat.store.interface import RunChange
from drumbeat.store.memory.pools import drop_pool, make_pool
from drumbeat.store.memory.state import MemoryTable, operation, plain

_AT_REST = RUN_ENDED | {RunStatus.PREPARED}


class MemoryRuns(MemoryTable):
    @operation
    def create(self, run: Run, pool: PoolRow) -> Run:
        if PoolId(run.run_id) in self.state.pools:
            raise AlreadyExists(f"run {run.run_id!r}, or a pool with that id, already exists; choose another id")
        now = self.state.now()
        made = replace(
            run,
            config=plain(run.config),
            controller_state=plain(run.controller_state),
            custom_metrics=plain(run.custom_metrics),
            created_at=now,
            updated_at=now,
        )
        make_pool(self.state, replace(pool, pool_id=PoolId(run.run_id))).run = made
        return made

    @operation
    def get(self, run_id: RunId) -> Run:
        return self.state.run_rows(run_id)[1]

    @operation
    def list(
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
        runs = [rows.run for rows in reversed(self.state.pools.values()) if rows.run]
        chosen = [
            run
            for run in runs
            if (not statuses or run.status in statuses)
            and (search or "").lower() in run.name.lower()
            and template_id in (None, run.template_id)
            and load_mode in (None, run.config.get("load_mode"))
            and scaling_mode in (None, _scaling_mode(run))
            and config_hash in (None, run.config.get("config_hash"))
            and _made_within(run, since, until)
        ]
        return chosen[offset : offset + limit]

    @operation
    def update(self, run: Run, change: RunChange, events: Sequence[NewEvent] = (), *, fence: Fence | None = None) -> Run:
        self.state.admit(fence)
        rows, row = self.state.run_rows(run.run_id)
        if row.status is not run.status:
            raise StaleWrite(f"run {run.run_id} changed: expected {run.status}, got {row.status}; read it and decide again")
        if change.status is not None and change.status is not row.status:
            check_run_move(run.run_id, row.status, change.status)
        after = _changed(row, change, self.state.now())
        self.state.append_events(rows, events)
        rows.run = after
        return after

    @operation
    def delete(self, run_id: RunId) -> None:
        rows = self.state.pools.get(PoolId(run_id))
        if rows is None or rows.run is None:
            return
        if rows.run.status not in _AT_REST:
            raise Refused(f"run {run_id} is {rows.run.status}; stop it and let it end before deleting it")
        drop_pool(self.state, PoolId(run_id))


def _scaling_mode(run: Run) -> object:
    scaling = run.config.get("scaling")
    return scaling.get("mode") if isinstance(scaling, Mapping) else None


def _made_within(run: Run, since: datetime | None, until: datetime | None) -> bool:
    made = run.created_at
    return made is not None and (since is None or made >= since) and (until is None or made < until)


def _changed(row: Run, change: RunChange, now: datetime) -> Run:
    return replace(
        row,
        status=row.status if change.status is None else change.status,
        phase=row.phase if change.phase is None else change.phase,
        completion_reason=row.completion_reason if change.completion_reason is None else change.completion_reason,
        expected_workers=row.expected_workers if change.expected_workers is None else change.expected_workers,
        operations=row.operations if change.operations is None else change.operations,
        errors=row.errors if change.errors is None else change.errors,
        qps=row.qps if change.qps is None else change.qps,
        controller_state=row.controller_state if change.controller_state is None else plain(change.controller_state),
        custom_metrics=row.custom_metrics if change.custom_metrics is None else plain(change.custom_metrics),
        updated_at=now,
        started_at=_stamped(row.started_at, now, requested=change.started),
        warmup_started_at=_stamped(row.warmup_started_at, now, requested=change.warmup_started),
        warmup_ended_at=_stamped(row.warmup_ended_at, now, requested=change.warmup_ended),
        ended_at=_stamped(row.ended_at, now, requested=change.ended),
    )


def _stamped(stamp: datetime | None, now: datetime, *, requested: bool) -> datetime | None:
    return now if requested and stamp is None else stamp
