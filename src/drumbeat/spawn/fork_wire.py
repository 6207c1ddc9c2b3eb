"""What a fork server and those who ask it say to each other: one request with its open files, then a line for each answer."""

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

SOCKET = "forks.sock"  #: in the state folder, for its owner alone
PATIENCE_SECONDS = 10.0
_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("3i")  #: pid, uid, gid
_MOST_FILES = 3
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Somebody to become. The files that come with it: where it writes, what it closes once it is known, and its leash."""

    words: Sequence[str]  #: what would stand after ``python -m drumbeat``
    environment: Mapping[str, str]
    folder: str  #: its working directory
    made_of: str  #: the asker's interpreter and code: a server made of others refuses
    known_as: Sequence[str] = ()  #: the state folder, the pool and the worker, for a worker: it notes itself there first of all
    leash: str | None = None  #: the variable that shall name its leash

    def to_bytes(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()


def made_of() -> str:
    """Which interpreter runs which code: a worker must be of the same as those who ask for it."""
    return f"{sys.executable} {sys.version} {Path(__file__).parents[1]}"


def send_request(connection: socket.socket, request: Request, files: Sequence[int]) -> None:
    body = request.to_bytes()
    socket.send_fds(connection, [_LENGTH.pack(len(body))], files)
    connection.sendall(body)


def receive_request(connection: socket.socket) -> tuple[Request, list[int]]:
    """Raises OSError or ValueError for what is none, with its files closed."""
    head, files, _, _ = socket.recv_fds(connection, _LENGTH.size, _MOST_FILES)
    try:
        size = _LENGTH.unpack(head)[0]
        if size > _MOST_BYTES:
            raise ValueError(f"expected a request of at most {_MOST_BYTES} bytes, got {size}")
        return Request(**json.loads(_exactly(connection, size))), files
    except (struct.error, TypeError, ValueError, OSError) as exc:
        close_all(files)
        raise ValueError(f"expected a request, got: {exc}") from exc


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(min(size - len(received), 1 << 16))
        if not chunk:
            raise ValueError("the end, too early")
        received += chunk
    return bytes(received)


def send_line(connection: socket.socket, **said: Any) -> bool:
    """Whether somebody may hear it."""
    try:
        connection.sendall(json.dumps(said).encode() + b"\n")
    except OSError:
        return False
    return True


def receive_line(connection: socket.socket) -> Mapping[str, Any]:
    """What was said next; nothing, if the other side has left."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            return {}
        line += byte
    said: Mapping[str, Any] = json.loads(line)
    return said


def is_ours(connection: socket.socket) -> bool:
    """Whether the other side is a process of the same user: it gets, or gives, secrets."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(raw)[1] == os.getuid())


def close_all(files: Sequence[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)
