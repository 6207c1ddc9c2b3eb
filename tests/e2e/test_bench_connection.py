"""A run through a stored connection: orchestrator and workers, real processes, find the password by its name and their key."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.given import COMMAND, environment
from drumbeat.core.run import RunStatus
from e2e.bench import bench, document, fill, output
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
PASSWORD = "pass:word/with@signs?#4711"


def connection(*arguments: str, store: str, cwd: Path, said: str = "") -> str:
    import subprocess

    done = subprocess.run(
        [*COMMAND, "connection", *arguments, "--store", store],
        cwd=cwd,
        env=environment(DRUMBEAT_KEY=KEY),
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return done.stdout


async def test_a_run_finds_its_password_by_name(
    postgres: PostgresServer, new_database: Callable[[], str], tmp_path: Path
) -> None:
    target = await fill(new_database())
    database = target.rpartition("/")[2]
    user = f"loader_{database}"
    postgres.add_password_user(user, PASSWORD)
    postgres.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}", database)
    url = f"sqlite:///{tmp_path}/drumbeat.db"
    try:
        async with bench(url, tmp_path) as made:
            made.environment = {"DRUMBEAT_KEY": KEY}
            connection(
                "add", "loaded", postgres.url(database, user), "--password", store=url, cwd=tmp_path, said=f"{PASSWORD}\n"
            )
            told = connection("test", "loaded", store=url, cwd=tmp_path)
            template = {**document(""), "target": {"connection": "loaded"}}
            code, out, err = await output(made.run(template, "--json"))

            run = await made.the_run()
            assert "answers" in told
            assert (code, run.status) == (0, RunStatus.COMPLETED), (out, err)
            assert run.operations > 0
            assert run.config["target"]["connection"] == "loaded"
            assert PASSWORD not in json.dumps(run.config) + out + err
            written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
            assert PASSWORD.encode() not in written
            made.environment = {}
            code, out, err = await output(made.run(template, "--json"))
            assert code == 1
            assert "DRUMBEAT_KEY" in err
    finally:
        postgres.sql(f"DROP OWNED BY {user} CASCADE", database)
        postgres.sql(f"DROP ROLE {user}")
