"""A store on one host and workers on others, each host a network namespace; the commands run on this machine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.engine_site import Site, write_ssh_engine
from servers.hosts import Host, HostNetwork, Link, placed
from servers.openssh import OpenSshServer
from servers.postgres import PostgresServer


class HostSite(Site):
    """A site whose engine runs workers on hosts that can be cut off."""

    hosts: Sequence[Host]  #: the workers' hosts, in the order of their names: node1, node2 and so on


SiteFactory = Callable[..., HostSite]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[SiteFactory]:
    """Build a site: the store on a host of its own, and one worker host for each of these links."""
    with ExitStack() as stack:

        def make(*links: Link, settings: Sequence[str] = (), patience: str = "5s") -> HostSite:
            first, *others = stack.enter_context(HostNetwork(len(links) + 1, [Link(), *links])).hosts
            store = stack.enter_context(placed(PostgresServer(), first))
            servers = [placed(OpenSshServer(), host) for host in others]
            for server, lines in zip(servers, [*settings, *[""] * len(servers)], strict=False):
                server.settings = lines
            for server in servers:
                stack.enter_context(server)
            write_ssh_engine(tmp_path, servers, patience=patience)
            site = HostSite(tmp_path, store.new_database())
            site.hosts = others
            return site

        yield make
