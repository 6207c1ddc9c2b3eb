"""Bodies of requests: what is no JSON is told so, with where; what need not be said need not be sent."""

from typing import Any

import httpx
import pytest

from drumbeat.core.plain import DEEPEST
from web.given import Web

POOLS = "/api/v1/pools"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "Expecting property name enclosed in double quotes at line 1, column 2"),
        (b'{\n "pool_id": x}', "Expecting value at line 2, column 13"),
        (b'{"pool_id": NaN}', "NaN is not a JSON number"),
        (b'{"pool_id": "\xff"}', "expected text in utf-8, got the byte 0xff at 13"),
    ],
)
async def test_what_is_no_json_is_told_where(api: httpx.AsyncClient, body: bytes, says: str) -> None:
    answer = await api.post(POOLS, content=body, headers=JSON)

    assert answer.status_code == 400
    assert says in answer.json()["detail"]
    assert "errors" not in answer.json()


@pytest.mark.parametrize(
    ("headers", "got"),
    [
        ({}, "got none"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "got application/x-www-form-urlencoded"),
        ({"Content-Type": "text/plain; charset=utf-8"}, "got text/plain"),
    ],
)
async def test_another_type_of_content_is_told_which_is_expected(
    api: httpx.AsyncClient, headers: dict[str, str], got: str
) -> None:
    answer = await api.post(POOLS, content=b'{"pool_id": "x"}', headers=headers)

    assert answer.status_code == 415
    assert f"expected Content-Type: application/json, {got}" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json"])
async def test_every_spelling_of_json_is_known(api: httpx.AsyncClient, kind: str) -> None:
    answer = await api.post(POOLS, content=b'{"pool_id": 5}', headers={"Content-Type": kind})

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "pool_id")


@pytest.mark.parametrize("sent", [{}, {"json": {}}])
async def test_where_nothing_has_to_be_said_nothing_has_to_be_sent(
    furnished: Web, api: httpx.AsyncClient, sent: dict[str, Any]
) -> None:
    run = (await furnished.plane.store.runs.list(limit=1))[0]
    asked = {
        f"{POOLS}/jobs/pause": 200,
        f"{POOLS}/jobs/resume": 200,
        f"{POOLS}/jobs/jobs/requeue": 200,
        "/api/v1/fleet/fleet/drain": 202,
        f"/api/v1/runs/{run.run_id}/rerun": 201,
    }

    assert {path: (await api.post(path, **sent)).status_code for path in asked} == asked


async def test_where_something_has_to_be_said_it_is_asked_for(api: httpx.AsyncClient) -> None:
    answer = await api.post(POOLS)

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body")


async def test_a_stream_has_no_head(api: httpx.AsyncClient) -> None:
    answer = await api.head(f"{POOLS}/jobs/events-stream")

    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, OPTIONS")


FAR = "9000-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (f"{POOLS}/p/jobs", {"payload": 1, "run_at": FAR}, "run_at"),
        (f"{POOLS}/p/jobs", {"payload": 1, "run_at": "8999-12-31T23:59:59-12:00"}, "run_at"),
        (f"{POOLS}/p/jobs/reschedule-matching", {"filter": {"job_type": "a"}, "run_at": FAR}, "run_at"),
        (f"{POOLS}/p/jobs/reschedule-matching", {"filter": {"job_type": "a"}, "run_at": "0001-01-01T00:00:00+12:00"}, "run_at"),
        (f"{POOLS}/p/jobs/many", {"jobs": [{"payload": 1}, {"payload": 1, "run_at": FAR}]}, "jobs.1.run_at"),
        ("/api/v1/simulate", {"jobs": [{"arrival": 0, "duration": 1}], "settings": {"nope": "1"}}, "settings"),
        ("/api/v1/connections", {"name": "c", "url": "ftp://x/y"}, "url"),
        ("/api/v1/connections", {"name": "c", "url": "postgresql://u@h:99999/db"}, "url"),
        ("/api/v1/connections", {"name": "c", "url": "postgresql://h:x/db"}, "url"),
        ("/api/v1/connections", {"name": "c", "url": "postgresql://u@[::1/db"}, "url"),
    ],
)
async def test_the_field_that_is_wrong_is_named(api: httpx.AsyncClient, path: str, body: dict[str, Any], field: str) -> None:
    answer = await api.post(path, json=body)

    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["errors"]] == [field]
    assert "holds a password" not in answer.json()["detail"]


@pytest.mark.parametrize(("depth", "refused"), [(DEEPEST, False), (DEEPEST + 1, True)])
async def test_json_that_is_nested_too_deep_is_refused(api: httpx.AsyncClient, depth: int, refused: bool) -> None:
    nested: Any = "core"
    for _ in range(depth - 1):
        nested = [nested]

    answer = await api.post(POOLS, json={"pool_id": nested})

    assert answer.status_code == 422, "a name is no list"
    assert ("nested at most" in answer.json()["detail"]) is refused
