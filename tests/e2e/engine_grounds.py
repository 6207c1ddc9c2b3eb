"""Engines on which fleets are killed: the processes of their workers are seen on this machine, and their links can be cut."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from random import Random

from e2e.engine_site import write_ssh_engine
from e2e.engine_sites import slurm_variables, write_docker_engine, write_slurm_engine
from e2e.fleet_kills import EngineGround
from servers.dockerd import DockerDaemon
from servers.hosts import Host, HostNetwork, placed
from servers.life import Server
from servers.openssh import OpenSshServer
from servers.postgres import PostgresServer
from servers.slurm import SlurmServer

#: makes the ground for a run in a new folder
GroundFactory = Callable[[Path], EngineGround]


class HostGround(EngineGround):
    """Workers over SSH on hosts whose links can be cut, that of the store too."""

    settles_within = 240.0

    def __init__(self, folder: Path, url: str, hosts: Sequence[Host]) -> None:
        super().__init__(folder, "cluster", url)
        self._hosts = hosts

    async def disturb(self, chance: Random) -> bool:
        """Cut a host off, for less or more time than a worker may be silent."""
        with chance.choice(self._hosts).unreachable():
            await asyncio.sleep(chance.uniform(0.5, 9))
        return True


class FrozenGround(EngineGround):
    """Workers at an engine whose server can stand still."""

    settles_within = 240.0

    def __init__(self, folder: Path, engine: str, url: str, server: Server) -> None:
        super().__init__(folder, engine, url)
        self._server = server

    async def disturb(self, chance: Random) -> bool:
        """Let the engine's server stand still for a while: nobody answers, and workers go on."""
        with self._server.paused():
            await asyncio.sleep(chance.uniform(0.5, 9))
        return True


@contextmanager
def ssh_grounds() -> Iterator[GroundFactory]:
    """A store on one host and workers on two others."""
    with ExitStack() as stack:
        network = stack.enter_context(HostNetwork(3))
        store = stack.enter_context(placed(PostgresServer(), network.hosts[0]))
        servers = [stack.enter_context(placed(OpenSshServer(), host)) for host in network.hosts[1:]]

        def ground(folder: Path) -> EngineGround:
            write_ssh_engine(folder, servers, slots=6, patience="5s")
            return HostGround(folder, store.new_database(), network.hosts)

        yield ground


@contextmanager
def docker_grounds() -> Iterator[GroundFactory]:
    with DockerDaemon() as daemon, PostgresServer() as store:

        def ground(folder: Path) -> EngineGround:
            write_docker_engine(folder, daemon, engine="docker", slots=12)
            return FrozenGround(folder, "docker", store.new_database(), daemon)

        yield ground


@contextmanager
def slurm_grounds() -> Iterator[GroundFactory]:
    with SlurmServer() as server, PostgresServer() as store:

        def ground(folder: Path) -> EngineGround:
            write_slurm_engine(folder, server, "slurm")
            made = FrozenGround(folder, "slurm", store.new_database(), server)
            made.variables = slurm_variables(server)
            return made

        yield ground


GROUNDS: Mapping[str, Callable[[], AbstractContextManager[GroundFactory]]] = {
    "ssh": ssh_grounds,
    "docker": docker_grounds,
    "slurm": slurm_grounds,
}
