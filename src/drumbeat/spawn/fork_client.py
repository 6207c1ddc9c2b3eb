"""Asks a fork server to start a process. A fork server is a running process that forks new ones on request."""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from drumbeat.core.errors import SpawnAmbiguous
from drumbeat.spawn.fork_wire import SOCKET, TIMEOUT_SECONDS, Request, is_same_user, receive_line, send_request
from drumbeat.spawn.tagged import is_running

_POLL_SECONDS = 0.05


class NoForkServer(Exception):
    """No fork server can be used, so the caller starts the process in the usual way. Never raised to users."""


class ForkConnector(Protocol):
    """A way to connect to a fork server: through a socket file, or through an inherited socket."""

    def connect(self) -> socket.socket:
        """Open a connection to the fork server. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class SocketConnector:
    """Connects to the fork server of a state folder, which serves all processes of the same user."""

    state_dir: Path

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(TIMEOUT_SECONDS)
            connect_within(connection, self.state_dir)
            if not is_same_user(connection):
                raise PermissionError(f"expected {self.state_dir / SOCKET} to be served by a process of this user")
        except BaseException:
            connection.close()
            raise
        return connection


@dataclass(frozen=True, slots=True)
class OwnForkConnector:
    """Connects to a fork server that this process has forked for itself, by sending the server one end of a new socket pair."""

    line: socket.socket

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.line, [b"."], [theirs.fileno()])
        ours.settimeout(TIMEOUT_SECONDS)
        return ours


def connect_within(connection: socket.socket, folder: Path) -> None:
    """Connect to the socket file in a folder. Uses /proc/self/fd, as the path of a socket can have only about 100 bytes."""
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{folder_fd}/{SOCKET}")
    finally:
        os.close(folder_fd)


@dataclass(slots=True)
class Forked:
    """A process that a fork server has started, and the connection on which its exit code arrives."""

    pid: int
    birth: str
    connection: socket.socket = field(repr=False)

    def wait(self) -> int | None:
        """Wait until the process ends and return its exit code; None if it is unknown, because the fork server ended first."""
        with self.connection:
            try:
                code = receive_line(self.connection).get("exit")
            except (OSError, ValueError):
                code = None
        while code is None and is_running(self.pid, self.birth):
            time.sleep(_POLL_SECONDS)
        return None if code is None else int(code)


def fork(connector: ForkConnector, request: Request, files: Sequence[int]) -> Forked:
    """Start a process through the fork server to which ``connector`` connects.

    Raises NoForkServer if the process was certainly not started, SpawnAmbiguous if no answer came in time.
    """
    try:
        connection = connector.connect()
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
        message = f"the fork server gave no answer within {TIMEOUT_SECONDS:g} s, so the process might be running"
        raise SpawnAmbiguous(f"{message}; list the workers before trying again") from exc
    except (OSError, ValueError) as exc:
        connection.close()
        raise NoForkServer(str(exc)) from exc
    connection.close()
    raise NoForkServer(answer.get("refused", "the fork server has stopped"))
