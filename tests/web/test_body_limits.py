"""The limit on the size of a request's body holds whatever the request says of its length, and however the body comes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import HTTPException

from drumbeat.web.bodies import LARGEST, LARGEST_HOOK, limit_body
from web.test_slow_requests import said_until_closed, serving

HOOK = b"POST /hooks/x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"


async def read(path: str, headers: dict[str, str], parts: Sequence[int]) -> int:
    """Read a body that comes in parts of these sizes; how many bytes the application was given. The last part ends it."""
    messages = [{"type": "http.request", "body": b"x" * size, "more_body": True} for size in parts]
    messages[-1]["more_body"] = False
    coming = iter(messages)

    async def receive() -> Any:
        return next(coming)

    limited, given, more = limit_body({"type": "http", "path": path}, headers, receive), 0, True
    while more:
        message = await limited()
        given, more = given + len(message["body"]), message["more_body"]
    return given


@pytest.mark.parametrize(("path", "limit"), [("/hooks/x", LARGEST_HOOK), ("/api/v1/pools", LARGEST)])
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no length"),
        pytest.param({"transfer-encoding": "chunked"}, id="in chunks"),
        pytest.param({"content-length": "5"}, id="too small a length"),
        pytest.param({"content-length": "0" * 20 + "99999999999"}, id="zeros before a large length"),
        pytest.param({"content-length": "0" * 5000 + "5"}, id="many zeros before a small length"),
        pytest.param({"content-length": "9" * 5000}, id="a length without end"),
        pytest.param({"content-length": "-5"}, id="no length at all"),
        pytest.param({"content-length": "5, 5"}, id="two lengths"),
    ],
)
async def test_a_body_over_the_limit_is_refused(path: str, limit: int, headers: dict[str, str]) -> None:
    for parts in ([limit + 1], [limit, 1], [limit, 0, 1], [1] * 10 + [limit]):
        with pytest.raises(HTTPException) as caught:
            await read(path, headers, parts)

        assert caught.value.status_code == 413


@pytest.mark.parametrize("headers", [{}, {"content-length": str(LARGEST_HOOK)}, {"content-length": f"000{LARGEST_HOOK}"}])
async def test_a_body_at_the_limit_is_read(headers: dict[str, str]) -> None:
    assert await read("/hooks/x", headers, [LARGEST_HOOK - 1, 1]) == LARGEST_HOOK


async def test_nothing_is_read_of_a_body_whose_length_is_said_to_be_over_the_limit() -> None:
    async def receive() -> Any:
        raise AssertionError("nothing may be read")

    limited = limit_body({"type": "http", "path": "/hooks/x"}, {"content-length": str(LARGEST_HOOK + 1)}, receive)

    with pytest.raises(HTTPException):
        await limited()


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(HOOK + b"Content-Length: " + b"0" * 20 + b"9000000\r\n\r\nxxx", id="zeros before the length"),
        pytest.param(HOOK + b"Transfer-Encoding: chunked\r\n\r\n15f90\r\n" + b"x" * 90_000 + b"\r\n0\r\n\r\n", id="one chunk"),
    ],
)
async def test_a_webhook_too_large_is_refused_by_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    (tmp_path / "triggers.yml").write_text(
        "triggers:\n  - {name: x, type: webhook, machine: stale_worker_reaper, secret_variable: HOOK_SECRET}\n"
    )
    monkeypatch.setenv("HOOK_SECRET", "webhook-secret-0123456789")
    monkeypatch.chdir(tmp_path)
    async with serving(tmp_path) as place:
        said = await said_until_closed(place, request_)

    assert said.startswith(b"HTTP/1.1 413"), said[:200]
    assert b"expected a body of at most 65536 bytes" in said
