"""A check of the engine and a pool of jobs at a simulated Snowflake account, by ordinary commands and the real connector."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.given import Said, eventually, ran
from spawn.spcs.account import SpcsAccount
from spawn.spcs.conftest import PASSWORD
from spawn.spcs.server import AccountServer, served

ENGINES = """
[engines.snow]
kind = "spcs"
account = "MYORG-TEST"
user = "drumbeat"
password_variable = "SNOWFLAKE_PASSWORD"
host = "127.0.0.1"
port = {port}
protocol = "http"
database = "work"
schema = '"Jobs"'
compute_pool = '"Fast pool"'
image = "/work/jobs/images/drumbeat:1"
command = ["{python}", "-m", "drumbeat", "worker"]
secrets = {{ DRUMBEAT_STORE = "store_url" }}
node_price_per_hour = 0.2
timeout = "2m"
"""


class Site:
    """A folder with engines.toml, the store that its commands use, and the account."""

    def __init__(self, folder: Path, store: str, server: AccountServer) -> None:
        self.folder, self.store, self.account = folder, store, server.account

    def run(self, *words: str, code: int = 0) -> Said:
        done = ran(*words, cwd=self.folder, DRUMBEAT_STORE=self.store, SNOWFLAKE_PASSWORD=PASSWORD)
        assert done.code == code, (words, done.output, done.errors)
        assert PASSWORD not in done.output + done.errors
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code).output)


@pytest.fixture
def site(tmp_path: Path, postgres_url: str) -> Iterator[Site]:
    account = SpcsAccount(tmp_path, secrets={'WORK."Jobs".STORE_URL': postgres_url})
    with served(account) as server:
        port = server.server_address[1]
        (tmp_path / "engines.toml").write_text(ENGINES.format(port=port, python=sys.executable))
        yield Site(tmp_path, postgres_url, server)
    account.close()
    assert account.refusals == []
    assert not [text for text in account.statements if postgres_url in text]


def test_a_snowflake_engine_passes_its_check(site: Site) -> None:
    found = site.json("engine", "check", "snow", "--timeout", "3m")

    assert found["ok"], found
    assert site.account.services == {}


def test_a_check_says_that_the_secret_is_missing(site: Site) -> None:
    site.account.secrets.clear()

    found = site.run("engine", "check", "snow", code=1)

    assert "Secret 'WORK.\"Jobs\".STORE_URL' does not exist or not authorized" in found.output + found.errors
    assert site.account.services == {}


def test_a_burst_of_jobs_is_done_at_snowflake(site: Site) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "snow")
    for n in range(3):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 3, "all jobs are done")
    eventually(lambda: site.json("engine", "workers", "snow")["workers"] == [], "the workers leave by themselves")
    assert {each["provider"] for each in site.json("workers", "list", "jobs")} == {"snow"}
