"""deploy/Dockerfile, built by a real daemon, on a base image with stand-ins for its programs: no other can be fetched here."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from servers.dockerd import DockerDaemon, busybox

ROOT = Path(__file__).parents[3]
#: programs of the base image that the file runs; each prints its arguments
STAND_INS = {
    "usr/bin/apt-get": 'echo "apt-get $*"',
    "usr/bin/useradd": 'echo "useradd $*"; mkdir -p /home/drumbeat; chown 10001:10001 /home/drumbeat',
    "usr/bin/python": 'mkdir -p "$3/bin"; cp /stand-ins/pip "$3/bin/"',
    "stand-ins/pip": 'echo "pip $*"; ls; cp /stand-ins/drumbeat /opt/drumbeat/bin/',
    "stand-ins/drumbeat": 'echo "drumbeat as $(id -u): $*"',
}


def base_image() -> bytes:
    """The tests' image of busybox, with the stand-ins."""
    packed = io.BytesIO(busybox())
    with tarfile.open(fileobj=packed, mode="a") as archive:
        for name, program in STAND_INS.items():
            content = f"#!/bin/sh\n{program}\n".encode()
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture(scope="module")
def built(dockerd: DockerDaemon) -> str:
    """What the build of both targets said."""
    dockerd.import_image("drumbeat-test/base:1", base_image())
    said = ""
    for target in ("server", "worker"):
        options = ("--build-arg", "BASE=drumbeat-test/base:1", "--build-arg", "EXTRAS=postgres,web", "--network", "none")
        where = ("--file", str(ROOT / "deploy" / "Dockerfile"), "--tag", f"drumbeat-{target}:test", str(ROOT))
        said += dockerd.run("build", "--target", target, *options, *where)
    return said


def config(dockerd: DockerDaemon, target: str) -> Any:
    return json.loads(dockerd.run("image", "inspect", f"drumbeat-{target}:test"))[0]["Config"]


def test_the_extras_and_pinned_versions_are_installed(built: str) -> None:
    assert "pip install --no-cache-dir --constraint constraints.txt .[postgres,web]" in built


def test_only_what_is_needed_is_sent_to_the_daemon(built: str) -> None:
    listed = built.partition(".[postgres,web]\n")[2].partition("Removing")[0].split()

    assert sorted(listed)[:6] == ["LICENSE", "README.md", "constraints.txt", "hatch_build.py", "pyproject.toml", "src"]


def test_both_images_run_drumbeat_as_another_user_than_root(built: str, dockerd: DockerDaemon) -> None:
    assert dockerd.run("run", "--rm", "--init", "drumbeat-worker:test", "worker", "--run-id", "r") == (
        "drumbeat as 10001: worker --run-id r\n"
    )
    assert dockerd.run("run", "--rm", "--init", "drumbeat-server:test") == "drumbeat as 10001: serve --host 0.0.0.0\n"


def test_only_the_server_has_a_health_check(built: str, dockerd: DockerDaemon) -> None:
    server, worker = config(dockerd, "server"), config(dockerd, "worker")

    assert server["Healthcheck"]["Test"][0] == "CMD"
    assert worker.get("Healthcheck") is None
    assert [server["User"], worker["User"]] == ["10001:10001"] * 2
