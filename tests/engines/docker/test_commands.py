"""A pool and a fleet in Docker containers, by the ordinary commands only. The containers use this machine's Python."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.given import eventually
from e2e.engine_site import Site
from e2e.engine_sites import write_docker_engine
from servers.dockerd import DockerDaemon
from servers.postgres import PostgresServer


@pytest.fixture
def site(tmp_path: Path, dockerd: DockerDaemon, postgres_url: str) -> Site:
    write_docker_engine(tmp_path, dockerd)
    return Site(tmp_path, postgres_url, "box")


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
    eventually(lambda: site.statuses("f") == ["active", "active"], "both workers are active")

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
    with write_docker_engine(tmp_path, dockerd, f"{passwords}:/run/pgpass:ro").open("a") as file:
        file.write('environment = { PGPASSFILE = "/run/pgpass" }\n')
    site = Site(tmp_path, postgres.url(database, "carl"), "box", PGPASSFILE=str(passwords))
    site.run("store", "init")
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=1", "--engine", "box")
    site.run("fleet", "beat", "f")
    eventually(lambda: site.statuses("f") == ["active"], "the worker is active")

    described = dockerd.run("inspect", *dockerd.run("ps", "--quiet").split())

    site.run("fleet", "kill", "f", "worker-0")
    assert "carl@127.0.0.1" in described
    assert "s3cret" not in described
