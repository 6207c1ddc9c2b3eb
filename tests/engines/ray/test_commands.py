"""A pool and a fleet on a real Ray head, by the ordinary commands only, and what the commands say if Ray refuses."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.given import Said, eventually, ran
from engines.ray.conftest import TOKEN_VARIABLE, Head

ENGINES = """
[engines.rays]
kind = "ray"
address = "{address}"
token_variable = "{variable}"
command = ["{python}", "-m", "drumbeat", "worker"]
price_per_hour = 0.1
slots = 8
timeout = "2m"
usual_start = "{start}"
{more}
"""


class Site:
    """A folder with engines.toml, and the store and the token that its commands use."""

    def __init__(self, folder: Path, store: str, head: Head) -> None:
        self.folder, self.store, self.head = folder, store, head
        self.name_engine()

    def name_engine(self, more: str = "", start: str = "1m") -> None:
        text = ENGINES.format(address=self.head.address, variable=TOKEN_VARIABLE, python=sys.executable, start=start, more=more)
        (self.folder / "engines.toml").write_text(text)

    def ran(self, *words: str, token: str | None = None) -> Said:
        variables = {"DRUMBEAT_STORE": self.store, TOKEN_VARIABLE: self.head.token if token is None else token}
        return ran(*words, cwd=self.folder, **variables)

    def run(self, *words: str) -> Said:
        done = self.ran(*words)
        assert done.code == 0, (words, done.output, done.errors)
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").output)

    def failing_step(self, *words: str, token: str | None = None) -> tuple[str, str]:
        """The step of a check that fails, and what it says."""
        done = self.ran("engine", "check", "rays", "--json", *words, token=token)
        assert done.code == 1, (done.output, done.errors)
        [step] = [step for step in json.loads(done.output)["steps"] if not step["ok"]]
        return step["step"], step["detail"]

    @property
    def running(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("engine", "workers", "rays")["workers"]
        return found


@pytest.fixture
def site(tmp_path: Path, head: Head, postgres_url: str) -> Site:
    return Site(tmp_path, postgres_url, head)


def test_a_ray_engine_passes_its_check(site: Site) -> None:
    found = site.json("engine", "check", "rays", "--timeout", "5m")

    assert found["ok"], found
    assert site.json("pools", "list") == []
    assert site.running == []


def test_a_burst_of_jobs_is_done_on_ray(site: Site) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "rays")
    for n in range(4):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 4, "all jobs are done")
    assert {each["provider"] for each in site.json("workers", "list", "jobs")} == {"rays"}
    eventually(lambda: site.running == [], "the workers leave by themselves")


def test_a_fleet_grows_and_shrinks_on_ray(site: Site) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=2", "--engine", "rays")
    site.run("fleet", "beat", "f")
    eventually(lambda: statuses(site) == ["active", "active"], "both workers are active")

    assert sorted(each["worker_id"] for each in site.running) == ["worker-0", "worker-1"]
    assert {each["price_per_hour"] for each in site.running} == {0.1}
    site.run("engine", "logs", "rays", "f", "worker-0")
    for name in ("worker-0", "worker-1"):
        site.run("fleet", "kill", "f", name)
    eventually(lambda: site.running == [], "both workers are gone")


def statuses(site: Site) -> list[str]:
    return [each["status"] for each in site.json("workers", "list", "f")]


def test_a_wrong_token_is_told(site: Site) -> None:
    step, detail = site.failing_step(token="wrong" * 8)

    assert step == "reach"
    assert "the key, token or permission is wrong" in detail
    assert f"refuses the token in {TOKEN_VARIABLE}" in detail


def test_a_missing_token_is_told(site: Site) -> None:
    step, detail = site.failing_step(token="")

    assert (step, f"set the variable {TOKEN_VARIABLE}" in detail) == ("reach", True)


def test_resources_that_no_node_has_are_told(site: Site) -> None:
    site.name_engine("num_gpus = 3", start="3s")

    done = site.ran("engine", "check", "rays", "--timeout", "10s", "--json")

    failed = {step["step"]: step["detail"] for step in json.loads(done.output)["steps"] if not step["ok"]}
    assert "It asks for num_cpus = 1, num_gpus = 3; compare with: ray status" in failed["join"]
    assert "still PENDING" in failed["clean up"], "Ray cannot cancel a job that waits for resources"


def test_python_that_is_not_there_is_told(site: Site) -> None:
    site.name_engine('python = "/nowhere/python3"')

    step, detail = site.failing_step("--timeout", "3m")

    assert step == "join"
    assert "/nowhere/python3: not found" in detail


@pytest.fixture(autouse=True)
def _no_token_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
