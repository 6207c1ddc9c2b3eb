"""A check, a pool of jobs and a benchmark at a simulated Snowflake account, by ordinary commands and the real connector."""

import json
import sys
from base64 import b64encode
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
{more}
"""
TEMPLATE = """
name: quick
target: {{url: "{url}"}}
workload: {{standard: tpcb, scale: 0.01}}
timing: {{warmup_seconds: 0, duration_seconds: 1}}
concurrent_connections: 2
scaling: {{mode: FIXED, min_workers: 2, min_connections: 1}}
"""
KEYS = {"DRUMBEAT_KEY": b64encode(b"k" * 32).decode(), "DRUMBEAT_SPCS_KEY": "a-key-of-this-test"}


class Site:
    """A folder with engines.toml, the store that its commands use, and the account."""

    def __init__(self, folder: Path, store: str, server: AccountServer) -> None:
        self.folder, self.store, self.account = folder, store, server.account
        self.port = server.server_address[1]

    def write_engine(self, more: str = "") -> None:
        text = ENGINES.format(port=self.port, python=sys.executable, more=more)
        (self.folder / "engines.toml").write_text(text)

    def run(self, *words: str, code: int = 0, **variables: str) -> Said:
        done = ran(*words, cwd=self.folder, DRUMBEAT_STORE=self.store, SNOWFLAKE_PASSWORD=PASSWORD, **variables)
        assert done.code == code, (words, done.output, done.errors)
        assert PASSWORD not in done.output + done.errors
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code).output)


@pytest.fixture
def site(tmp_path: Path, postgres_url: str) -> Iterator[Site]:
    account = SpcsAccount(tmp_path, secrets={'WORK."Jobs".STORE_URL': postgres_url})
    with served(account) as server:
        site = Site(tmp_path, postgres_url, server)
        site.write_engine()
        yield site
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


def test_a_benchmark_runs_at_snowflake_and_its_keys_are_in_no_statement(site: Site, new_database: Any) -> None:
    target = new_database()
    (site.folder / "quick.yml").write_text(TEMPLATE.format(url=target))
    site.run("bench", "prepare", target, "--workload", "tpcb", "--scale", "0.01")
    words = ("bench", "run", "quick.yml", "--engine", "snow", "--json")

    refused = site.run(*words, code=3, **KEYS)
    site.write_engine('key_variable = "DRUMBEAT_SPCS_KEY"\nkey_secret = "worker_key"')
    site.account.secrets['WORK."Jobs".WORKER_KEY'] = KEYS["DRUMBEAT_SPCS_KEY"]
    done = site.run(*words, code=0, **KEYS)

    assert "expected DRUMBEAT_KEY in secrets, with the name of a SECRET object" in refused.output + refused.errors
    workers = site.json("workers", "list", json.loads(done.output)["run"]["run_id"])
    assert [each["provider"] for each in workers] == ["snow", "snow"]
    assert [text for text in site.account.statements for key in KEYS.values() if key in text] == []
