"""Several hosts on one machine: network namespaces on one switch, each with an address of its own. Needs root and Linux.

with HostNetwork(3) as network, placed(PostgresServer(), network.hosts[0]) as store:
    network.hosts[1].cut()

Every namespace is held by a process, so that all of it is gone when this process is (see reaper.py).
"""

import ipaddress
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from servers import slow_link
from servers.debian import Unavailable
from servers.life import Server
from servers.reaper import reaper

_READY_SECONDS = 20.0
_Placed = TypeVar("_Placed", bound=Server)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How a host's link behaves; both directions alike."""

    delay: float = 0.0  #: seconds that a packet takes more, one way
    loss: float = 0.0  #: the share of packets that are lost


class Host:
    """A network namespace with one link to the switch."""

    def __init__(self, number: int, address: str, within: Sequence[str], switch: Sequence[str]) -> None:
        self.number, self.address, self.within = number, address, within
        self._switch = switch

    @property
    def name(self) -> str:
        return f"host{self.number}"

    def cut(self) -> None:
        """Pull the cable: packets are lost, nobody is told."""
        self._set("down")

    def heal(self) -> None:
        self._set("up")

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        self.cut()
        try:
            yield
        finally:
            self.heal()

    def _set(self, state: str) -> None:
        _run(*self._switch, "ip", "link", "set", f"port{self.number}", state)


class HostNetwork:
    """Hosts on a network of their own, which this process reaches too, as ``address``."""

    def __init__(self, count: int, links: Sequence[Link] = ()) -> None:
        """``links``: of the first hosts; the others' are perfect."""
        self._links = [*links, *(Link() for _ in range(count - len(links)))]
        self._stack = ExitStack()
        self.hosts: list[Host] = []
        self.address = ""

    def __enter__(self) -> Self:
        if sys.platform != "linux" or os.geteuid() != 0:
            raise Unavailable("hosts in network namespaces need root on Linux")
        with ExitStack() as stack:
            self._build(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()
        self.hosts.clear()

    def _build(self, stack: ExitStack) -> None:
        network = _free_network()
        places = network.hosts()
        self.address = str(next(places))
        switch = stack.enter_context(_namespace())
        bridge = _within(switch)
        _run(*bridge, "ip", "link", "add", "bridge", "type", "bridge")
        _run(*bridge, "ip", "link", "set", "bridge", "up")
        ours = f"drum{switch}"
        _run("ip", "link", "add", ours, "type", "veth", "peer", "name", "port", "netns", str(switch))
        self._connect((), ours, self.address, network.prefixlen)
        self._plug(bridge, "port")
        for number, link in enumerate(self._links):
            held = stack.enter_context(_namespace())
            host = Host(number, str(next(places)), _within(held), bridge)
            _run(*host.within, "ip", "link", "set", "lo", "up")
            port = f"port{number}"
            if link == Link():
                _run(*host.within, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", str(switch))
            else:
                stack.enter_context(_slow_link(held, "eth0", switch, port, link))
            self._connect(host.within, "eth0", host.address, network.prefixlen)
            self._plug(bridge, port)
            self.hosts.append(host)

    def _connect(self, within: Sequence[str], device: str, address: str, length: int) -> None:
        _run(*within, "ip", "addr", "add", f"{address}/{length}", "dev", device)
        _run(*within, "ip", "link", "set", device, "up")

    def _plug(self, bridge: Sequence[str], port: str) -> None:
        _run(*bridge, "ip", "link", "set", port, "master", "bridge")
        _run(*bridge, "ip", "link", "set", port, "up")


def placed(server: _Placed, host: Host) -> _Placed:
    """A server that was not started yet, to run on this host."""
    server.address, server.within = host.address, host.within
    return server


@contextmanager
def _namespace() -> Iterator[int]:
    """A process in a network namespace of its own; its pid."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE, start_new_session=True
    )
    reaper().watch(holder.pid)
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            raise Unavailable("network namespaces are not allowed here")
        yield holder.pid
    finally:
        _ended(holder)


@contextmanager
def _slow_link(host: int, device: str, switch: int, port: str, link: Link) -> Iterator[None]:
    """A link whose frames are carried by a process, late, and not all of them."""
    command = [sys.executable, slow_link.__file__, str(host), device, str(switch), port, str(link.delay), str(link.loss)]
    carrier = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    reaper().watch(carrier.pid)
    try:
        assert carrier.stdout is not None
        if carrier.stdout.readline() != b"ready\n":
            raise Unavailable("TAP devices are not allowed here")
        yield
    finally:
        _ended(carrier)


def _ended(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()
    reaper().forget(process.pid)


def _within(pid: int) -> tuple[str, ...]:
    return ("nsenter", f"--net=/proc/{pid}/ns/net", "--")


def _free_network() -> ipaddress.IPv4Network:
    """A network of addresses that this machine has no route to."""
    taken = [ipaddress.ip_network(each["dst"]) for each in json.loads(_run("ip", "-json", "route")) if each["dst"] != "default"]
    for _ in range(100):
        chance = random.SystemRandom()
        network = ipaddress.IPv4Network(f"10.{chance.randrange(64, 250)}.{chance.randrange(256)}.0/24")
        if not any(network.overlaps(each) for each in taken if each.version == 4):
            return network
    raise Unavailable("expected a free network within 10.64.0.0 to 10.250.0.0; a hundred random ones were taken")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
