"""Migrations: many processes at once apply each one once, and one that fails leaves the old schema whole."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import StoreError, StoreNotReady
from drumbeat.core.job import IfFailed, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store import open_store
from drumbeat.store.sql import migrate, postgres, queries, sqlite, store as sql_store, upkeep
from drumbeat.store.sql.queries import migration_texts
from drumbeat.store.sql.rows import thresholds_json
from store.scene import PostgresSql, Sql, SqliteSql

MIGRANTS = 8

#: waits for a line, so that all begin together, then says which versions it applied; sys.argv: the store's URL
MIGRANT = """
import asyncio, sys
from drumbeat.store import open_store

async def main():
    async with open_store(sys.argv[1], create=True, check_version=False) as store:
        print(*await store.upkeep.migrate(), flush=True)

print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main())
"""

OURS = migration_texts()
LATEST = max(OURS)

SECOND = "CREATE TABLE drumbeat.second (x INTEGER);\nINSERT INTO drumbeat.second VALUES (1);"
BROKEN = "CREATE TABLE drumbeat.third (x INTEGER);\nINSERT INTO drumbeat.nowhere VALUES (1);"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/drumbeat.db"
    made: str = request.getfixturevalue("postgres_url")
    return f"{made}?connect_timeout=60&command_timeout=60"  # eight processes at once may wait for one another


async def looking(url: str) -> Sql:
    return (
        SqliteSql(Path(url.removeprefix("sqlite:///")))
        if url.startswith("sqlite")
        else await PostgresSql.connect(url.partition("?")[0])
    )


async def tables(url: str) -> set[str]:
    """The tables and views there are."""
    sql = await looking(url)
    sqlite, postgres = "SELECT name FROM sqlite_master", "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'v')"
    rows = await sql.rows(sqlite if url.startswith("sqlite") else postgres)
    await sql.close()
    return {row["name"] for row in rows}


async def versions(url: str) -> list[int]:
    sql = await looking(url)
    rows = await sql.rows("SELECT version FROM schema_version ORDER BY version")
    await sql.close()
    return [row["version"] for row in rows]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that these migrations have been written too."""

    def offer(*more: str) -> None:
        texts = dict(OURS) | dict(enumerate(more, start=LATEST + 1))
        for module in (queries, migrate):
            monkeypatch.setattr(module, "migration_texts", lambda: texts)
        for module in (migrate, upkeep, sql_store):
            monkeypatch.setattr(module, "LATEST", max(texts))

    return offer


@pytest.fixture(autouse=True)
def read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are read at every opening of a store, because here they change; elsewhere once in a process."""
    for module in (postgres, sqlite):
        monkeypatch.setattr(module, "load_queries", queries.load_queries.__wrapped__)


def test_eight_processes_at_once_apply_each_version_once(url: str) -> None:
    command = [sys.executable, "-c", MIGRANT, url]
    migrants = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(MIGRANTS)
    ]
    for migrant in migrants:
        assert migrant.stdout is not None
        assert migrant.stdout.readline() == "ready\n"
    for migrant in migrants:
        assert migrant.stdin is not None
        migrant.stdin.write("go\n")
        migrant.stdin.flush()

    said = [migrant.communicate(timeout=60) for migrant in migrants]

    assert [migrant.returncode for migrant in migrants] == [0] * MIGRANTS, [errors for _, errors in said]
    assert sorted(output.split() for output, _ in said) == [[]] * (MIGRANTS - 1) + [[str(version) for version in OURS]]


async def test_a_migrated_store_is_left_alone(url: str) -> None:
    async with open_store(url, create=True) as store:
        assert await store.upkeep.migrate() == []
        assert (await store.upkeep.check()).problems == []


async def test_what_is_missing_is_applied_in_order(url: str, offer: Callable[..., None]) -> None:
    async with open_store(url, create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
    offer(SECOND, "INSERT INTO drumbeat.second VALUES (2);")

    for create in (False, True):
        with pytest.raises(StoreNotReady, match=f"found tables of version {LATEST}; run: drumbeat store migrate"):
            async with open_store(url, create=create):
                pass
    async with open_store(url, check_version=False) as store:
        assert "run: drumbeat store migrate" in (await store.upkeep.check()).problems[0]
        assert await store.upkeep.migrate() == [LATEST + 1, LATEST + 2]
        assert [each.pool_id for each in await store.pools.list()] == ["p"]

    assert await versions(url) == [*OURS, LATEST + 1, LATEST + 2]


async def test_a_migration_may_take_longer_than_another_query(postgres_url: str, offer: Callable[..., None]) -> None:
    async with open_store(postgres_url, create=True):
        pass
    offer("SELECT pg_sleep(1);")

    async with open_store(f"{postgres_url}?command_timeout=0.5", check_version=False) as store:
        assert await store.upkeep.migrate() == [LATEST + 1]


async def test_an_older_schema_that_lacks_a_table_is_looked_at_all_the_same(url: str, offer: Callable[..., None]) -> None:
    async with open_store(url, create=True):
        pass
    sql = await looking(url)
    kept = await sql.rows("SELECT * FROM notes")
    await sql.run("DROP TABLE notes")
    await sql.close()
    offer(dict(OURS)[6])

    async with open_store(url, check_version=False) as store:
        before = await store.upkeep.check()
        assert await store.upkeep.migrate() == [LATEST + 1]
        after = await store.upkeep.check()

    assert (before.schema_version, before.rows, len(kept)) == (LATEST, {}, 0)
    assert "run: drumbeat store migrate" in before.problems[0]
    assert (after.schema_version, after.problems, after.rows["notes"]) == (LATEST + 1, [], 0)


async def _fails(url: str) -> None:
    async with open_store(url, check_version=False) as store:
        with pytest.raises(StoreError, match="nowhere"):
            await store.upkeep.migrate()


async def test_a_failing_migration_leaves_the_old_schema_whole(url: str, offer: Callable[..., None]) -> None:
    async with open_store(url, create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
    before = await tables(url)
    offer(SECOND, BROKEN)

    await _fails(url)

    assert await tables(url) == before
    assert await versions(url) == list(OURS)


async def test_after_a_failed_migration_the_old_version_works_on(
    url: str, offer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(url, create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
    offer(BROKEN)
    await _fails(url)
    monkeypatch.undo()

    async with open_store(url) as store:
        assert [each.pool_id for each in await store.pools.list()] == ["p"]
        assert (await store.upkeep.check()).problems == []


async def test_a_failed_migration_can_be_tried_again_once_mended(url: str, offer: Callable[..., None]) -> None:
    async with open_store(url, create=True):
        pass
    offer(BROKEN)
    await _fails(url)
    offer(SECOND)

    async with open_store(url, check_version=False) as store:
        assert await store.upkeep.migrate() == [LATEST + 1]


async def test_the_first_migration_may_fail_too_and_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (queries, migrate):
        monkeypatch.setattr(module, "migration_texts", lambda: {1: BROKEN})

    with pytest.raises(StoreError, match="nowhere"):
        async with open_store(url, create=True):
            pass

    assert {name for name in await tables(url) if name in {"pools", "third", "schema_version", "run_status"}} == set()


async def test_views_are_made_anew_by_every_migration(url: str, offer: Callable[..., None]) -> None:
    async with open_store(url, create=True):
        pass
    sql = await looking(url)
    await sql.run("DROP VIEW work_pool")
    await sql.close()
    offer(SECOND)

    async with open_store(url, check_version=False) as store:
        await store.upkeep.migrate()

    assert "work_pool" in await tables(url)


async def make_older(url: str, monkeypatch: pytest.MonkeyPatch, below: int) -> None:
    """A store as it was before a version, with a pool ``p`` in it."""
    older = {version: text for version, text in OURS.items() if version < below}
    with monkeypatch.context() as before:
        for module in (queries, migrate):
            before.setattr(module, "migration_texts", lambda: older)
        for module in (migrate, upkeep, sql_store):
            before.setattr(module, "LATEST", max(older))
        before.setattr(migrate, "view_names", list)
        async with open_store(url, create=True):
            pass
    sql = await looking(url)
    limits = thresholds_json(pool("p", PoolKind.JOBS).thresholds)
    await sql.run(
        f"INSERT INTO pools (pool_id, kind, thresholds, policy, created_at) VALUES ('p', 'jobs', '{limits}', '{{}}', 1)"
    )
    await sql.close()


async def test_jobs_and_workers_of_before_they_were_counted_are_counted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await make_older(url, monkeypatch, 9)
    sql = await looking(url)
    for n, status in enumerate(["done"] * 3 + ["poisoned"] * 2 + ["cancelled", "pending"]):
        await sql.run(
            "INSERT INTO jobs (seq, pool_id, payload, status, finished_at, created_at) "
            f"VALUES ({n + 1}, 'p', '{n}', '{status}', {'NULL' if status == 'pending' else 5}, 1)"
        )
    for n, name in enumerate(["p-worker-9", "p-worker-10", "by-hand-77", "worker-x"]):
        await sql.run(
            "INSERT INTO workers (pool_id, worker_id, slot, status, capabilities, created_at, ended_at, meta) "
            f"VALUES ('p', '{name}', {n}, 'lost', '[]', 1, {n + 2}, '{{}}')"
        )
    await sql.close()

    async with open_store(url, check_version=False) as store:
        await store.upkeep.migrate()
        counts = await store.jobs.counts(PoolId("p"), most=1)
        poisoned = await store.jobs.list(PoolId("p"), statuses=[JobStatus.POISONED])
        again = await store.jobs.requeue(PoolId("p"), [job.job_id for job in poisoned])
        home, newest = await store.pools.get(PoolId("p")), await store.workers.list_ended(PoolId("p"), 2)
        later = await store.jobs.counts(PoolId("p"))

    assert (counts.done, counts.poisoned, counts.cancelled, counts.ready) == (3, 2, 1, 1)
    assert (len(again), later.done, later.poisoned, later.cancelled, later.ready) == (2, 3, 0, 1, 3)
    assert (home.last_worker, [row.worker_id for row in newest]) == (10, ["worker-x", "by-hand-77"])


async def test_counts_that_are_wrong_are_never_below_zero_and_are_put_right(url: str) -> None:
    async with open_store(url, create=True) as store:
        home = await store.pools.create(pool("p", PoolKind.JOBS))
        await store.queue.push(home.pool_id, [NewJob(payload=n, job_id=JobId(str(n))) for n in range(3)])
        await store.jobs.cancel([JobId("0"), JobId("1")])
        sql = await looking(url)
        await sql.run("UPDATE job_counts SET jobs = -7")
        await sql.run("INSERT INTO job_counts (pool_id, status, part, jobs) VALUES ('p', 'done', 77, 5)")
        await sql.close()
        wrong = await store.jobs.counts(home.pool_id)
        await store.upkeep.migrate()
        right = await store.jobs.counts(home.pool_id)

    assert (wrong.done, wrong.cancelled) == (5, 0)
    assert (right.done, right.cancelled, right.ready) == (0, 2, 1)


async def test_jobs_of_before_holders_had_pools_keep_their_holder(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim made before the upgrade is its own pool's, had begun, and is taken back when its lease runs out."""
    await make_older(url, monkeypatch, 7)
    sql = await looking(url)
    held = "'p', '{}', 'claimed', 'w', 1, 5, 5, 1"
    await sql.run(
        "INSERT INTO jobs (pool_id, payload, status, lease_owner, lease_epoch, lease_until, claimed_at, created_at) "
        f"VALUES ({held})"
    )
    await sql.close()

    async with open_store(url, check_version=False) as store:
        await store.upkeep.migrate()
        [job] = await store.jobs.list(PoolId("p"))
        [taken] = [*await store.queue.expire(), *await store.queue.expire()]

    assert job.holder == Holder(pool_id=PoolId("p"), worker_id=WorkerId("w"))
    assert (job.begun_at, taken.job_id, taken.status) == (job.claimed_at, job.job_id, JobStatus.PENDING)


async def test_the_links_of_parents_from_before_they_were_counted_are_counted(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If fewer were counted than there are, a later link could make up the number, and PostgreSQL would not miss it."""
    await make_older(url, monkeypatch, 12)
    sql = await looking(url)
    await sql.run("INSERT INTO jobs (pool_id, payload, status, has_children, created_at) VALUES ('p', '1', 'pending', 1, 1)")
    await sql.run("INSERT INTO job_links (child_seq, parent_seq) SELECT seq + 1, seq FROM jobs")
    await sql.run("INSERT INTO job_links (child_seq, parent_seq) SELECT seq + 2, seq FROM jobs")

    async with open_store(url, check_version=False) as store:
        await store.upkeep.migrate()
    counted = await sql.rows("SELECT has_children FROM jobs")
    await sql.close()

    assert [row["has_children"] for row in counted] == [2]


async def test_ends_that_an_older_process_did_not_pass_on_are_passed_on(url: str) -> None:
    async with open_store(url, create=True) as store:
        home, other = [await store.pools.create(pool(name, PoolKind.JOBS)) for name in ("p", "q")]
        done, failed, later = map(JobId, ("done", "failed", "later"))
        await store.queue.push(home.pool_id, [NewJob(payload=1, job_id=name) for name in (done, failed, later)])
        waits: dict[str, dict[str, Any]] = {
            "after done": {"after": (done,)},
            "one done": {"after": (done, later)},
            "any": {"after": (done, later), "after_any": True},
            "blocked": {"after": (failed,)},
            "skipped": {"after": (failed,), "if_failed": IfFailed.SKIP},
            "below skipped": {"after": (JobId("skipped"),), "if_failed": IfFailed.SKIP},
            "run": {"after": (failed, later), "if_failed": IfFailed.RUN},
            "requeued": {"after": (done, failed), "if_failed": IfFailed.SKIP},
        }
        jobs = [NewJob(payload=1, job_id=JobId(name), **options) for name, options in waits.items()]
        await store.queue.push(other.pool_id, jobs)
        sql = await looking(url)
        await sql.run("UPDATE jobs SET status = 'done', finished_at = 5 WHERE given_id = 'done'")
        await sql.run("UPDATE jobs SET status = 'poisoned', finished_at = 5 WHERE given_id = 'failed'")
        await sql.run("UPDATE jobs SET last_error = 'skipped', waits_for = 1 WHERE given_id = 'requeued'")
        await sql.close()

        await store.upkeep.migrate()
        once = [await store.jobs.get(JobId(name)) for name in waits]
        await store.upkeep.migrate()
        twice = [await store.jobs.get(JobId(name)) for name in waits]
        counts = await store.jobs.counts(other.pool_id)

    assert {str(job.job_id): (str(job.status), job.waits_for) for job in once} == {
        "after done": ("pending", 0),
        "one done": ("waiting", 1),
        "any": ("pending", 0),
        "blocked": ("waiting", 1),
        "skipped": ("cancelled", 0),
        "below skipped": ("cancelled", 0),
        "run": ("waiting", 1),
        "requeued": ("waiting", 1),
    }
    assert twice == once
    assert (counts.cancelled, counts.waiting, counts.ready) == (2, 4, 2)
