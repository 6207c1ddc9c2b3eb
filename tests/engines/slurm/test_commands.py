"""A pool, a fleet and a check on a real cluster of one node, by the ordinary commands only."""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cli.given import Said, eventually, ran, started
from servers.slurm import SlurmServer
from thorough import THOROUGH

ENGINES = """
[engines.cluster]
kind = "slurm"
python = "{python}"
folder = "{folder}/shared"
programs = "{programs}"
price_per_hour = 0.1
timeout = "2m"

[engines.broken]
kind = "slurm"
partition = "down"
folder = "{folder}/shared"
programs = "{programs}"
"""
ROUNDS = 20 if THOROUGH else 3


class Site:
    """A folder with engines.toml, and the store that its commands use."""

    def __init__(self, folder: Path, store: str, slurm: SlurmServer) -> None:
        self.folder, self.slurm = folder, slurm
        self.variables = {"DRUMBEAT_STORE": store, "PATH": f"{slurm.bin}:{os.environ['PATH']}"}

    def run(self, *words: str) -> Said:
        done = ran(*words, cwd=self.folder, **self.variables)
        assert done.code == 0, (words, done.output, done.errors)
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").output)

    @property
    def running(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("engine", "workers", "cluster")["workers"]
        return found

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs that Slurm has not ended."""
        return self.slurm.run("squeue", "--noheader", "--states=PENDING,RUNNING", "--format=%j").split()


@pytest.fixture
def site(tmp_path: Path, slurm: SlurmServer, postgres_url: str) -> Site:
    (tmp_path / "engines.toml").write_text(ENGINES.format(python=sys.executable, folder=tmp_path, programs=slurm.bin))
    return Site(tmp_path, postgres_url, slurm)


def test_a_slurm_engine_passes_its_check(site: Site) -> None:
    found = site.json("engine", "check", "cluster", "--timeout", "3m")

    assert found["ok"], found
    assert site.json("pools", "list") == []
    assert site.running == []


def test_a_check_tells_that_nodes_are_down(site: Site) -> None:
    done = ran("engine", "check", "broken", "--timeout", "3s", "--json", cwd=site.folder, **site.variables)

    assert done.code != 0
    assert "all nodes of the partition are down or drained" in done.output
    assert site.jobs == []


def test_a_burst_of_jobs_is_done_on_the_cluster(site: Site) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "cluster,local")
    for n in range(4):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 4, "all jobs are done")
    assert {each["meta"]["engine"] for each in site.json("workers", "list", "jobs")} == {"cluster"}
    eventually(lambda: site.running == [], "the workers leave by themselves")


def test_a_fleet_grows_and_shrinks_on_the_cluster(site: Site) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=2", "--engine", "cluster")
    site.run("fleet", "beat", "f")
    eventually(lambda: _statuses(site) == ["active", "active"], "both workers are active")

    assert sorted(each["worker_id"] for each in site.running) == ["worker-0", "worker-1"]
    assert {each["price_per_hour"] for each in site.running} == {0.1}
    site.run("engine", "logs", "cluster", "f", "worker-0")
    for name in ("worker-0", "worker-1"):
        site.run("fleet", "kill", "f", name)
    assert site.running == []


def test_controllers_killed_in_the_middle_of_a_start_leave_one_job_a_worker(site: Site) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=3", "--engine", "cluster")
    for _ in range(ROUNDS):
        with started("fleet", "beat", "f", cwd=site.folder, **site.variables) as controller:
            time.sleep(random.SystemRandom().uniform(0.5, 4))
            controller.kill()

    def all_are_active() -> bool:
        ran("fleet", "beat", "f", cwd=site.folder, **site.variables)
        return sorted(set(_statuses(site))) == ["active"] and len(site.running) == 3

    eventually(all_are_active, "three workers are active")
    assert len(site.jobs) == len(set(site.jobs)) == 3
    for each in site.running:
        site.run("fleet", "kill", "f", each["worker_id"])
    assert site.jobs == []


def _statuses(site: Site) -> list[str]:
    return [each["status"] for each in site.json("workers", "list", "f")]
