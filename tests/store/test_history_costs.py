"""What a pool costs does not grow with its history: counted in steps and rows, never in seconds.

On SQLite the virtual machine's steps are counted, on PostgreSQL the rows that the plans of every statement touch.
"""

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from drumbeat.bench.control.orchestrator import UNDER_WAY
from drumbeat.core.beat import NewBeat
from drumbeat.core.clock import SystemClock
from drumbeat.core.job import AttemptOutcome, IfFailed, JobId, JobOutcome, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.retention import Prunable
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.fleet.observe import observe as observe_fleet
from drumbeat.fleet.service import FleetCost, FleetService
from drumbeat.pool.observe import observe
from drumbeat.pool.service import Pool
from drumbeat.runtime.beat import encode, encode_action
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store import Store, open_store
from drumbeat.store.contract.given import heartbeat
from drumbeat.store.interface import ClaimRequest, JoinRequest
from drumbeat.store.sql import postgres, sqlite
from drumbeat.store.sql.queries import Query

POOL = PoolId("p")
FLEET = PoolId("f")
HOUR_US = 3_600_000_000
ME = Holder(pool_id=POOL, worker_id=WorkerId("me"))
LEASE = timedelta(minutes=1)
FINISHED, ENDED = 20_000, 20_000
MOST_ROWS = 150  #: rows that one operation may touch, with a handful of jobs and workers in the pool

Operation = Callable[[Store], Awaitable[object]]


async def push(store: Store) -> object:
    return await store.queue.push(POOL, [NewJob(payload={}, type="x")])


async def push_unique(store: Store) -> object:
    return await store.queue.push(POOL, [NewJob(payload={}, unique_key="k", delay=LEASE)])


async def claim(store: Store) -> object:
    return await store.queue.claim(ClaimRequest(pool_id=POOL, holder=ME, lease=LEASE, limit=2))


async def settle(store: Store) -> object:
    held = await store.jobs.list(POOL, statuses=[JobStatus.CLAIMED], holder=ME)
    verdicts = [JobOutcome(token=job.token, outcome=outcome) for job, outcome in zip(held, AttemptOutcome, strict=False)]
    return await store.queue.settle(ME, verdicts, ClaimRequest(pool_id=POOL, holder=ME, lease=LEASE))


async def hold(store: Store) -> object:
    held = await store.jobs.list(POOL, statuses=[JobStatus.CLAIMED], holder=ME)
    tokens = [job.token for job in held]
    await store.queue.begin(ME, tokens)
    await store.jobs.to_stop(ME)
    await store.jobs.progress(ME, tokens[0], 0.5)
    return await store.queue.renew(ME, tokens, LEASE)


async def expire(store: Store) -> object:
    return await store.queue.expire()


async def release(store: Store) -> object:
    return await store.queue.release(ME, "lost")


async def status(store: Store) -> object:
    return await desk(store).status()


async def explain(store: Store) -> object:
    [job] = await store.jobs.list(POOL, statuses=[JobStatus.PENDING], limit=1)
    return await desk(store).explain(job.job_id)


async def check(store: Store) -> object:
    return await observe(store, FakeSpawner(SystemClock()), POOL, timedelta())


async def listing(store: Store) -> object:
    return [await store.jobs.list(POOL, statuses=[each], limit=5) for each in JobStatus] + [
        await store.jobs.list(POOL, limit=5)
    ]


async def fleet_beat(store: Store) -> object:
    """A beat of a fleet whose workers have a price, without its actions."""
    seen = await observe_fleet(store, FakeSpawner(SystemClock()), FLEET, timedelta())
    return await store.beats.append(FLEET, NewBeat(owner="a", epoch=1, view=encode(seen), summary={"state": {}}))


async def fleet_costs(store: Store) -> FleetCost:
    fleet = FleetService(store, FLEET, encode_action)
    return await fleet.spent_by(await fleet.last_decision())


async def runs_under_way(store: Store) -> object:
    return await store.runs.list(statuses=UNDER_WAY, limit=1000)


async def runs_of_template(store: Store) -> object:
    return await store.runs.list(template_id="none", limit=20)


async def requeue(store: Store) -> object:
    return await desk(store).requeue()


async def delete_another_pool(store: Store) -> object:
    """Delete a pool in which a few jobs are left, one of them with a child."""
    small = (await store.pools.create(pool("small", PoolKind.JOBS))).pool_id
    parent = JobId(f"{uuid4()}")
    await store.queue.push(small, [NewJob(payload={}, job_id=parent), NewJob(payload={}, after=(parent,))])
    seen = await store.jobs.child_elsewhere(small)
    await store.pools.delete(small)
    return seen


async def first_heartbeat(store: Store) -> object:
    """A worker joins and reads the instructions for it."""
    name = WorkerId(f"{uuid4()}")
    await store.membership.join(JoinRequest(pool_id=POOL, worker_id=name, slot=1, instance="i", host="h", pid=2))
    return await store.membership.beat(heartbeat(await store.workers.get(POOL, name)))


async def recent_workers(store: Store) -> object:
    return await store.workers.list(POOL, gone_since=await store.now() - LEASE)


async def flow(store: Store) -> object:
    """A chain of three jobs: the first fails, so the others are skipped; the first is tried again and cancelled."""
    first, second, third = (JobId(f"{uuid4()}") for _ in range(3))
    await store.queue.push(POOL, [NewJob(payload={}, job_id=first, type="flow", max_attempts=1, workflow_id=first)])
    await store.queue.push(
        POOL, [NewJob(payload={}, job_id=second, after=(first,), if_failed=IfFailed.SKIP, workflow_id=first)]
    )
    await store.queue.push(
        POOL, [NewJob(payload={}, job_id=third, after=(second,), if_failed=IfFailed.SKIP, workflow_id=first)]
    )
    [job] = await store.queue.claim(ClaimRequest(pool_id=POOL, holder=ME, lease=LEASE, types=("flow",)))
    await store.queue.settle(ME, [JobOutcome(token=job.token, outcome=AttemptOutcome.FAILED)])
    seen = [await store.jobs.children(first), await store.jobs.parents(second), await store.jobs.of_workflow(first)]
    await store.jobs.workflow_counts(first)
    await store.jobs.requeue(POOL, [first])
    await store.jobs.cancel([first])
    await store.upkeep.prune_some(POOL, Prunable.CANCELLED, timedelta())
    return seen


OPERATIONS: Sequence[Operation] = (
    flow,
    push,
    push_unique,
    claim,
    hold,
    settle,
    expire,
    status,
    explain,
    check,
    listing,
    requeue,
    delete_another_pool,
    recent_workers,
    fleet_beat,
    fleet_costs,
    runs_under_way,
    runs_of_template,
    first_heartbeat,
    release,
)


def desk(store: Store) -> Pool:
    return Pool(store, SystemClock(), POOL, "me")


async def begin_fleet(store: Store) -> None:
    """A fleet whose workers have a price, and its first beat, which reads all its workers."""
    policy = FleetPolicy(policy=PolicyName.LAG_AWARE, price_per_hour=1.0)
    await store.pools.create(pool(FLEET, PoolKind.JOBS, **policy.to_json()))
    await fleet_beat(store)


async def begin(store: Store) -> None:
    """A pool with a worker, some jobs that wait, and one of each state a job can end in."""
    await store.pools.create(pool(POOL, PoolKind.JOBS))
    await store.membership.join(JoinRequest(pool_id=POOL, worker_id=ME.worker_id, slot=0, instance="i", host="h", pid=1))
    await store.queue.push(POOL, [NewJob(payload={}, priority=n % 2, group="g", max_attempts=1) for n in range(6)])
    jobs = await store.queue.claim(ClaimRequest(pool_id=POOL, holder=ME, lease=LEASE, limit=3))
    said = (AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.CANCELLED)
    await store.queue.settle(ME, [JobOutcome(token=job.token, outcome=each) for job, each in zip(jobs, said, strict=True)])


JOB = "pool_id, type, payload, status, lease_owner, lease_epoch, created_at, claimed_at, finished_at"
WORKER = "pool_id, worker_id, slot, status, capabilities, created_at, started_at, ended_at, reaped_at, operations, meta"
EVENT = "pool_id, sequence_id, type, scope, worker_id, payload, created_at"
FILL = (
    f"INSERT INTO jobs ({JOB}) SELECT 'p', 'x', '{{}}', 'done', 'w', 1, n, n, n FROM numbers WHERE n <= {FINISHED}",
    f"INSERT INTO workers ({WORKER}) SELECT 'p', 'p-worker-' || n, n, 'terminated', '[]', n, n, n, n, 1, '{{}}' "
    f"FROM numbers WHERE n <= {ENDED}",
    f"UPDATE pools SET next_event = next_event + {2 * ENDED} WHERE pool_id = 'p'",
    f"INSERT INTO events ({EVENT}) SELECT 'p', next_event - 2 * n, 'WORKER_MOVED', 'RUN', NULL, '{{}}', created_at "
    f"FROM numbers, pools WHERE pool_id = 'p' AND n <= {ENDED}",
    f"INSERT INTO events ({EVENT}) SELECT 'p', next_event - 2 * n + 1, 'STOP', 'WORKER', 'p-worker-' || n, '{{}}', created_at "
    f"FROM numbers, pools WHERE pool_id = 'p' AND n <= {ENDED}",
    "INSERT INTO job_links (child_seq, parent_seq) SELECT seq + 1, seq FROM jobs WHERE lease_owner = 'w'",
    f"INSERT INTO workers ({WORKER}) SELECT 'f', 'worker-' || n, n, 'terminated', '[]', created_at - {2 * HOUR_US}, "
    f"created_at - {2 * HOUR_US}, created_at - {2 * HOUR_US}, created_at - {2 * HOUR_US}, 1, '{{}}' "
    f"FROM numbers, pools WHERE pool_id = 'f' AND n <= {ENDED}",
    "DELETE FROM beats WHERE pool_id = 'f'",
    "INSERT INTO runs (run_id, name, config, status, controller_state, custom_metrics, created_at, updated_at) "
    f"SELECT 'run-' || n, 'x', '{{}}', 'COMPLETED', '{{}}', '{{}}', n, n FROM numbers WHERE n <= {FINISHED}",
)


# SQLite


@asynccontextmanager
async def counting_steps(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[int]]:
    """Hundreds of steps that SQLite makes for stores opened in here."""
    steps, connect = [0], sqlite.SqliteDatabase._connect

    def count() -> int:
        steps[0] += 1
        return 0

    def connected(self: sqlite.SqliteDatabase) -> sqlite3.Connection:
        connection = connect(self)
        connection.set_progress_handler(count, 100)
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(sqlite.SqliteDatabase, "_connect", connected)
        yield steps


async def steps_of(store: Store, steps: list[int]) -> dict[str, int]:
    found = {}
    for operation in OPERATIONS:
        steps[0] = 0
        await operation(store)
        found[operation.__name__] = steps[0]
    return found


def fill_file(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TEMP TABLE numbers AS {_NUMBERS}")
        for statement in FILL:
            connection.execute(statement)
    connection.close()


_NUMBERS = f"WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < {FINISHED}) SELECT n FROM t"


async def test_sqlite_makes_no_more_steps_with_a_long_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "drumbeat.db"
    async with counting_steps(monkeypatch) as steps, open_store(f"sqlite:///{path}?synchronous=normal", create=True) as store:
        await begin_fleet(store)
        await begin(store)
        empty = await steps_of(store, steps)
        fill_file(path)
        await fleet_beat(store)  # the first one adds up the month
        full = await steps_of(store, steps)
        spent = (await fleet_costs(store)).spent
        with sqlite3.connect(path) as connection:
            connection.execute("ANALYZE")
        connection.close()
    async with counting_steps(monkeypatch) as steps, open_store(f"sqlite:///{path}") as store:
        analysed = await steps_of(store, steps)

    assert spent.month == pytest.approx(ENDED / 3600)  # a second each
    for found in (full, analysed):
        assert {name: many for name, many in found.items() if many > 3 * empty[name] + 20} == {}, (empty, found)


async def test_sqlite_passes_jobs_that_are_not_old_yet_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "drumbeat.db"
    async with counting_steps(monkeypatch) as steps, open_store(f"sqlite:///{path}?synchronous=normal", create=True) as store:
        await begin(store)
        fill_file(path)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE jobs SET finished_at = CAST(unixepoch() AS INTEGER) * 1000000 WHERE status = 'done'")
        connection.close()
        pages: list[int] = []
        while len(pages) <= FINISHED / 500:
            steps[0] = 0
            step = await store.upkeep.prune_some(POOL, Prunable.DONE, timedelta(days=1))
            pages.append(steps[0])
            assert (step.rows, step.more) == (0, len(pages) <= FINISHED / 500)

    assert max(pages) < 2 * pages[0]


# PostgreSQL


@asynccontextmanager
async def recording(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[tuple[Query, Mapping[str, Any]]]]:
    """Every query that is run in here, with its values."""
    asked: list[tuple[Query, Mapping[str, Any]]] = []
    write, run = postgres.PostgresDatabase.write, postgres._run

    async def written(self: postgres.PostgresDatabase, query: str, values: Mapping[str, Any]) -> Any:
        asked.append((self._queries[query], values))
        return await write(self, query, values)

    async def ran(connection: Any, query: Query, values: Mapping[str, Any]) -> Any:
        asked.append((query, values))
        return await run(connection, query, values)

    with monkeypatch.context() as patched:
        patched.setattr(postgres.PostgresDatabase, "write", written)
        patched.setattr(postgres, "_run", ran)
        yield asked


async def plans(
    connection: "asyncpg.Connection[Any]", asked: Sequence[tuple[Query, Mapping[str, Any]]]
) -> dict[str, list[Any]]:
    """The nodes of every query's plan, made for any values as the store has it, with the rows that were touched."""
    found: dict[str, list[Any]] = {}
    for query, values in {query.name: (query, values) for query, values in asked}.values():
        for statement in query.statements:
            change = connection.transaction()
            await change.start()
            given = ", ".join(literal(values[name]) for name in statement.parameters)
            with suppress(asyncpg.UniqueViolationError):  # what is there already cannot be added again
                await connection.execute(f"PREPARE asked AS {statement.text}")
                call = f"EXECUTE asked ({given})" if given else "EXECUTE asked"
                text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {call}")
                found.setdefault(query.name, []).extend(nodes(json.loads(text)[0]["Plan"]))
            await change.rollback()
            await connection.execute("DEALLOCATE ALL")
    return found


def literal(value: Any) -> str:
    """A value as SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        return literal("{" + ",".join("NULL" if each is None else json.dumps(str(each)) for each in value) + "}")
    return str(value) if isinstance(value, bool | int | float) else "'" + str(value).replace("'", "''") + "'"


def nodes(plan: Any) -> list[Any]:
    return [plan, *(node for below in plan.get("Plans", ()) for node in nodes(below))]


def rows_of(found: Sequence[Any]) -> float:
    """Rows of tables that were looked at, also those that did not fit."""
    looked = [node for node in found if "Relation Name" in node]
    return sum(float((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]) for node in looked)


def walks(found: Sequence[Any]) -> list[Any]:
    """Plans that would read a table from one end: by no index, or by all numbers."""
    ours = [node for node in found if node.get("Relation Name") in ("jobs", "workers") and "Scan" in node["Node Type"]]
    return [
        (node["Node Type"], node.get("Index Name"), node.get("Index Cond"))
        for node in ours
        if node["Node Type"] == "Seq Scan"
        or (node.get("Index Name") == "jobs_pkey" and "seq = " not in node.get("Index Cond", ""))
    ]


async def test_postgresql_touches_no_more_rows_with_a_long_history(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**postgres._PLANS, "search_path": "drumbeat"}
    connection = await asyncpg.connect(postgres_url, server_settings=settings, statement_cache_size=0)
    async with open_store(postgres_url, create=True) as store:
        await begin_fleet(store)
        async with recording(monkeypatch) as asked:
            await begin(store)
            for operation in OPERATIONS:
                await operation(store)
        empty = await plans(connection, asked)
        await connection.execute(f"CREATE TEMP TABLE numbers AS SELECT generate_series(1, {FINISHED}) AS n")
        for statement in FILL:
            await connection.execute(statement)
        full = await plans(connection, asked)
        await connection.execute("ANALYZE")
        analysed = await plans(connection, asked)
        await connection.execute("INSERT INTO job_links SELECT n, -1 - n % 3 FROM generate_series(10000000, 10300000) AS n")
        await connection.execute("ANALYZE")
        few_parents = await plans(connection, asked)  # of three jobs with 100,000 children each
    await connection.close()

    assert {"list_jobs", "count_queue", "any_expired", "list_unreaped_workers", "settle_and_claim"} <= empty.keys()
    assert {"worker_beat", "find_numbers", "list_parent_states", "list_children", "list_needed_parents"} <= empty.keys()
    assert {"delete_pool", "delete_pool_parents", "find_child_elsewhere", "find_unfinished_child"} <= empty.keys()
    assert {name: walks(found) for name, found in empty.items() if walks(found)} == {}
    for plan in (full, analysed, few_parents):
        assert {name: (rows_of(found), walks(found)) for name, found in plan.items() if rows_of(found) > MOST_ROWS} == {}
