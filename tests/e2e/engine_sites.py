"""Sites with real engines, each with a store and a target that its workers reach."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.engine_site import Site, write_ssh_engine
from servers.hosts import HostNetwork, placed
from servers.openssh import OpenSshServer
from servers.postgres import PostgresServer


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


SITES: Mapping[str, Callable[[Path], AbstractContextManager[EnginePlace]]] = {"ssh": ssh_site}
