"""A pool, a fleet and a benchmark on two hosts over real SSH, by the ordinary commands only."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.given import drumbeat, eventually
from e2e.engine_site import Site, write_ssh_engine
from servers.openssh import OpenSshServer
from spawn.ssh.conftest import sshd as sshd

TEMPLATE = """
name: quick
target: {{url: "{url}"}}
workload: {{standard: tpcb, scale: 0.01}}
timing: {{warmup_seconds: 0, duration_seconds: 1}}
concurrent_connections: 2
scaling: {{mode: FIXED, min_workers: 2, min_connections: 1}}
"""


@pytest.fixture
def site(tmp_path: Path, sshd: OpenSshServer, postgres_url: str) -> Site:
    write_ssh_engine(tmp_path, [sshd, sshd])
    return Site(tmp_path, postgres_url)


def test_an_ssh_engine_passes_its_check(site: Site) -> None:
    found = site.json("engine", "check", "cluster", "--timeout", "3m")

    assert found["ok"], found
    assert site.json("pools", "list") == []
    assert site.running == []


def test_a_burst_of_jobs_is_done_over_ssh(site: Site) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "cluster,local")
    for n in range(4):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 4, "all jobs are done")
    assert {each["meta"]["engine"] for each in site.json("workers", "list", "jobs")} == {"cluster"}
    eventually(lambda: site.running == [], "the workers leave by themselves")


def test_a_fleet_grows_and_shrinks_over_ssh(site: Site) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=2", "--engine", "cluster")
    site.run("fleet", "beat", "f")
    eventually(lambda: _statuses(site) == ["active", "active"], "both workers are active")

    assert sorted(each["worker_id"] for each in site.running) == ["worker-0", "worker-1"]
    assert {each["price_per_hour"] for each in site.running} == {0.1}
    site.run("engine", "logs", "cluster", "f", "worker-0")
    for name in ("worker-0", "worker-1"):
        site.run("fleet", "kill", "f", name)
    assert site.running == []


def _statuses(site: Site) -> list[str]:
    return [each["status"] for each in site.json("workers", "list", "f")]


def test_a_benchmark_runs_over_ssh(site: Site, new_database: Any) -> None:
    target = new_database()
    (site.folder / "quick.yml").write_text(TEMPLATE.format(url=target))
    site.run("bench", "prepare", target, "--workload", "tpcb", "--scale", "0.01")

    done = drumbeat("bench", "run", "quick.yml", "--engine", "cluster", "--json", cwd=site.folder, DRUMBEAT_STORE=site.store)

    assert done.code == 0, done.errors
    workers = site.json("workers", "list", json.loads(done.output)["run"]["run_id"])
    assert [each["provider"] for each in workers] == ["cluster", "cluster"]
    assert site.running == []
