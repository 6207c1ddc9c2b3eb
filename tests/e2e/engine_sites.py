"""Sites with real engines, each with a store and a target that its workers reach."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.engine_site import Site, write_ssh_engine
from servers.dockerd import DockerDaemon
from servers.hosts import HostNetwork, placed
from servers.openssh import OpenSshServer
from servers.postgres import PostgresServer
from servers.ray_head import RayHead
from servers.slurm import SlurmServer

ROOT = Path(__file__).parents[2]
RAY_TOKEN = "RAY_TOKEN_OF_THE_TEST"
DOCKER = """
[engines.{engine}]
kind = "docker"
base_url = "{url}"
image = "{image}"
pull = "never"
command = ["{python}", "-m", "drumbeat", "worker"]
mounts = {mounts}
network = "host"
slots = {slots}
price_per_hour = 0.1
timeout = "2m"
"""
SLURM = """
[engines.{engine}]
kind = "slurm"
python = "{python}"
folder = "{folder}/shared"
programs = "{programs}"
price_per_hour = 0.1
timeout = "2m"
"""
RAY = """
[engines.{engine}]
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


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """A site, and the URL of a database for benchmarks."""

    site: Site
    target: str


@contextmanager
def ssh_site(folder: Path, hosts: int = 5) -> Iterator[EnginePlace]:
    """A store on a host of its own, and workers over SSH on others."""
    with ExitStack() as stack:
        first, *others = stack.enter_context(HostNetwork(hosts + 1)).hosts
        store = stack.enter_context(placed(PostgresServer(), first))
        servers = [stack.enter_context(placed(OpenSshServer(), host)) for host in others]
        write_ssh_engine(folder, servers, engine="ssh", slots=2)
        yield EnginePlace(Site(folder, store.new_database(), "ssh"), store.new_database())


def host_mounts() -> list[str]:
    """What Python and Drumbeat need of this machine: its libraries, its Python, this repository."""
    folders = [Path("/usr"), Path("/lib"), Path("/lib64"), Path(sys.base_prefix), Path(sys.prefix), ROOT]
    there = [folder for folder in folders if folder.is_dir()]
    outer = [each for each in there if not any(each != other and each.is_relative_to(other) for other in there)]
    return [f"{folder}:{folder}:ro" for folder in dict.fromkeys(outer)]


def write_docker_engine(folder: Path, daemon: DockerDaemon, *mounts: str, engine: str = "box", slots: int = 4) -> Path:
    """Write engines.toml with an engine whose containers use this machine's Python; returns the file."""
    file = folder / "engines.toml"
    place = {"engine": engine, "url": daemon.url, "image": daemon.image, "python": sys.executable, "slots": slots}
    file.write_text(DOCKER.format(**place, mounts=json.dumps([*host_mounts(), *mounts])))
    return file


def write_slurm_engine(folder: Path, server: SlurmServer, engine: str = "cluster") -> Path:
    """Write engines.toml with an engine on this cluster; returns the file."""
    file = folder / "engines.toml"
    file.write_text(SLURM.format(engine=engine, python=sys.executable, folder=folder, programs=server.bin))
    return file


def write_ray_engine(folder: Path, address: str, engine: str = "rays", more: str = "", start: str = "1m") -> Path:
    """Write engines.toml with an engine on this head; returns the file. ``more``: further lines."""
    file = folder / "engines.toml"
    place = {"engine": engine, "address": address, "variable": RAY_TOKEN, "python": sys.executable}
    file.write_text(RAY.format(**place, more=more, start=start))
    return file


def slurm_variables(server: SlurmServer) -> dict[str, str]:
    """Variables by which commands find Slurm's programs."""
    return {"PATH": f"{server.bin}:{os.environ['PATH']}"}


@contextmanager
def docker_site(folder: Path) -> Iterator[EnginePlace]:
    with DockerDaemon() as daemon, PostgresServer() as store:
        write_docker_engine(folder, daemon, engine="docker")
        yield EnginePlace(Site(folder, store.new_database(), "docker"), store.new_database())


@contextmanager
def slurm_site(folder: Path) -> Iterator[EnginePlace]:
    with SlurmServer() as server, PostgresServer() as store:
        write_slurm_engine(folder, server, "slurm")
        yield EnginePlace(Site(folder, store.new_database(), "slurm", **slurm_variables(server)), store.new_database())


@contextmanager
def ray_site(folder: Path) -> Iterator[EnginePlace]:
    with RayHead() as head, PostgresServer() as store:
        write_ray_engine(folder, head.url, "ray")
        yield EnginePlace(Site(folder, store.new_database(), "ray", **{RAY_TOKEN: head.token}), store.new_database())


SITES: Mapping[str, Callable[[Path], AbstractContextManager[EnginePlace]]] = {
    "ssh": ssh_site,
    "docker": docker_site,
    "slurm": slurm_site,
    "ray": ray_site,
}
