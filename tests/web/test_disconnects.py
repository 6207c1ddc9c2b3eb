"""A browser that leaves amid loading leaves no traceback behind; what fails for one who waits does."""

import logging
from typing import Any

import pytest
from fastapi import FastAPI

from drumbeat.web.disconnects import DisconnectMiddleware
from drumbeat.web.problems import explain_errors


def failing() -> FastAPI:
    """Fails in the same words, with somebody there."""
    app = FastAPI()
    explain_errors(app)

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("No response returned.")

    return app


def silent() -> Any:
    """An application that gives up once nobody is there."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if (await receive())["type"] == "http.disconnect":
            raise RuntimeError("No response returned.")

    return app


async def asked(app: Any, path: str, message: str) -> None:
    # fmt: off
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [],
             "http_version": "1.1", "scheme": "http", "server": ("here", 80), "client": ("there", 1), "root_path": ""}
    # fmt: on

    async def receive() -> dict[str, Any]:
        return {"type": message, "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        pass

    await DisconnectMiddleware(app)(scope, receive, send)


async def test_nobody_is_told_of_an_answer_that_nobody_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await asked(silent(), "/", "http.disconnect")

    assert caplog.records == []


async def test_what_fails_for_somebody_who_waits_is_logged_and_raised(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="No response"):
        await asked(failing(), "/broken", "http.request")

    assert [each.levelname for each in caplog.records] == ["ERROR"]
