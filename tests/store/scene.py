"""A small scene in a SQL store: one run with a worker in each state, and rows in every table the seeds' views show."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from drumbeat.core.event import NewEvent, Scope, WorkerTarget, start
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool
from drumbeat.core.run import Execution, Phase, Run, RunId, RunStatus, Step, StepType, Template
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.contract.given import heartbeat, joined, moved, sample
from drumbeat.store.interface import RunChange, Store, WorkerChange

RUN = RunId("r1")
SECOND = timedelta(seconds=1)
STALE_AFTER, LOST_AFTER = timedelta(hours=1), timedelta(hours=3)  #: so long that no slow machine changes who is stale
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = {"scenario_name": "smoke", "table_name": "orders", "table_type": "HYBRID", "warehouse": "wh", "warehouse_size": "S"}
STATE = {"find_max": {"step": 2}, "qps": {"integral": 0.5}}
MS = 1_000_000  #: nanoseconds


def us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def when(value: Any) -> datetime:
    """A view's timestamp: text on SQLite, a datetime elsewhere, in UTC where it has no zone."""
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def document(value: Any) -> Any:
    """A view's JSON: text with either driver."""
    return json.loads(value) if isinstance(value, str) else value


class Sql(Protocol):
    """A database reached without the store: what somebody who knows the seeds would do."""

    async def rows(self, query: str) -> Sequence[Mapping[str, Any]]: ...

    async def columns(self, view: str) -> Sequence[str]: ...

    async def insert(self, table: str, **fields: Any) -> None: ...

    async def run(self, statement: str) -> None: ...

    async def close(self) -> None: ...


class SqliteSql:
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=10)
        self._connection.row_factory = sqlite3.Row

    async def rows(self, query: str) -> Sequence[Mapping[str, Any]]:
        return [dict(row) for row in self._connection.execute(query).fetchall()]

    async def columns(self, view: str) -> Sequence[str]:
        return [column[0] for column in self._connection.execute(f"SELECT * FROM {view}").description]

    async def insert(self, table: str, **fields: Any) -> None:
        marks = ", ".join("?" for _ in fields)
        self._connection.execute(f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})", tuple(fields.values()))

    async def run(self, statement: str) -> None:
        self._connection.execute(statement)

    async def close(self) -> None:
        self._connection.close()


class PostgresSql:
    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, url: str) -> "PostgresSql":
        return cls(await asyncpg.connect(url, server_settings={"search_path": "drumbeat"}))

    async def rows(self, query: str) -> Sequence[Mapping[str, Any]]:
        return [dict(row) for row in await self._connection.fetch(query)]

    async def columns(self, view: str) -> Sequence[str]:
        statement = await self._connection.prepare(f"SELECT * FROM {view}")
        return [attribute.name for attribute in statement.get_attributes()]

    async def insert(self, table: str, **fields: Any) -> None:
        marks = ", ".join(f"${n}" for n in range(1, len(fields) + 1))
        await self._connection.execute(f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})", *fields.values())

    async def run(self, statement: str) -> None:
        await self._connection.execute(statement)

    async def close(self) -> None:
        await self._connection.close()


class SnowflakeSql:
    """Through the connector, which blocks; names come in capitals."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, query: str) -> Sequence[Mapping[str, Any]]:
        cursor = self._connection.cursor().execute(query)
        names = [column[0].lower() for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    async def columns(self, view: str) -> Sequence[str]:
        return [column[0].lower() for column in self._connection.cursor().execute(f"SELECT * FROM {view}").description]

    async def insert(self, table: str, **fields: Any) -> None:
        marks = ", ".join("?" for _ in fields)
        statement = f"INSERT INTO {table} ({', '.join(fields)}) SELECT {marks}"
        self._connection.cursor().execute(statement, tuple(fields.values()))

    async def run(self, statement: str) -> None:
        self._connection.cursor().execute(statement)

    async def close(self) -> None:
        self._connection.close()


async def build(store: Store, sql: Sql) -> None:
    """The whole scene."""
    run = Run(run_id=RUN, name="a run", config=CONFIG, template_id="t1", expected_workers=8)
    usual = pool(RUN, PoolKind.BENCH)
    home = replace(usual, thresholds=replace(usual.thresholds, stale_after=STALE_AFTER, lost_after=LOST_AFTER))
    await store.runs.create(run, home)
    await _move_run(store)
    await _add_workers(store, home)
    await _tell(store)
    await _measure(store)
    await _log(store)
    await _add_jobs(sql)
    await _add_results(sql)
    await _add_steps(store)
    await _add_executions(store)
    await _add_template(store)
    await _silence(sql)


async def _move_run(store: Store) -> None:
    run = await store.runs.update(await store.runs.get(RUN), RunChange(status=RunStatus.STARTING, started=True))
    change = RunChange(
        status=RunStatus.RUNNING,
        phase=Phase.MEASUREMENT,
        warmup_started=True,
        warmup_ended=True,
        operations=100,
        errors=3,
        qps=12.5,
        controller_state=STATE,
        custom_metrics={"note": "x"},
    )
    await store.runs.update(run, change)


async def _add_workers(store: Store, home: PoolRow) -> None:
    """One worker in each state, named for it."""
    waiting, draining = (WorkerStatus.WAITING,), (WorkerStatus.WAITING, WorkerStatus.ACTIVE, WorkerStatus.DRAINING)
    await store.workers.add([Worker(pool_id=home.pool_id, worker_id=WorkerId("spawning"), slot=0)])
    await joined(store, home, WorkerId("starting"), 1)
    await moved(store, await joined(store, home, WorkerId("waiting"), 2), *waiting)
    await moved(store, await joined(store, home, WorkerId("active"), 3), *draining[:2])
    await moved(store, await joined(store, home, WorkerId("draining"), 4), *draining)
    await moved(store, await joined(store, home, WorkerId("terminated"), 5), *draining, WorkerStatus.TERMINATED)
    failed = await joined(store, home, WorkerId("error"), 6)
    await store.workers.move(failed, WorkerStatus.ERROR, "it broke", WorkerChange(error="boom", exit_code=4))
    await store.workers.move(await joined(store, home, WorkerId("lost"), 7), WorkerStatus.LOST, "silent")
    unborn = Worker(pool_id=home.pool_id, worker_id=WorkerId("unborn"), slot=0)
    await store.workers.add([unborn])
    await store.workers.move(unborn, WorkerStatus.TERMINATED, "could not be started")


async def _tell(store: Store) -> None:
    group = NewEvent(type="X", payload={"answer": 42, "nothing": None}, scope=Scope.WORKER_GROUP, slot=2)
    await store.events.append(PoolId(RUN), [start(8), group])
    await store.workers.set_targets(PoolId(RUN), {WorkerId("active"): WorkerTarget(connections=5, reason="more", ramp=SECOND)})


async def _measure(store: Store) -> None:
    row = await store.workers.get(PoolId(RUN), WorkerId("active"))
    samples = [
        sample(1, *[MS] * 10, phase=Phase.WARMUP, active=1, target=5, reads=10),
        sample(2, *[2 * MS] * 20, phase=Phase.MEASUREMENT, active=4, target=5, reads=15, writes=5, errors=1, cpu_percent=50.0),
        sample(3, *[3 * MS] * 30, phase=Phase.MEASUREMENT, active=5, target=5, reads=25, writes=5, extra={"k": 1}),
        sample(4, *[4 * MS] * 7, phase=Phase.COOLDOWN, active=0, target=0, reads=7),
    ]
    for taken in samples:
        await store.membership.beat(
            heartbeat(
                row,
                phase=taken.phase,
                active=taken.active,
                operations=50,
                errors=2,
                error="timeout",
                cpu_percent=12.5,
                memory_percent=34.5,
                gpu={"memory_total_mb": 8000, "memory_used_mb": 1000},
                sample=taken,
            )
        )


async def _log(store: Store) -> None:
    failed = NewLog(
        level="ERROR", logger="drumbeat.x", message="it broke", worker_id=WorkerId("error"), details={"exception": "E", "n": 1}
    )
    await store.logs.append(PoolId(RUN), [failed, NewLog(level="INFO", logger="drumbeat.y", message="hello")])


async def _add_jobs(sql: Sql) -> None:
    job = {"pool_id": RUN, "payload": '{"n":1}', "created_at": us(EPOCH)}
    held = {
        "lease_owner": "active",
        "lease_pool": RUN,
        "lease_instance": "i1",
        "lease_epoch": 1,
        "claimed_at": us(EPOCH),
        "attempts": 1,
    }
    done = held | {
        "status": "done",
        "attempts": 2,
        "lease_epoch": 2,
        "result": '{"ok":true}',
        "finished_at": us(EPOCH + 3 * SECOND),
    }
    claimed = held | {"status": "claimed", "claimed_at": us(EPOCH + SECOND)}
    poisoned = {"status": "poisoned", "attempts": 3, "last_error": "bad"}
    for seq, state in enumerate(({}, {}, claimed, done, poisoned), start=1):
        await sql.insert("jobs", seq=seq, given_id=f"j{seq}", **(job | state))
    ended = {"worker_id": "active", "started_at": us(EPOCH), "ended_at": us(EPOCH + SECOND), "outcome": "failed"}
    await sql.insert("job_attempts", seq=4, n=1, **ended)
    slept = {"outcome": "suspended", "ended_at": us(EPOCH + 2 * SECOND)}
    await sql.insert("job_attempts", seq=5, n=1, **(ended | slept))
    await sql.insert("job_attempts", seq=5, n=2, **(ended | slept | {"outcome": "released"}))


async def _add_results(sql: Sql) -> None:
    window = {"started_at": us(EPOCH), "ended_at": us(EPOCH + 10 * SECOND), "created_at": us(EPOCH)}
    counts = {"status": "COMPLETED", "operations": 200, "reads": 150, "writes": 50, "errors": 4, "qps": 20.0, "p95_ms": 9.5}
    for worker_id, kind in (("", ""), ("active", ""), ("active", "INSERT")):
        await sql.insert("results", run_id=RUN, worker_id=worker_id, kind=kind, custom_metrics="{}", **counts, **window)


async def _add_steps(store: Store) -> None:
    window: dict[str, Any] = {"started_at": EPOCH, "ended_at": EPOCH + 10 * SECOND}
    measured: dict[str, Any] = {"operations": 500, "errors": 5, "qps": 90.0, "target_qps": 100.0, "p95_ms": 7.5}
    verdict: dict[str, Any] = {"outcome": "STABLE", "reason": "advanced", "queue_detected": False}
    for kind in StepType:
        await store.steps.save(
            [Step(run_id=RUN, type=kind, n=1, from_target=10, to_target=20, **window, **measured, **verdict)]
        )


async def _add_executions(store: Store) -> None:
    one = Execution(
        run_id=RUN,
        worker_id=WorkerId("active"),
        n=1,
        connection=3,
        kind="POINT_LOOKUP",
        started_at=EPOCH,
        duration_ms=2.5,
        ok=True,
        rows=1,
        query_text="SELECT 1",
    )
    await store.executions.load([one])


async def _add_template(store: Store) -> None:
    await store.templates.create(Template(template_id="t1", name="smoke", config={"a": 1}, tags=("x",)))
    for _ in range(2):
        await store.templates.note_use("t1")


async def _silence(sql: Sql) -> None:
    """Two workers were last heard of a while ago: one is stale by now, one is lost."""
    for worker_id, silent in (("waiting", STALE_AFTER * 2), ("draining", LOST_AFTER * 2)):
        late = silent // timedelta(microseconds=1)
        await sql.run(f"UPDATE workers SET heartbeat_at = heartbeat_at - {late} WHERE worker_id = '{worker_id}'")
