"""A pool, a fleet and a benchmark on two hosts over real SSH, by the ordinary commands only."""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.given import drumbeat, eventually
from e2e.engine_site import ENGINE, HOST, Site
from servers.openssh import OpenSshServer
from servers.places import free_port
from servers.snowflake import PASSWORD, USER, SnowflakeServer
from spawn.ssh.conftest import sshd as sshd

pytestmark = pytest.mark.soak

TEMPLATE = """
name: quick
target: {{url: "{url}"}}
workload: {{standard: tpcb, scale: 0.01}}
timing: {{warmup_seconds: 0, duration_seconds: 1}}
concurrent_connections: 2
scaling: {{mode: FIXED, min_workers: 2, min_connections: 1}}
"""


def write_engines(folder: Path, sshd: OpenSshServer, ports: Mapping[str, int], known: Path | None = None) -> None:
    place = {"engine": "cluster", "address": "127.0.0.1", "user": sshd.user, "slots": 3, "folder": folder}
    hosts = "".join(HOST.format(name=name, port=port, **place) for name, port in ports.items())
    keys = {"key": sshd.key_file, "known": known or sshd.known_hosts, "python": sys.executable, "patience": "2m"}
    (folder / "engines.toml").write_text(ENGINE.format(engine="cluster", **keys) + hosts)


@pytest.fixture
def site(tmp_path: Path, sshd: OpenSshServer, postgres_url: str) -> Site:
    write_engines(tmp_path, sshd, {"node1": sshd.port, "node2": sshd.port})
    return Site(tmp_path, postgres_url)


def test_an_ssh_engine_passes_its_check(site: Site) -> None:
    found = site.json("engine", "check", "cluster", "--timeout", "3m")

    assert found["ok"], found
    assert {step["host"] for step in found["steps"] if step["step"] == "leave"} == {"node1", "node2"}
    assert site.json("pools", "list") == []
    assert site.running == []


def test_workers_over_ssh_sign_in_to_a_store_whose_password_is_in_the_environment(
    tmp_path: Path, sshd: OpenSshServer, snowflake: SnowflakeServer
) -> None:
    write_engines(tmp_path, sshd, {"node1": sshd.port})
    snowflake.add_user(USER, password=PASSWORD)
    site = Site(tmp_path, snowflake.url("SSH_STORE", password=None), DRUMBEAT_STORE_PASSWORD=PASSWORD)
    site.run("store", "init")

    found = site.json("engine", "check", "cluster", "--timeout", "3m")

    assert found["ok"], found
    assert PASSWORD not in json.dumps(found)
    assert not any(PASSWORD.encode() in each.read_bytes() for each in (tmp_path / "node1").rglob("*") if each.is_file())


def test_a_burst_of_jobs_is_done_over_ssh(site: Site) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "cluster,local")
    for n in range(4):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 4, "all jobs are done")
    assert {each["meta"]["engine"] for each in site.json("workers", "list", "jobs")} == {"cluster"}
    eventually(lambda: site.running == [], "the workers leave by themselves")


def test_a_dead_host_stops_neither_jobs_nor_commands(site: Site, sshd: OpenSshServer) -> None:
    write_engines(site.folder, sshd, {"node1": sshd.port, "node2": free_port()})
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "cluster")
    site.run("pool", "push", "jobs", '{"n": 1}')

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 1, "the job is done on the other host")
    assert [each["meta"]["host"] for each in site.json("workers", "list", "jobs")] == ["node1"]
    shown = site.attempt("engine", "workers", "cluster")
    assert shown.code == 1
    assert "engine cluster, or one of its hosts, did not answer: host node2" in shown.output
    checked = site.attempt("engine", "check", "cluster", "--timeout", "180")
    assert checked.code == 1
    assert "engine cluster failed its check (reach on node2); the check left nothing behind" in checked.output
    assert site.attempt("engine", "check", "cluster", "--host", "node1", "--timeout", "180").code == 0


def test_a_worker_that_is_lost_with_its_host_is_replaced_on_another(site: Site, sshd: OpenSshServer) -> None:
    with OpenSshServer() as far:
        known = site.folder / "known"
        known.write_text(sshd.known_hosts.read_text() + far.known_hosts.read_text())
        shutil.copy(sshd.folder / "authorized_keys", far.folder / "authorized_keys")
        write_engines(site.folder, sshd, {"far": far.port}, known)
        handler = f"command:sh -c 'test -e {site.folder}/go || sleep 600; cat'"
        make = ("pool", "create", "jobs", "--handler", handler, "--max-workers", "1", "--heartbeat", "1s")
        site.run(*make, "--engine", "cluster")
        site.run("pool", "push", "jobs", '{"n": 1}')
        site.run("pool", "check", "jobs")
        eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["claimed"] == 1, "the worker has the job")
        (worker,) = site.json("workers", "list", "jobs")
        write_engines(site.folder, sshd, {"far": far.port, "near": sshd.port}, known)
        (site.folder / "go").touch()
        far.cut()
        lost = psutil.Process(worker["pid"])
        for process in (lost, *lost.children(recursive=True)):
            process.kill()

        def is_done() -> bool:
            site.attempt("pool", "check", "jobs")
            return bool(site.json("pool", "status", "jobs")["jobs"]["done"] == 1)

        eventually(is_done, "another worker has done the job")
        hosts = {each["worker_id"]: each["meta"]["host"] for each in site.json("workers", "list", "jobs")}
        assert sorted(hosts.values()) == ["far", "near"]
        assert hosts[worker["worker_id"]] == "far"
        far.start()
        eventually(lambda: site.attempt("pool", "check", "jobs").code == 0, "what the host still had is removed")


def test_workers_go_to_the_next_engine_if_the_first_is_down(site: Site, sshd: OpenSshServer) -> None:
    write_engines(site.folder, sshd, {"node1": free_port()})
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--engine", "cluster,local")
    site.run("pool", "push", "jobs", '{"n": 1}')
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=1", "--engine", "cluster,local")

    site.run("pool", "check", "jobs")
    site.run("fleet", "beat", "f")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 1, "the job is done on this machine")
    workers = [*site.json("workers", "list", "jobs"), *site.json("workers", "list", "f")]
    assert [each["meta"]["engine"] for each in workers] == ["local", "local"]
    eventually(lambda: _statuses(site) == ["active"], "the fleet's worker is active")
    eventually(lambda: _live(site) == [], "the pool's worker has left")

    def is_reaped() -> bool:
        site.run("pool", "check", "jobs")
        return all(each["reaped_at"] for each in site.json("workers", "list", "jobs"))

    eventually(is_reaped, "it is known to be gone: it cannot be at the engine that is down")
    site.run("fleet", "kill", "f", "worker-0")


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


def _live(site: Site) -> list[str]:
    return [each["worker_id"] for each in site.json("workers", "list", "jobs") if each["status"] != "terminated"]


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
