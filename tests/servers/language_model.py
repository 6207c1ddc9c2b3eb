"""A language model's endpoint on this machine that answers, refuses, stalls, drips or lies, and keeps what it was sent."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "key-of-the-language-model-0123456789"
MODEL = "test-model-1"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def figures(self) -> dict[str, Any]:
        """What the user's message holds."""
        found: dict[str, Any] = json.loads(json.loads(self.body)["messages"][-1]["content"])
        return found


@dataclass(slots=True)
class Endpoint:
    """How the endpoint behaves; set it anew before each request."""

    address: str = ""
    asked: list[Asked] = field(default_factory=list)
    status: int = 200
    content: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stalls: bool = False  #: answers nothing
    drips: bool = False  #: begins its answer, and never ends it
    hangs_up: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.address}/v1"

    @property
    def table(self) -> dict[str, Any]:
        """The settings of this endpoint, as in drumbeat.toml."""
        return {"url": self.url, "model": MODEL}

    @property
    def toml(self) -> str:
        return f'[language_model]\nurl = "{self.url}"\nmodel = "{MODEL}"\ntimeout = 60\n'

    def says(self, text: object) -> None:
        self.sends(json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode())

    def refuses(self, status: int, message: str = "") -> None:
        self.sends(json.dumps({"error": {"message": message}}).encode() if message else b"", status=status)

    def sends(self, content: bytes, status: int = 200, content_type: str = "application/json") -> None:
        self.status, self.content, self.content_type, self.headers = status, content, content_type, {}
        self.stalls = self.drips = self.hangs_up = False


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            endpoint.asked.append(Asked(self.path, dict(self.headers.items()), body))
            if endpoint.stalls:
                endpoint.over.wait()
            if endpoint.stalls or endpoint.hangs_up:
                self.close_connection = True
                return
            with suppress(ConnectionError):
                self._answer()

        def _answer(self) -> None:
            self.send_response(endpoint.status)
            for name, value in {"Content-Type": endpoint.content_type, **endpoint.headers}.items():
                self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            while endpoint.drips and not endpoint.over.wait(0.05):
                self.wfile.write(b" ")
            self.wfile.write(endpoint.content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that left is no fault here."""


@contextmanager
def language_model() -> Iterator[Endpoint]:
    """An endpoint on a free port of this machine, for as long as the block lasts."""
    endpoint = Endpoint()
    with _Server(("127.0.0.1", 0), _handler(endpoint)) as server:
        endpoint.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield endpoint
        finally:
            endpoint.over.set()
            server.shutdown()
            thread.join()
