"""Asks a fork server for a process: over its socket in the state folder, or over an inherited socket."""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from drumbeat.core.errors import SpawnAmbiguous
from drumbeat.spawn.fork_wire import SOCKET, TIMEOUT_SECONDS, Request, is_ours, receive_line, send_request
from drumbeat.spawn.tagged import is_running

_POLL_SECONDS = 0.05


class NoForkServer(Exception):
    """No usable fork server: start a process in the usual way. Never leaves this package and the triggers'."""


class Door(Protocol):
    """A way to connect to a fork server."""

    def connect(self) -> socket.socket:
        """Open a connection to it. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class SocketDoor:
    """The server of a state folder, for all processes of the same user."""

    state_dir: Path

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(TIMEOUT_SECONDS)
            connect_within(connection, self.state_dir)
            if not is_ours(connection):
                raise PermissionError(f"expected {self.state_dir / SOCKET} to be served by a process of this user")
        except BaseException:
            connection.close()
            raise
        return connection


@dataclass(frozen=True, slots=True)
class OwnDoor:
    """A server that this process has forked for itself. Each connection is a socket pair; the server is sent one end."""

    line: socket.socket

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.line, [b"."], [theirs.fileno()])
        ours.settimeout(TIMEOUT_SECONDS)
        return ours


def connect_within(connection: socket.socket, folder: Path) -> None:
    """Connect to a folder's socket through its file descriptor: a socket's path may have only about a hundred bytes."""
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{folder_fd}/{SOCKET}")
    finally:
        os.close(folder_fd)


@dataclass(slots=True)
class Forked:
    """A process that a fork server has forked."""

    pid: int
    birth: str
    connection: socket.socket = field(repr=False)

    def wait(self) -> int | None:
        """Wait until it ends and return its exit code; None when the server is gone and the code is unknown."""
        with self.connection:
            try:
                code = receive_line(self.connection).get("exit")
            except (OSError, ValueError):
                code = None
        while code is None and is_running(self.pid, self.birth):
            time.sleep(_POLL_SECONDS)
        return None if code is None else int(code)


def fork(door: Door, request: Request, files: Sequence[int]) -> Forked:
    """Request a process. Raises NoForkServer when certainly none was made, SpawnAmbiguous when no answer came in time."""
    try:
        connection = door.connect()
    except OSError as exc:
        raise NoForkServer(str(exc)) from exc
    try:
        send_request(connection, request, files)
        answer = receive_line(connection)
        connection.settimeout(None)
        if "pid" in answer:
            return Forked(pid=answer["pid"], birth=answer["birth"], connection=connection)
    except TimeoutError as exc:
        connection.close()
        raise SpawnAmbiguous(f"expected the fork server to answer within {TIMEOUT_SECONDS:g} s, got no answer") from exc
    except (OSError, ValueError) as exc:
        connection.close()
        raise NoForkServer(str(exc)) from exc
    connection.close()
    raise NoForkServer(answer.get("refused", "the fork server has stopped"))
