"""A fake PostgreSQL server with known latencies: fake_postgres.py SHAPE

It polls without sleeping, so that answers are sent within microseconds of when they are due. SHAPE: fixed (20 ms), bimodal
(5 ms, every tenth 50 ms), stall (5 ms, and one second out of every ten without answers), instant (at once; this shape sleeps
between requests). Prints its port. On SIGTERM it prints how long each answer really took, in nanoseconds, because the operating
system may delay any process.
"""

import heapq
import json
import select
import signal
import socket
import struct
import sys
import time
from itertools import count

_READY = b"Z\x00\x00\x00\x05I"
_ANSWER = b"2\x00\x00\x00\x04" + b"C\x00\x00\x00\x0dSELECT 1\x00" + _READY
_LOGIN = b"R\x00\x00\x00\x08\x00\x00\x00\x00" + b"K\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x01" + _READY
_PARSED = b"1\x00\x00\x00\x04" + _READY
MS = 1_000_000


class Server:
    """The server: one thread that answers on all connections."""

    def __init__(self, shape: str) -> None:
        self._shape = shape
        self._began = time.monotonic_ns()
        self._served = count(1)
        self._due: list[tuple[int, int, int, socket.socket]] = []
        self.took: list[tuple[int, int]] = []  #: when each answer was sent, and how long it took
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self._poll = select.epoll()
        self._poll.register(self._listening.fileno(), select.EPOLLIN)
        self._sockets: dict[int, socket.socket] = {}
        self._greeted: set[int] = set()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def run(self) -> None:
        patience = -1 if self._shape == "instant" else 0
        while True:
            for fd, _ in self._poll.poll(patience):
                self._attend(fd)
            now = time.monotonic_ns()
            while self._due and self._due[0][0] <= now:
                _, _, asked, connection = heapq.heappop(self._due)
                connection.send(_ANSWER)
                self.took.append((now, time.monotonic_ns() - asked))

    def _attend(self, fd: int) -> None:
        if fd == self._listening.fileno():
            connection, _ = self._listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[connection.fileno()] = connection
            self._poll.register(connection.fileno(), select.EPOLLIN)
            return
        connection = self._sockets[fd]
        data = connection.recv(65536)
        if not data:
            self._forget(fd)
        elif fd not in self._greeted:
            self._greet(fd, connection, data)
        elif data.startswith(b"P"):
            connection.send(_PARSED)
        elif data.startswith(b"B") and self._shape == "instant":
            connection.send(_ANSWER)
        elif data.startswith(b"B"):
            n, now = next(self._served), time.monotonic_ns()
            heapq.heappush(self._due, (self._answer_at(n, now), n, now, connection))

    def _greet(self, fd: int, connection: socket.socket, data: bytes) -> None:
        (code,) = struct.unpack_from("!i", data, 4)
        if code == 80877103:
            connection.send(b"N")
            return
        self._greeted.add(fd)
        connection.send(_LOGIN)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._greeted.discard(fd)
        self._sockets.pop(fd).close()

    def _answer_at(self, n: int, now: int) -> int:
        if self._shape == "fixed":
            return now + 20 * MS
        if self._shape == "bimodal":
            return now + (50 if n % 10 == 0 else 5) * MS
        due = now + 5 * MS
        into = (due - self._began) % (10_000 * MS)
        return due + max(0, 10_000 * MS - into) if into >= 9_000 * MS else due


if __name__ == "__main__":
    server = Server(sys.argv[1])
    print(server.port, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.run()
    finally:
        print(json.dumps(server.took), flush=True)
