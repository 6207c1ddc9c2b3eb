"""Every route there is, called from another interface without a token, and by a reader: nobody gets in, nothing changes."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from cli.given import environment
from web.given import READ_TOKEN, TOKEN, bearer

PROBES = ("/health", "/ready")  #: for load balancers, which have no token

#: the real command, but it first tells which routes it has
SERVER = """
import json, sys
from drumbeat.web import server
from drumbeat.web.methods import all_routes

def table(routes):
    for route in all_routes(routes):
        inner = getattr(route, "routes", None)
        path = getattr(route, "path", "")
        if inner and type(route).__name__ in ("Mount", "Host"):
            yield from ((kind, path + more, methods) for kind, more, methods in table(inner))
            yield "http", path + "/anything", ["GET"]
        elif type(route).__name__ == "Mount":
            yield "http", path + "/anything", ["GET"]
        elif "WebSocket" in type(route).__name__:
            yield "websocket", path, []
        else:
            yield "http", path, sorted(getattr(route, "methods", None) or ["GET"])

made = server.make_app

def make_app(state, **more):
    outer = app = made(state, **more)
    while not hasattr(app, "routes"):
        app = app._app
    print(json.dumps(list(table(app.routes))), flush=True)
    return outer

server.make_app = make_app
sys.argv[0] = "drumbeat"
from drumbeat.cli.main import main
main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server in a process of its own."""

    process: "subprocess.Popen[str]"
    routes: list[tuple[str, str, list[str]]]
    port: int

    @property
    def outside(self) -> str:
        """Its address on another interface than loopback, where the machine has one."""
        return f"{_own_address()}:{self.port}"


def _own_address() -> str:
    found = [
        each.address
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
        if each.family is socket.AF_INET and not each.address.startswith("127.")
    ]
    return found[0] if found else "127.0.0.1"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("walk")
    variables = environment(DRUMBEAT_TOKEN=TOKEN, DRUMBEAT_READ_TOKEN=READ_TOKEN)
    command = (sys.executable, "-c", SERVER, "serve", "--host", "0.0.0.0", "--port", "0", "--no-conduct")
    with (folder / "log").open("w+") as log:
        with subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            try:
                assert process.stdout is not None
                routes = json.loads(process.stdout.readline())
                port = int(re.findall(r":(\d+)", process.stdout.readline())[-1])
                yield Served(process=process, routes=[(kind, path, methods) for kind, path, methods in routes], port=port)
            finally:
                process.terminate()
                process.wait(30)
        log.seek(0)
        said = log.read()
    assert TOKEN not in said
    assert READ_TOKEN not in said
    assert "Traceback" not in said


def _filled(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "x", path) or "/"


class TestWalk:
    def test_the_table_has_what_there_is(self, served: Served) -> None:
        paths = {path for _, path, _ in served.routes}

        assert {"/health", "/metrics", "/api/v1/runs", "/hooks/{name}", "/api/v1/openapi.json", "/"} <= paths
        assert any("nicegui" in path for path in paths)
        assert any(kind == "websocket" for kind, _, _ in served.routes)
        assert len(paths) > 60

    @pytest.mark.parametrize(("path", "said"), [("/health", {"status": "alive"}), ("/ready", {"status": "ready"})])
    def test_a_probe_needs_no_token_and_hears_one_word(self, served: Served, path: str, said: dict[str, str]) -> None:
        with httpx.Client(base_url=f"http://{served.outside}", headers={"Host": "10.0.0.7:8321"}) as probe:
            answer = probe.get(path)
            assert (answer.status_code, answer.json()) == (200, said)
            assert (probe.head(path).status_code, probe.post(path).status_code) == (200, 401)
            assert "server" not in answer.headers

    @pytest.mark.parametrize("headers", [{}, {"Cookie": "drumbeat_session=e30.x"}, {"Host": "127.0.0.1"}])
    def test_without_a_token_there_is_nothing_but_401(self, served: Served, headers: dict[str, str]) -> None:
        with httpx.Client(base_url=f"http://{served.outside}", headers=headers) as stranger:
            assert len(served.routes) > 50
            for kind, path, methods in served.routes:
                if kind == "http":
                    answered = {"GET", "HEAD"} if path in PROBES else set()
                    for method in {*methods, "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH"} - answered:
                        answer = stranger.request(method, _filled(path))
                        assert answer.status_code == 401, (method, path, answer.status_code)
                        assert "drumbeat" not in answer.text.lower() or answer.headers["WWW-Authenticate"]

    @pytest.mark.parametrize(
        "path",
        ["/favicon.ico", "/_nicegui/", "/_nicegui_ws/socket.io/?EIO=4&transport=polling", "/docs", "/static/../x", "/%00"],
    )
    def test_nor_anywhere_else(self, served: Served, path: str) -> None:
        assert httpx.get(f"http://{served.outside}{path}").status_code == 401

    def test_nor_by_websocket(self, served: Served) -> None:
        sockets = [_filled(path) for kind, path, _ in served.routes if kind == "websocket"]
        for path in [*sockets, "/_nicegui_ws/socket.io/?EIO=4&transport=websocket", "/nowhere"]:
            with pytest.raises(InvalidStatus) as caught, connect(f"ws://{served.outside}{path}"):
                pass
            assert caught.value.response.status_code == 401, path

    def test_nor_by_a_websocket_of_another_sites_page(self, served: Served) -> None:
        headers = {**bearer(TOKEN), "Origin": "https://evil.example"}
        with (
            pytest.raises(InvalidStatus) as caught,
            connect(f"ws://{served.outside}/api/v1/pools/x/stream", additional_headers=headers, origin=None),
        ):
            pass
        assert caught.value.response.status_code == 403

    def test_a_reader_changes_nothing(self, served: Served) -> None:
        with httpx.Client(base_url=f"http://{served.outside}", headers=bearer(READ_TOKEN)) as reader:
            before = reader.get("/api/v1/pools").json()
            for kind, path, methods in served.routes:
                for method in set(methods) - {"GET", "HEAD", "OPTIONS"}:
                    answer = reader.request(method, _filled(path), json={})
                    expected = 401 if path.startswith("/hooks/") else 403
                    assert (kind, answer.status_code) == ("http", expected), (method, path)
            assert reader.get("/api/v1/pools").json() == before
            assert reader.get("/api/v1/info").json()["role"] == "reader"

    def test_an_operator_gets_in(self, served: Served) -> None:
        with httpx.Client(base_url=f"http://{served.outside}", headers=bearer(TOKEN)) as operator:
            assert operator.post("/api/v1/pools", json={"pool_id": "made"}).status_code == 201
            page = operator.get("/", headers={"Accept": "text/html"})

        assert page.status_code == 200
        assert TOKEN not in page.text
        assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page.text)
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]

    def test_no_token_is_in_the_list_of_processes(self, served: Served) -> None:
        shown = " ".join(psutil.Process(served.process.pid).cmdline())

        assert "serve" in shown
        assert TOKEN not in shown


def test_a_server_without_a_token_stays_on_this_machine(tmp_path: Path) -> None:
    from cli.given import drumbeat

    said = drumbeat("serve", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)

    assert said.code == 1
    assert "DRUMBEAT_TOKEN" in said.errors
    assert "TLS" in said.errors
