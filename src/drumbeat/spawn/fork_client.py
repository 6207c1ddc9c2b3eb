"""Asking a fork server for a process: through its socket in the state folder, or through a line that was inherited."""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from drumbeat.core.errors import SpawnAmbiguous
from drumbeat.spawn.fork_wire import PATIENCE_SECONDS, SOCKET, Request, is_ours, receive_line, send_request
from drumbeat.spawn.tagged import is_running

_POLL_SECONDS = 0.05


class NoForkServer(Exception):
    """There is none, or none that will do: start a process the usual way. Never leaves this package and the triggers'."""


class Door(Protocol):
    """A way to a fork server."""

    def knock(self) -> socket.socket:
        """A connection to it. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class SocketDoor:
    """A server that anybody of the same user and state folder may ask."""

    state_dir: Path

    def knock(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(PATIENCE_SECONDS)
            connect_within(connection, self.state_dir)
            if not is_ours(connection):
                raise PermissionError(f"expected {self.state_dir / SOCKET} to be served by a process of this user")
        except BaseException:
            connection.close()
            raise
        return connection


@dataclass(frozen=True, slots=True)
class OwnDoor:
    """A server that this process has forked for itself: each connection is one end of a pair, handed over."""

    line: socket.socket

    def knock(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.line, [b"."], [theirs.fileno()])
        ours.settimeout(PATIENCE_SECONDS)
        return ours


def connect_within(connection: socket.socket, folder: Path) -> None:
    """Connect to a folder's socket, however long its path is: a socket's own may have about a hundred bytes."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{place}/{SOCKET}")
    finally:
        os.close(place)


@dataclass(slots=True)
class Forked:
    """A process that a fork server has become."""

    pid: int
    birth: str
    connection: socket.socket = field(repr=False)

    def wait(self) -> int | None:
        """Return once it is over, with its exit code; None when nobody is left who could tell it."""
        with self.connection:
            try:
                code = receive_line(self.connection).get("exit")
            except (OSError, ValueError):
                code = None
        while code is None and is_running(self.pid, self.birth):
            time.sleep(_POLL_SECONDS)
        return None if code is None else int(code)


def fork(door: Door, request: Request, files: Sequence[int]) -> Forked:
    """Have a process made. Raises NoForkServer when it is certain that none was, SpawnAmbiguous when no answer came in time."""
    try:
        connection = door.knock()
    except OSError as exc:
        raise NoForkServer(str(exc)) from exc
    try:
        send_request(connection, request, files)
        said = receive_line(connection)
        connection.settimeout(None)
        if "pid" in said:
            return Forked(pid=said["pid"], birth=said["birth"], connection=connection)
    except TimeoutError as exc:
        connection.close()
        raise SpawnAmbiguous(f"expected the fork server to answer within {PATIENCE_SECONDS:g} s, it did not") from exc
    except (OSError, ValueError) as exc:
        connection.close()
        raise NoForkServer(str(exc)) from exc
    connection.close()
    raise NoForkServer(said.get("refused", "it has left"))
