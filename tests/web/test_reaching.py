"""What makes the server connect to a database under test or to a provider is for operators; readers reach the store alone."""

import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.pool import PoolKind, pool
from drumbeat.web.methods import all_routes
from web.given import KEY, LOCKED, READ_TOKEN, TOKEN, Web, bearer, document, furnish, web

REACHING = {
    "/api/v1/connections/{name}/tables",
    "/api/v1/connections/{name}/tables/{table}",
    "/api/v1/templates/{template_id}/plan",
    "/api/v1/fleet/{pool_id}/plan",
}  #: routes read with GET for which the server connects to somewhere else; readers are refused
ENDLESS = {"/api/v1/runs/{run_id}/events-stream", "/api/v1/pools/{pool_id}/events-stream"}  #: streams over the store


class Listener:
    """A port of this machine that counts who connects to it, and hangs up."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.calls = 0
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def _count(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            caller.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
async def reachable(tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Web]:
    """A server whose connection, template and fleet all lead to the listener."""
    monkeypatch.setenv("DRUMBEAT_KEY", KEY)
    monkeypatch.setenv("RUNPOD_API_KEY", "key")
    monkeypatch.setenv("RUNPOD_API_URL", f"http://127.0.0.1:{listener.port}")
    async with web(tmp_path, LOCKED) as made:
        await furnish(made)
        await made.plane.connections().add("elsewhere", f"postgresql://bench@127.0.0.1:{listener.port}/x", None, None)
        target = {"connection": "elsewhere", "table": "items"}
        await made.plane.bench().add_template(document(made, name="far", target=target, workload={}), "far")
        await made.plane.store.pools.create(pool("rented", PoolKind.JOBS, policy="lag_aware", provider="runpod"))
        listener.calls = 0
        yield made


def routes(made: Web) -> set[str]:
    app: Any = made.app
    while not hasattr(app, "routes"):
        app = app._app
    found = [route for route in all_routes(app.routes) if "GET" in (getattr(route, "methods", None) or ())]
    return {str(getattr(route, "path", "")) for route in found} - ENDLESS


async def places(made: Web) -> dict[str, list[str]]:
    runs = await made.plane.store.runs.list()
    return {
        "name": ["elsewhere"],
        "table": ["items"],
        "template_id": ["far", "kept"],
        "pool_id": ["rented", "fleet", "jobs"],
        "run_id": [str(run.run_id) for run in runs][:1],
        "job_id": ["one"],
    }


def filled(path: str, known: dict[str, list[str]]) -> list[str]:
    names = re.findall(r"\{(\w+)[^}]*\}", path)
    given = [path]
    for name in names:
        given = [re.sub(rf"\{{{name}[^}}]*\}}", value, each) for each in given for value in known.get(name, ["x"])]
    return given


async def test_a_reader_reaches_nothing_but_the_store(reachable: Web, listener: Listener) -> None:
    known = await places(reachable)
    answered: dict[str, set[int]] = {}
    async with reachable.client(bearer(READ_TOKEN)) as reader:
        for path in sorted(routes(reachable)):
            for each in filled(path, known):
                answer = await reader.get(each)
                assert listener.calls == 0, f"a reader's GET {each} reached somewhere else"
                assert answer.status_code < 500, (each, answer.text)
                answered.setdefault(path, set()).add(answer.status_code)

    assert answered.keys() >= REACHING
    assert {path for path, statuses in answered.items() if 403 in statuses} == REACHING
    assert sum(200 in statuses for statuses in answered.values()) > 25


async def test_an_operator_sees_a_fleets_plan(reachable: Web) -> None:
    async with reachable.client(bearer(TOKEN)) as operator:
        assert (await operator.get("/api/v1/fleet/fleet/plan")).status_code == 200


@pytest.mark.parametrize("path", sorted(each for each in REACHING if "/fleet/" not in each))
async def test_an_operator_does_reach_it(reachable: Web, listener: Listener, path: str) -> None:
    async with reachable.client(bearer(TOKEN)) as operator:
        answer = await operator.get(filled(path, await places(reachable))[0])

    assert listener.calls > 0, answer.text
    assert answer.status_code != 403


async def test_a_refused_reader_hears_why(reachable: Web) -> None:
    async with reachable.client(bearer(READ_TOKEN)) as reader:
        answer = await reader.get("/api/v1/connections/elsewhere/tables")

    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert answer.json()["detail"] == (
        "expected the operator role, got reader: this request makes the server connect to another system"
    )
