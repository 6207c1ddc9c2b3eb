"""A Docker daemon that only answers what a test tells it to."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.docker import DockerSettings
from drumbeat.spawn.interface import Order

POOL, ANN = PoolId("jobs"), WorkerId("ann")
ORDER = Order(pool_id=POOL, worker_id=ANN, slot=0, group_count=1, command=("/bin/true",), is_first=True)
CREATED = (201, {"Id": "c" * 64, "Warnings": []})
STARTED = (204, None)
NO_IMAGE = (404, {"message": "No such image: worker:1"})

Answer = tuple[int, Any]


@dataclass(slots=True)
class FakeDaemon:
    """Its answers by method and end of path; of several answers to the same request the last is repeated."""

    answers: dict[str, Sequence[Answer]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)  #: what was asked, with the bodies
    port: int = 0

    def settings(self, **changed: Any) -> DockerSettings:
        given = {"base_url": f"tcp://127.0.0.1:{self.port}", "image": "worker:1", "timeout": timedelta(seconds=60), **changed}
        return DockerSettings(**given)

    def answer(self, request: str, body: Any) -> Answer:
        if request == "GET /version":
            return 200, {"ApiVersion": "1.41"}
        known = next((each for each in self.answers if request.startswith(each.partition(" ")[0]) and _fits(each, request)), "")
        before = sum(1 for each, _ in self.asked if _fits(known, each)) if known else 0
        self.asked.append((request, body))
        if not known:
            return 404, {"message": f"No such container: {request}"}
        given = self.answers[known]
        return given[min(before, len(given) - 1)]

    def count(self, request: str) -> int:
        """How often this was asked."""
        return sum(1 for each, _ in self.asked if _fits(request, each))


def _fits(pattern: str, request: str) -> bool:
    (method, end), (asked, path) = pattern.split(" "), request.split(" ")
    return method == asked and path.endswith(end)


@contextmanager
def fake_daemon(answers: dict[str, Sequence[Answer]]) -> Iterator[FakeDaemon]:
    """A daemon on a loopback port, until the end of the block."""
    daemon = FakeDaemon(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            read = self.rfile.read(length)
            status, body = daemon.answer(f"{self.command} {urlsplit(self.path).path}", json.loads(read) if read else None)
            self.send_response(status)
            content = b"" if body is None or self.command == "HEAD" else json.dumps(body).encode()
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        daemon.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield daemon
        finally:
            server.shutdown()
            thread.join()
