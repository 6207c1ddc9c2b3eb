"""A real Docker daemon for tests: Debian's packages without installing them, with an image that holds busybox.

with DockerDaemon() as daemon:
    daemon.url, daemon.image, daemon.environment

It needs root. It lives in mount and process namespaces of its own, so that its mounts and containers end with it.
"""

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import docker
import psutil

from servers import debian
from servers.debian import Unavailable
from servers.life import Server
from servers.unprivileged import RunAs, ServerFailed, start

__all__ = ["DockerDaemon", "Unavailable", "installation"]

_PROGRAMS = (
    "usr/sbin/dockerd",
    "usr/sbin/runc",
    "usr/bin/docker",
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/tini-static",
    "bin/busybox",
)
#: what the programs of the spawners' contract call
_APPLETS = (
    "cat",
    "chmod",
    "chown",
    "echo",
    "env",
    "id",
    "kill",
    "ls",
    "mkdir",
    "od",
    "printf",
    "rm",
    "setsid",
    "sh",
    "sleep",
    "tr",
    "true",
    "wc",
)
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def _lay_out(tree: Path, flat: Path) -> None:
    for program in _PROGRAMS:
        if (tree / program).exists():
            shutil.copy(tree / program, flat / Path(program).name)
    if (flat / "tini-static").exists():
        shutil.copy(flat / "tini-static", flat / "docker-init")


_PROGRAM = debian.Program(
    name="dockerd",
    folder="docker",
    packages=("docker.io", "containerd", "runc", "tini", "busybox-static", "libseccomp2"),
    depending="docker.io",
    lay_out=_lay_out,
)


@cache
def installation() -> Path:
    """The folder with ``dockerd``, ``docker`` and what they need, unpacked into the cache."""
    return _PROGRAM.unpacked()


class DockerDaemon(Server):
    """A dockerd with a folder of its own for everything, no bridge, and one image."""

    PRODUCT, PREFIX = "Docker", "drumbeat-dockerd-"
    START_SECONDS, STOP_SECONDS = 120.0, 60.0
    IMAGE = "drumbeat-test/busybox:1"

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def image(self) -> str:
        return self.IMAGE

    @property
    def written(self) -> Sequence[Path]:
        """The folders in which the daemon writes."""
        return [self.folder / "data", self.folder / "exec"]

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables with which ``docker`` reaches this daemon."""
        return {"DOCKER_HOST": self.url, "PATH": f"{installation()}:{os.environ['PATH']}"}

    def run(self, *arguments: str) -> str:
        """Run the docker command. Raises ServerFailed."""
        environment = {**os.environ, **self.environment, "DOCKER_BUILDKIT": "0", "DOCKER_CONFIG": str(self.folder / "client")}
        done = subprocess.run(["docker", *arguments], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"docker {' '.join(arguments)} exited with {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    @property
    def process(self) -> psutil.Process:
        """The daemon itself, below the processes that make its namespaces."""
        return next(each for each in psutil.Process(self._running().pid).children(recursive=True) if each.name() == "dockerd")

    def stop(self) -> None:
        """End it; its namespace, and with it all containers, end too."""
        with suppress(psutil.NoSuchProcess, StopIteration):
            daemon = self.process
            daemon.terminate()
            daemon.wait(self.STOP_SECONDS)
        super().kill()

    def close(self) -> None:
        if self.is_running:
            self.stop()
        super().close()

    def import_image(self, name: str, files: bytes) -> None:
        """Make an image of a tar archive."""
        repository, _, tag = name.partition(":")
        with self._client() as client:
            client.import_image_from_data(files, repository=repository, tag=tag)

    def _furnish(self) -> None:
        installation()
        if os.geteuid() != 0:
            raise Unavailable("dockerd needs root")
        for name in ("data", "exec", "client"):
            (self.folder / name).mkdir(mode=0o711)
        (self.folder / "client" / "config.json").write_text("{}")

    def _launched(self, port: int) -> subprocess.Popen[bytes]:
        program = installation()
        command = [
            *_NAMESPACES,
            str(program / "tini-static"),
            "--",
            str(program / "dockerd"),
            f"--host={self.url}",
            f"--data-root={self.folder}/data",
            f"--exec-root={self.folder}/exec",
            f"--pidfile={self.folder}/docker.pid",
            "--iptables=false",
            "--bridge=none",
            "--storage-driver=vfs",
        ]
        for left in (self.socket, self.folder / "docker.pid"):
            left.unlink(missing_ok=True)
        path = f"{program}:{os.environ['PATH']}:/usr/sbin:/sbin"
        return start(command, RunAs.ITSELF, self.log, {"PATH": path, "LD_LIBRARY_PATH": str(program)})

    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        if not self.socket.exists():
            return False
        try:
            with self._client() as client:
                client.ping()
                if not client.images(self.IMAGE):
                    repository, _, tag = self.IMAGE.partition(":")
                    client.import_image_from_data(busybox(), repository=repository, tag=tag)
        except (docker.errors.DockerException, OSError):
            return False
        return True

    def _client(self) -> docker.APIClient:
        return docker.APIClient(base_url=self.url)


def busybox() -> bytes:
    """A tar archive of a root file system with busybox under the names of its programs."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            archive.addfile(_entry(folder, tarfile.DIRTYPE, mode))
        archive.add(installation() / "busybox", "bin/busybox")
        for applet in _APPLETS:
            link = _entry(f"bin/{applet}", tarfile.SYMTYPE, 0o777)
            link.linkname = "busybox"
            archive.addfile(link)
        users = b"root:x:0:0:root:/:/bin/sh\nworker:x:1000:1000:worker:/tmp:/bin/sh\n"
        passwd = _entry("etc/passwd", tarfile.REGTYPE, 0o644)
        passwd.size = len(users)
        archive.addfile(passwd, io.BytesIO(users))
    return packed.getvalue()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry
