"""Fills a pool with a long history by bulk statements: finished jobs, half of them old, ended workers and their events."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from drumbeat.core.pool import PoolId
from drumbeat.store import Store
from drumbeat.store.redis.store import RedisStore
from drumbeat.store.sql.sqlite import DIALECT

POOL = PoolId("papers")
_DAY_US = 86_400_000_000
_EVENTS = 4  #: of each ended worker: three changes of its status, and the STOP that ended it


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much history there is, and how often each operation is measured."""

    jobs: int
    workers: int
    rounds: int
    prune_for: float | None = None  #: seconds; None: until all old jobs are deleted


_JOB = "seq, pool_id, type, payload, status, result, lease_owner, lease_pool, lease_epoch, attempts, "
_JOB += "created_at, claimed_at, finished_at"
_WORKER = "pool_id, worker_id, slot, status, capabilities, created_at, started_at, ended_at, reaped_at, operations, "
_WORKER += "heartbeat_count, meta"


def history(sizes: Sizes, numbers: str, now: str) -> Iterator[str]:
    """Yield the statements that fill a SQL store: ``numbers`` is a table of integers, ``now`` the time in microseconds."""
    ended = f"({now}) - CASE WHEN n <= {sizes.jobs // 2} THEN 30 ELSE 1 END * {_DAY_US} + n"
    worker_ended = f"({now}) - {_DAY_US} + n"
    yield (
        f"INSERT INTO jobs ({_JOB}) SELECT n, '{POOL}', 'crawl', '{{\"url\": \"https://example.org/some/page\"}}', 'done', "
        f"'{{}}', 'papers-worker-1', '{POOL}', 1, 1, {ended}, {ended}, {ended} FROM {numbers} WHERE n <= {sizes.jobs}"
    )
    yield f"INSERT INTO job_counts (pool_id, status, part, jobs) VALUES ('{POOL}', 'done', 0, {sizes.jobs})"
    yield (
        f"INSERT INTO workers ({_WORKER}) SELECT '{POOL}', '{POOL}-worker-' || n, n, 'terminated', '[]', {worker_ended}, "
        f"{worker_ended}, {worker_ended}, {worker_ended}, 5, 5, '{{}}' FROM {numbers} WHERE n <= {sizes.workers}"
    )
    yield f"UPDATE pools SET last_worker = {sizes.workers}, next_event = next_event + {_EVENTS * sizes.workers}"
    for n in range(_EVENTS):
        kind = "'STOP', 'WORKER'" if n == 0 else "'WORKER_MOVED', 'RUN'"
        yield (
            f"INSERT INTO events (pool_id, sequence_id, type, scope, worker_id, payload, created_at) "
            f"SELECT '{POOL}', next_event - {_EVENTS} * n + {n}, {kind}, '{POOL}-worker-' || n, '{{\"reason\": \"idle\"}}', "
            f"{worker_ended} FROM {numbers}, pools WHERE n <= {sizes.workers}"
        )


def fill_sqlite(path: Path, sizes: Sizes) -> None:
    now = DIALECT.words["now"]
    most = max(sizes.jobs, sizes.workers)
    many = f"WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < {most}) SELECT n FROM t"
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA synchronous = OFF")
        file.execute(f"CREATE TEMP TABLE numbers AS {many}")
        file.execute("BEGIN IMMEDIATE")
        for statement in history(sizes, "numbers", now):
            file.execute(statement)
        file.execute("COMMIT")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def fill_postgres(url: str, sizes: Sizes) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "drumbeat", "synchronous_commit": "off"})
    await connection.execute(f"CREATE TEMP TABLE numbers AS SELECT generate_series(1, {max(sizes.jobs, sizes.workers)}) AS n")
    top = await connection.fetchval("SELECT MAX(seq) FROM jobs")
    await connection.execute(f"UPDATE jobs SET seq = seq + {sizes.jobs}")
    for statement in history(sizes, "numbers", "CAST(extract(epoch FROM now()) * 1000000 AS bigint)"):
        await connection.execute(statement)
    await connection.execute(f"ALTER TABLE jobs ALTER COLUMN seq RESTART WITH {sizes.jobs + top + 1}")
    await connection.execute("VACUUM ANALYZE jobs")
    await connection.execute("VACUUM ANALYZE workers")
    await connection.execute("VACUUM ANALYZE events")
    await connection.close()


_FILL_JOBS = """
local prefix, pool, first, last = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local half, now = tonumber(ARGV[4]), tonumber(ARGV[5])
local home, jobs, done = prefix .. '{' .. pool .. '}:', {}, {}
for n = first, last do
  local number = string.format('%015d', n)
  local at = string.format('%.0f', now - (n <= half and 30 or 1) * 86400000000 + n)
  redis.call('HSET', prefix .. 'job:' .. number, 'pool', pool, 'status', 'done', 'created', at, 'claimed', at, 'finished', at,
    'epoch', 1, 'attempts', 1, 'owner', '["papers","papers-worker-1",""]', 'doc', '{"payload":{"n":1}}')
  jobs[#jobs + 1], jobs[#jobs + 2], done[#done + 1], done[#done + 2] = 0, number, at, number
end
redis.call('ZADD', home .. 'jobs', unpack(jobs))
redis.call('ZADD', home .. 'done', unpack(done))
"""
_FILL_WORKERS = """
local prefix, pool, first, last, now = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local home = prefix .. '{' .. pool .. '}:'
for n = first, last do
  local name, at = pool .. '-worker-' .. n, string.format('%.0f', now - 86400000000 + n)
  redis.call('HSET', home .. 'worker:' .. name, 'worker_id', name, 'slot', n, 'status', 'terminated', 'created_at', at,
    'started_at', at, 'ended_at', at, 'reaped_at', at, 'operations', 5, 'heartbeat_count', 5, 'capabilities', '[]',
    'meta', '{}')
  redis.call('ZADD', home .. 'workers', n, name)
  redis.call('ZADD', home .. 'ended', at, name)
  redis.call('ZADD', home .. 'reaped', at, name)
  for event = 1, 4 do
    local number = string.format('%.0f', redis.call('HINCRBY', home .. 'pool', 'last_event', 1))
    local kind, scope = 'WORKER_MOVED', 'RUN'
    if event == 4 then
      kind, scope = 'STOP', 'WORKER'
      redis.call('ZADD', home .. 'instructions', 0, 'WORKER\\0' .. name .. '\\0' .. string.format('%016d', number))
    end
    redis.call('XADD', home .. 'events', number .. '-0', 'type', kind, 'scope', scope, 'payload', '{}', 'at', at,
      'worker_id', name)
  end
end
redis.call('HSET', home .. 'pool', 'last_numbered', last, 'last_worker', last)
"""


async def fill_redis(store: RedisStore, sizes: Sizes) -> None:
    """Fill a Redis store. The jobs' numbers are below those of the waiting jobs, which the store assigned itself."""
    database, now, step = store.database, time.time_ns() // 1000, 2000
    for script, count, more in ((_FILL_JOBS, sizes.jobs, (sizes.jobs // 2,)), (_FILL_WORKERS, sizes.workers, ())):
        for first in range(1, count + 1, step):
            words = (str(POOL), first, min(first + step - 1, count), *more, now)
            await database.command(b"EVAL", script.encode(), b"1", database.key(""), *(str(word).encode() for word in words))


async def fill(url: str, store: Store, sizes: Sizes) -> None:
    if isinstance(store, RedisStore):
        await fill_redis(store, sizes)
    elif url.startswith("sqlite"):
        await asyncio.to_thread(fill_sqlite, Path(url.removeprefix("sqlite:///")), sizes)
    else:
        await fill_postgres(url, sizes)
