"""Engines on which fleets are killed: the processes of their workers are seen on this machine, and their links can be cut."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from random import Random

from e2e.engine_site import write_ssh_engine
from e2e.fleet_kills import EngineGround
from servers.hosts import Host, HostNetwork, placed
from servers.openssh import OpenSshServer
from servers.postgres import PostgresServer

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


GROUNDS: Mapping[str, Callable[[], AbstractContextManager[GroundFactory]]] = {"ssh": ssh_grounds}
