"""A pool, a fleet and a check on a real cluster of one node, by the ordinary commands only."""

import json
import random
import time
from pathlib import Path

import pytest

from cli.given import eventually
from e2e.engine_site import Site
from e2e.engine_sites import slurm_variables, write_slurm_engine
from servers.slurm import SlurmServer
from thorough import THOROUGH

BROKEN = """
[engines.broken]
kind = "slurm"
partition = "down"
folder = "{folder}/shared"
programs = "{programs}"
"""
ROUNDS = 20 if THOROUGH else 3


class SlurmSite(Site):
    """A site whose engine is a Slurm cluster."""

    slurm: SlurmServer

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs that Slurm has not ended."""
        return self.slurm.run("squeue", "--noheader", "--states=PENDING,RUNNING", "--format=%j").split()


@pytest.fixture
def site(tmp_path: Path, slurm: SlurmServer, postgres_url: str) -> SlurmSite:
    with write_slurm_engine(tmp_path, slurm).open("a") as file:
        file.write(BROKEN.format(folder=tmp_path, programs=slurm.bin))
    site = SlurmSite(tmp_path, postgres_url, **slurm_variables(slurm))
    site.slurm = slurm
    return site


def test_a_slurm_engine_passes_its_check(site: SlurmSite) -> None:
    found = site.json("engine", "check", "cluster", "--timeout", "3m")

    assert found["ok"], found
    assert site.json("pools", "list") == []
    assert site.running == []


def test_a_check_tells_that_nodes_are_down(site: SlurmSite) -> None:
    done = site.attempt("engine", "check", "broken", "--timeout", "3s", "--json")

    assert done.code != 0
    assert "all nodes of the partition are down or drained" in done.output
    assert site.jobs == []


def test_a_burst_of_jobs_is_done_on_the_cluster(site: SlurmSite) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "cluster,local")
    for n in range(4):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 4, "all jobs are done")
    assert {each["meta"]["engine"] for each in site.json("workers", "list", "jobs")} == {"cluster"}
    eventually(lambda: site.running == [], "the workers leave by themselves")


def test_a_fleet_grows_and_shrinks_on_the_cluster(site: SlurmSite) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=2", "--engine", "cluster")
    site.run("fleet", "beat", "f")
    eventually(lambda: site.statuses("f") == ["active", "active"], "both workers are active")

    assert sorted(each["worker_id"] for each in site.running) == ["worker-0", "worker-1"]
    assert {each["price_per_hour"] for each in site.running} == {0.1}
    site.run("engine", "logs", "cluster", "f", "worker-0")
    for name in ("worker-0", "worker-1"):
        site.run("fleet", "kill", "f", name)
    assert site.running == []


def test_controllers_killed_in_the_middle_of_a_start_leave_one_job_a_worker(site: SlurmSite) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=3", "--engine", "cluster")
    for _ in range(ROUNDS):
        with site.started("fleet", "beat", "f") as controller:
            time.sleep(random.SystemRandom().uniform(0.5, 4))
            controller.kill()

    def all_are_active() -> bool:
        site.attempt("fleet", "beat", "f")
        return sorted(set(site.statuses("f"))) == ["active"] and len(site.running) == 3

    eventually(all_are_active, "three workers are active")
    assert len(site.jobs) == len(set(site.jobs)) == 3
    for each in site.running:
        site.run("fleet", "kill", "f", each["worker_id"])
    assert site.jobs == []
