"""A pool and a fleet on a real Ray head, by the ordinary commands only, and what the commands say if Ray refuses."""

import json
import os
from pathlib import Path

import pytest

from cli.given import eventually
from e2e.engine_site import Site
from e2e.engine_sites import RAY_TOKEN, write_ray_engine
from engines.ray.conftest import Head


class RaySite(Site):
    """A site whose engine is a Ray head."""

    def failing_step(self, *words: str, **variables: str) -> tuple[str, str]:
        """The step of a check that fails, and what it says."""
        done = self.attempt("engine", "check", "rays", "--json", *words, **variables)
        assert done.code == 1, (done.output, done.errors)
        [step] = [step for step in json.loads(done.output)["steps"] if not step["ok"]]
        return step["step"], step["detail"]


@pytest.fixture
def site(tmp_path: Path, head: Head, postgres_url: str) -> RaySite:
    write_ray_engine(tmp_path, head.address)
    return RaySite(tmp_path, postgres_url, "rays", **{RAY_TOKEN: head.token})


def test_a_ray_engine_passes_its_check(site: RaySite) -> None:
    found = site.json("engine", "check", "rays", "--timeout", "5m")

    assert found["ok"], found
    assert site.json("pools", "list") == []
    assert site.running == []


def test_a_burst_of_jobs_is_done_on_ray(site: RaySite) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "rays")
    for n in range(4):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 4, "all jobs are done")
    assert {each["provider"] for each in site.json("workers", "list", "jobs")} == {"rays"}
    eventually(lambda: site.running == [], "the workers leave by themselves")


def test_a_fleet_grows_and_shrinks_on_ray(site: RaySite) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=2", "--engine", "rays")
    site.run("fleet", "beat", "f")
    eventually(lambda: site.statuses("f") == ["active", "active"], "both workers are active")

    assert sorted(each["worker_id"] for each in site.running) == ["worker-0", "worker-1"]
    assert {each["price_per_hour"] for each in site.running} == {0.1}
    site.run("engine", "logs", "rays", "f", "worker-0")
    for name in ("worker-0", "worker-1"):
        site.run("fleet", "kill", "f", name)
    eventually(lambda: site.running == [], "both workers are gone")


def test_a_wrong_token_is_told(site: RaySite) -> None:
    step, detail = site.failing_step(**{RAY_TOKEN: "wrong" * 8})

    assert step == "reach"
    assert "the key, token or permission is wrong" in detail
    assert f"refuses the token in {RAY_TOKEN}" in detail


def test_a_missing_token_is_told(site: RaySite) -> None:
    step, detail = site.failing_step(**{RAY_TOKEN: ""})

    assert (step, f"set the variable {RAY_TOKEN}" in detail) == ("reach", True)


def test_resources_that_no_node_has_are_told(site: RaySite, head: Head) -> None:
    write_ray_engine(site.folder, head.address, more="num_gpus = 3", start="3s")

    done = site.attempt("engine", "check", "rays", "--timeout", "10s", "--json")

    failed = {step["step"]: step["detail"] for step in json.loads(done.output)["steps"] if not step["ok"]}
    assert "It asks for num_cpus = 1, num_gpus = 3; compare with: ray status" in failed["join"]
    assert "still PENDING" in failed["clean up"], "Ray cannot cancel a job that waits for resources"


def test_python_that_is_not_there_is_told(site: RaySite, head: Head) -> None:
    write_ray_engine(site.folder, head.address, more='python = "/nowhere/python3"')

    step, detail = site.failing_step("--timeout", "3m")

    assert step == "join"
    assert "/nowhere/python3: not found" in detail


@pytest.fixture(autouse=True)
def _no_token_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
