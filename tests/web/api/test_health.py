"""Probes need no token, say one word, and are answered in time whatever the store does."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.errors import StoreUnavailable
from drumbeat.web.api import health
from web.given import LOCKED, web


async def refuses() -> None:
    raise StoreUnavailable("PostgreSQL at secret.example:5432: connection refused")


async def never_answers() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("store", [refuses, never_answers])
async def test_a_store_that_does_not_answer_is_503_without_detail(
    store: Callable[[], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with web(tmp_path, LOCKED) as made, made.client() as probe:
        assert (await probe.get("/ready")).json() == {"status": "ready"}
        monkeypatch.setattr(health, "ANSWERS_WITHIN", timedelta(milliseconds=20))
        monkeypatch.setattr(type(made.plane.store), "now", lambda _: store())

        answer = await probe.get("/ready")
        alive = await probe.get("/health")

    assert answer.status_code == 503
    assert answer.json() == {
        "type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": "the store does not answer",
    }  # fmt: skip
    assert (alive.status_code, alive.json()) == (200, {"status": "alive"})
    assert "not ready: the store does not answer" in caplog.text
