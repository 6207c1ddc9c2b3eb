"""Stores with something in every table, and ways to look at all of a store without the code that copies it."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.core.answer import RequestAnswer
from drumbeat.core.beat import NewBeat
from drumbeat.core.job import AttemptOutcome, RateLimit
from drumbeat.core.job_step import JobStep, NewStep, StepKind
from drumbeat.core.lease import STORE_ID
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool
from drumbeat.core.run import ExecutionFile
from drumbeat.core.worker import WorkerId
from drumbeat.store import Store, open_store
from drumbeat.store.contract.connections import connection
from drumbeat.store.contract.given import AWKWARD, DAY, MINUTE, W1, W2, joined, taken
from drumbeat.store.contract.given_jobs import claimed, holder, pushed, verdict
from store.scene import RUN, PostgresSql, Sql, SqliteSql, build

HOUR = timedelta(hours=1)
AWKWARD_NUMBERS = {"tiny": 1e-7, "huge": 1.5e300, "round": 1e16, "whole": 1.0, "zero": -0.0, "long": 2**60 + 1}
OWN_TABLES = {"schema_version", "unfinished_copy"}  #: not rows of the store

Dump = dict[str, list[dict[str, Any]]]


class Silent:
    """Hears what a copy says; ``on_progress`` may interrupt it."""

    def __init__(self, on_progress: Any = None) -> None:
        self.lines: list[str] = []
        self._on_progress = on_progress

    def say(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, verb: str, rows: int) -> None:
        if self._on_progress is not None:
            self._on_progress(verb, rows)


async def sql_of(url: str) -> Sql:
    if url.startswith("sqlite"):
        return SqliteSql(Path(url.removeprefix("sqlite:///")))
    return await PostgresSql.connect(url.partition("?")[0])


async def furnished(url: str) -> str:
    """A store with rows in every table: JSON, bytes, times and numbers as awkward as they may be."""
    async with open_store(url, create=True) as store:
        sql = await sql_of(url)
        await build(store, sql)
        if not url.startswith("sqlite"):  # the scene numbers its jobs itself
            await sql.run("ALTER TABLE jobs ALTER COLUMN seq RESTART WITH 1001")
        await sql.close()
        for name in ("a", "b c", "ä"):
            await _furnish_pool(store, await store.pools.create(pool(name, PoolKind.JOBS, note={**AWKWARD, **AWKWARD_NUMBERS})))
        await _furnish_rest(store)
    return url


async def _furnish_pool(store: Store, home: PoolRow) -> None:
    """Workers of the same names in each pool; jobs that are done, failed, poisoned, limited, delayed, held and waiting."""
    for slot, name in enumerate((W1, W2)):
        await joined(store, home, name, slot)
    await taken(store, home.pool_id, "controller", HOUR)
    await taken(store, f"alone/{home.pool_id}", "worker", HOUR)
    await pushed(store, home, *({"n": n, "odd": [AWKWARD, 1e5, 1.0]} for n in range(8)))
    for outcome in (AttemptOutcome.DONE, AttemptOutcome.DONE, AttemptOutcome.FAILED):
        job = await claimed(store, home)
        await store.queue.settle(
            holder(home), [verdict(job, outcome, result={"ü": 1}) if outcome == "done" else verdict(job, outcome)]
        )
    limits: dict[str, Any] = {"group": "g", "group_limit": 2, "group_rate": RateLimit(count=9, per=HOUR)}
    await pushed(store, home, "limited", "too", priority=9, **limits)
    held = await claimed(store, home, lease=HOUR)
    now = await store.now()
    step = JobStep(position=1, name="schön", kind=StepKind.STEP, result=dict(AWKWARD), started_at=now, until=now)
    await store.job_steps.record(holder(home), [NewStep(token=held.token, step=step)])
    await store.job_steps.send(held.job_id, "approval", AWKWARD_NUMBERS)
    await pushed(store, home, "later", delay=DAY)
    keyed = await pushed(store, home, "keyed", job_id=f"chosen-{home.pool_id}", unique_key="k")
    await pushed(store, home, "child", after=tuple(keyed), workflow_id="flow")


async def _furnish_rest(store: Store) -> None:
    await store.connections.create(connection(name="db", description="Grüße 🥁"))
    await store.answers.hold("key", "f", MINUTE)
    await store.answers.give("key", RequestAnswer(status=201, body="{}", location="/x"), DAY)
    await store.notes.put("prices", {**AWKWARD, **AWKWARD_NUMBERS})
    await taken(store, "webhook/t/1", "server", DAY)
    await store.results.add_file(ExecutionFile(run_id=RUN, worker_id=WorkerId("active"), path="/x", host="h", rows=1, size=2))
    await store.beats.append(PoolId(RUN), NewBeat(owner="o", epoch=1, view=dict(AWKWARD), why_not="nothing to do"))


async def dump(url: str) -> Dump:
    """Every row of every table of the database, JSON as the value it is, the rows of a table always in the same order."""
    sql = await sql_of(url)
    names = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        if url.startswith("sqlite")
        else "SELECT CAST(tablename AS text) AS name FROM pg_tables WHERE schemaname = 'drumbeat'"
    )
    found: Dump = {}
    for name in sorted({row["name"] for row in await sql.rows(names)} - OWN_TABLES):
        rows = [{column: _value(value) for column, value in row.items()} for row in await sql.rows(f"SELECT * FROM {name}")]
        found[name] = sorted(rows, key=_place)
    await sql.close()
    return found


def _value(value: Any) -> Any:
    return json.loads(value, parse_int=_integer) if isinstance(value, str) and value[:1] in ("{", "[", '"') else value


def _integer(text: str) -> int | float:
    """PostgreSQL writes 1e300 with all its zeros."""
    return float(text) if len(text) > 40 else int(text)


def _place(row: dict[str, Any]) -> list[str]:
    return [repr(value) for value in row.values() if not isinstance(value, dict | list)]


def as_copied(found: Dump) -> Dump:
    """What a copy makes of these rows: nothing is leased."""
    pools = {row["pool_id"] for row in found["pools"]}
    for row in found["leases"]:
        if row["name"].removeprefix("alone/") in pools:
            row["released"] = 1
        if row["name"] == STORE_ID:
            row |= {"released": 1, "expires_at": 0}
    for row in found["jobs"]:
        if row["status"] == "claimed":
            row |= {"lease_until": row["claimed_at"], "lease_extended": 1}
    return {name: sorted(rows, key=_place) for name, rows in found.items()}
