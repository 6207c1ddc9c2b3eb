"""A pool and a fleet in Docker containers, by the ordinary commands only. The containers use this machine's Python."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cli.given import Said, eventually, ran
from servers.dockerd import DockerDaemon
from servers.postgres import PostgresServer

ROOT = Path(__file__).parents[3]
ENGINES = """
[engines.box]
kind = "docker"
base_url = "{url}"
image = "{image}"
pull = "never"
command = ["{python}", "-m", "drumbeat", "worker"]
mounts = {mounts}
network = "host"
slots = 4
price_per_hour = 0.1
timeout = "2m"
"""


def host_mounts() -> list[str]:
    """What Python and Drumbeat need of this machine: its libraries, its Python, this repository."""
    folders = [Path("/usr"), Path("/lib"), Path("/lib64"), Path(sys.base_prefix), Path(sys.prefix), ROOT]
    there = [folder for folder in folders if folder.is_dir()]
    outer = [each for each in there if not any(each != other and each.is_relative_to(other) for other in there)]
    return [f"{folder}:{folder}:ro" for folder in dict.fromkeys(outer)]


class Site:
    """A folder with engines.toml, and the store that its commands use."""

    def __init__(self, folder: Path, store: str, **variables: str) -> None:
        self.folder, self.variables = folder, {"DRUMBEAT_STORE": store, **variables}

    def run(self, *words: str) -> Said:
        done = ran(*words, cwd=self.folder, **self.variables)
        assert done.code == 0, (words, done.output, done.errors)
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").output)

    @property
    def running(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("engine", "workers", "box")["workers"]
        return found


def write_engines(folder: Path, daemon: DockerDaemon, *mounts: str) -> Path:
    text = ENGINES.format(
        url=daemon.url, image=daemon.image, python=sys.executable, mounts=json.dumps([*host_mounts(), *mounts])
    )
    (folder / "engines.toml").write_text(text)
    return folder / "engines.toml"


@pytest.fixture
def site(tmp_path: Path, dockerd: DockerDaemon, postgres_url: str) -> Site:
    write_engines(tmp_path, dockerd)
    return Site(tmp_path, postgres_url)


def test_a_docker_engine_passes_its_check(site: Site, dockerd: DockerDaemon) -> None:
    found = site.json("engine", "check", "box", "--timeout", "3m")

    assert found["ok"], found
    assert site.json("pools", "list") == []
    assert dockerd.run("ps", "--all", "--quiet") == ""


def test_a_burst_of_jobs_is_done_in_containers(site: Site, dockerd: DockerDaemon) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "box,local")
    for n in range(4):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 4, "all jobs are done")
    assert {each["meta"]["engine"] for each in site.json("workers", "list", "jobs")} == {"box"}
    eventually(lambda: site.running == [], "the workers leave by themselves")
    site.run("pool", "check", "jobs")
    assert dockerd.run("ps", "--all", "--quiet") == "", "ended containers are removed by the next check"


def test_a_fleet_grows_and_shrinks_in_containers(site: Site, dockerd: DockerDaemon) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=2", "--engine", "box")
    site.run("fleet", "beat", "f")
    eventually(lambda: _statuses(site) == ["active", "active"], "both workers are active")

    assert sorted(each["worker_id"] for each in site.running) == ["worker-0", "worker-1"]
    assert {each["price_per_hour"] for each in site.running} == {0.1}
    site.run("engine", "logs", "box", "f", "worker-0")
    for name in ("worker-0", "worker-1"):
        site.run("fleet", "kill", "f", name)
    assert site.running == []
    assert dockerd.run("ps", "--all", "--quiet") == ""


def test_a_password_can_stay_out_of_what_docker_inspect_shows(
    tmp_path: Path, dockerd: DockerDaemon, postgres: PostgresServer, postgres_url: str
) -> None:
    postgres.add_password_user("carl", "s3cret")
    database = urlsplit(postgres_url).path.removeprefix("/")
    postgres.sql(f"ALTER DATABASE {database} OWNER TO carl")
    passwords = tmp_path / "pgpass"
    passwords.write_text("*:*:*:carl:s3cret\n")
    passwords.chmod(0o600)
    with write_engines(tmp_path, dockerd, f"{passwords}:/run/pgpass:ro").open("a") as file:
        file.write('environment = { PGPASSFILE = "/run/pgpass" }\n')
    site = Site(tmp_path, postgres.url(database, "carl"), PGPASSFILE=str(passwords))
    site.run("store", "init")
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=1", "--engine", "box")
    site.run("fleet", "beat", "f")
    eventually(lambda: _statuses(site) == ["active"], "the worker is active")

    described = dockerd.run("inspect", *dockerd.run("ps", "--quiet").split())

    site.run("fleet", "kill", "f", "worker-0")
    assert "carl@127.0.0.1" in described
    assert "s3cret" not in described


def _statuses(site: Site) -> list[str]:
    return [each["status"] for each in site.json("workers", "list", "f")]
