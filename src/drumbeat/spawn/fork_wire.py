"""The protocol between a fork server and its clients: a request with open files, then answers of one JSON line each."""

import contextlib
import json
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOCKET = "forks.sock"  #: a socket file in the state folder, only for its owner
TIMEOUT_SECONDS = 10.0
_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("3i")  #: of the process at the other end: pid, uid, gid
_MOST_FILES = 3
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to fork a process. Open files go with it: output, lock, and leash (a pipe that closes when the parent ends)."""

    words: Sequence[str]  #: the arguments after ``python -m drumbeat``
    environment: Mapping[str, str]
    folder: str  #: the working directory of the process
    made_of: str  #: the client's interpreter and code; a server with other code refuses the request
    record_as: Sequence[str] = ()  #: for a worker: the state folder in which it records itself, its pool and its id
    leash: str | None = None  #: the environment variable in which the process gets the leash's file descriptor

    def to_bytes(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()


def code_identity() -> str:
    """Return a text that identifies this process's interpreter and code. It must be the same in client and fork server."""
    return f"{sys.executable} {sys.version} {Path(__file__).parents[1]}"


def send_request(connection: socket.socket, request: Request, files: Sequence[int]) -> None:
    body = request.to_bytes()
    socket.send_fds(connection, [_LENGTH.pack(len(body))], files)
    connection.sendall(body)


def receive_request(connection: socket.socket) -> tuple[Request, list[int]]:
    """Read a request and its files. Raises OSError or ValueError if it is invalid, after closing the files."""
    head, files, _, _ = socket.recv_fds(connection, _LENGTH.size, _MOST_FILES)
    try:
        size = _LENGTH.unpack(head)[0]
        if size > _MOST_BYTES:
            raise ValueError(f"expected at most {_MOST_BYTES} bytes, got {size}")
        return Request(**json.loads(_read_exactly(connection, size))), files
    except (struct.error, TypeError, ValueError, OSError) as exc:
        close_all(files)
        raise ValueError(f"expected a valid request to fork a process, got: {exc}") from exc


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(min(size - len(received), 1 << 16))
        if not chunk:
            raise ValueError("the connection was closed before the request was complete")
        received += chunk
    return bytes(received)


def send_line(connection: socket.socket, **answer: Any) -> bool:
    """Send an answer as a line of JSON. Returns False if the other process is gone."""
    try:
        connection.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        return False
    return True


def receive_line(connection: socket.socket) -> Mapping[str, Any]:
    """Read the next answer; empty if the other process has closed the connection."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            return {}
        line += byte
    answer: Mapping[str, Any] = json.loads(line)
    return answer


def is_same_user(connection: socket.socket) -> bool:
    """Whether the other process belongs to the same user, so that it is allowed to receive secrets."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(raw)[1] == os.getuid())


def close_all(files: Sequence[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)
