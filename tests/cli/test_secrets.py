"""A password in the store's URL is in no output, no log line, no row and on no command line."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from cli.given import FAST, Said, drumbeat, ran
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.fleet.model import FleetPolicy
from drumbeat.settings import Settings
from servers.postgres import PostgresServer

SECRET = "hunter2/&?#é"
WRITTEN = "hunter2%2F%26%3F%23%C3%A9"


@pytest.fixture
def secret_url(postgres: PostgresServer, postgres_url: str) -> Iterator[str]:
    """A store that can only be reached with a password."""
    database = postgres_url.rpartition("/")[2]
    postgres.add_password_user(f"keeper_{database}", SECRET)
    postgres.sql(f"GRANT CREATE ON DATABASE {database} TO keeper_{database}")
    url = postgres.url(database, f"keeper_{database}", SECRET)
    assert WRITTEN in url
    yield url
    postgres.sql(f"DROP OWNED BY keeper_{database} CASCADE", database)
    postgres.sql(f"REVOKE ALL ON DATABASE {database} FROM keeper_{database}")
    postgres.sql(f"DROP ROLE keeper_{database}")


def hides(text: str) -> bool:
    return "hunter2" not in text


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("store init", 0),
        ("store check", 1),
        ("store check --json", 1),
        ("store migrate", 0),
        ("pools list", 1),
        ("worker --run-id p --worker-id w --worker-group-id 0 --worker-group-count 1", 1),
    ],
)
def test_no_command_says_it(tmp_path: Path, secret_url: str, command: str, code: int) -> None:
    run = drumbeat if command.startswith("worker") else ran
    said: Said = run(*command.split(), cwd=tmp_path, DRUMBEAT_STORE=secret_url)

    assert said.code == code
    assert hides(said.output + said.errors)


async def _live_a_little(plane: ControlPlane) -> tuple[PoolId, list[str]]:
    """Start a worker and let it work; answers with the pool, and its workers' command lines."""
    made = await plane.fleets.create("secrets", FleetPolicy(workers=1), FAST)
    async with plane.local_spawner() as spawner:
        loop = plane.fleets.loop(made.pool_id, spawner, timedelta(milliseconds=100))
        rows: list[Worker] = []
        async with asyncio.timeout(60):
            while not any(row.status is WorkerStatus.ACTIVE for row in rows):
                await loop.beat()
                rows = list(await plane.store.workers.list(made.pool_id))
                await asyncio.sleep(0.05)
        seen = [" ".join(psutil.Process(row.pid).cmdline()) for row in rows]
    return made.pool_id, seen


async def test_no_worker_shows_it(secret_url: str, tmp_path: Path) -> None:
    settings = Settings(store=secret_url, state_dir=tmp_path)
    async with open_control_plane(settings, create=True) as plane:
        pool_id, commands = await _live_a_little(plane)
        rows = [
            *await plane.store.logs.list(pool_id),
            *await plane.store.beats.list(pool_id),
            *await plane.store.events.read(pool_id, 0),
            *await plane.store.workers.list(pool_id),
        ]

    logs = [file.read_text() for file in tmp_path.rglob("*.log")]
    assert len(commands) == 1
    assert "--worker-id worker-0" in commands[0]
    assert len(logs) == 1
    assert len(rows) > 3
    assert all(hides(text) for text in [*commands, *logs, *map(repr, rows)])


def test_no_settings_show_it(secret_url: str, tmp_path: Path) -> None:
    settings = Settings(store=secret_url, state_dir=tmp_path)

    assert hides(f"{settings!r} {settings} {json.dumps(str(settings))}")
