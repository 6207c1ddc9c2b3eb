"""Letting time pass for a SQL store: every timestamp in it is moved back, which to the store is the same as waiting."""

from collections.abc import Iterator
from datetime import timedelta

import asyncpg

from drumbeat.store.contract import Elapse

_TIMES = {
    "pools": ("paused_until", "created_at"),
    "workers": ("heartbeat_at", "created_at", "started_at", "ready_at", "drain_deadline", "ended_at", "reaped_at"),
    "events": ("created_at",),
    "leases": ("expires_at",),
    "beats": ("at",),
    "samples": ("at",),
    "runs": ("created_at", "updated_at", "started_at", "warmup_started_at", "warmup_ended_at", "ended_at"),
    "logs": ("at",),
    "jobs": ("lease_until", "not_before", "created_at", "claimed_at", "begun_at", "finished_at"),
    "job_attempts": ("started_at", "ended_at"),
    "group_claims": ("at", "until"),
    "job_steps": ("started_at", "finished_at", "until"),
    "templates": ("last_used_at", "created_at", "updated_at"),
    "connections": ("created_at", "updated_at"),
    "answers": ("expires_at", "created_at"),
    "notes": ("updated_at",),
}


def shift_statements(passed: timedelta, schema: str = "") -> Iterator[str]:
    """The statements that let this much time pass."""
    microseconds = passed // timedelta(microseconds=1)
    for table, columns in _TIMES.items():
        moved = ", ".join(f"{column} = {column} - {microseconds}" for column in columns)
        yield f"UPDATE {schema}{table} SET {moved}"


def elapse_through(url: str) -> Elapse:
    async def pass_time(passed: timedelta) -> None:
        connection = await asyncpg.connect(url)
        for statement in shift_statements(passed, schema="drumbeat."):
            await connection.execute(statement)
        await connection.close()

    return pass_time
