"""The page on tables knows every table, column, view and status; and what the views make of a worker's status."""

import re
import sqlite3
from pathlib import Path

import pytest

from docs.pages import page, quoted, rows, section
from drumbeat.core.event import Scope
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import Phase, RunStatus
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store import open_store
from drumbeat.store.sql.queries import view_names
from drumbeat.store.sql.upkeep import TABLES

TEXT = page("tables")


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store in which each status has a pool of its name, with one worker."""
    file = tmp_path / "drumbeat.db"
    async with open_store(f"sqlite:///{file}", create=True) as store:
        for status in WorkerStatus:
            await store.pools.create(pool(status, PoolKind.FLEET))
            await store.workers.add([Worker(pool_id=PoolId(status), worker_id=WorkerId("w"), slot=0)])
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE workers SET status = pool_id")
        connection.execute("UPDATE workers SET heartbeat_at = created_at, started_at = created_at WHERE status <> 'spawning'")
        connection.execute("UPDATE workers SET ended_at = created_at WHERE status IN ('terminated', 'error', 'lost')")
    connection.close()
    return file


async def test_every_table_and_every_column_is_there(path: Path) -> None:
    connection = sqlite3.connect(path)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    for table in tables - {"schema_version"}:
        columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        assert columns
        assert columns - quoted(section(TEXT, f"### `{table}`")) == set(), table
    connection.close()

    assert set(re.findall(r"^### `(\w+)`$", TEXT, re.MULTILINE)) == tables - {"schema_version"} == set(TABLES)


def test_every_view_is_there() -> None:
    told = [row[0].strip("`") for row in rows(section(TEXT, "## Compatibility views")) if len(row) == 2]

    assert sorted(told) == sorted(name.removeprefix("view_") for name in view_names())


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("### `pools`", list(PoolKind)),
        ("### `events`", list(Scope)),
        ("### `runs`", [*RunStatus, *Phase]),
        ("### `jobs`", list(JobStatus)),
    ],
)
def test_every_state_is_there(heading: str, words: list[str]) -> None:
    told = section(TEXT, heading)

    assert [word for word in words if not re.search(rf"\b{word}\b", told)] == []


async def test_the_views_read_a_status_as_the_page_says(path: Path) -> None:
    told = {row[0].strip("`"): row[1:] for row in rows(section(TEXT, "## Compatibility views")) if len(row) == 5}

    with sqlite3.connect(path) as connection:
        assert told == {status: seen(connection, status) for status in WorkerStatus}
    connection.close()


def seen(connection: sqlite3.Connection, status: str) -> list[str]:
    """What each view says of the worker of this status's pool."""
    heartbeat = connection.execute("SELECT status FROM worker_heartbeats WHERE run_id = ?", (status,)).fetchone()
    registered = connection.execute("SELECT status FROM worker_registry WHERE pool_id = ?", (status,)).fetchone()
    healthy = connection.execute("SELECT status FROM active_workers_health WHERE pool_id = ?", (status,)).fetchone()
    counts = connection.execute(
        "SELECT spawning_workers, active_workers, terminating_workers FROM orchestrator_status WHERE pool_id = ?", (status,)
    ).fetchone()
    counted = [word for word, count in zip(("spawning", "active", "terminating"), counts, strict=True) if count]
    shown = [row[0] if row else "not there" for row in (heartbeat, registered, healthy)]
    return [*shown[:2], "".join(counted) or "–", shown[2]]
