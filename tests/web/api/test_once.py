"""Idempotency keys: asked twice, done once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import HTTPException

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import (
    InvalidInput,
    LargeUnavailable,
    NotFound,
    Refused,
    SpawnAmbiguous,
    StoreUnavailable,
)
from drumbeat.store.memory import MemoryStore
from drumbeat.web.api import once
from drumbeat.web.api.once import KEPT_FOR
from web.given import Web, web

PUSH = "/api/v1/pools/once/jobs"


async def pushed(api: httpx.AsyncClient, key: str, n: int = 1) -> httpx.Response:
    return await api.post(PUSH, json={"payload": n}, headers={"Idempotency-Key": key})


async def jobs(api: httpx.AsyncClient) -> int:
    return len((await api.get(PUSH)).json().get("items", []))


async def test_the_same_request_is_answered_as_before_and_done_once(api: httpx.AsyncClient) -> None:
    first = await pushed(api, "a")
    before = await jobs(api)

    again = await pushed(api, "a")

    assert (again.status_code, again.json(), again.headers["Location"]) == (201, first.json(), first.headers["Location"])
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert await jobs(api) == before


async def test_another_request_under_the_key_is_refused(api: httpx.AsyncClient) -> None:
    await pushed(api, "b")

    other = await pushed(api, "b", 2)
    elsewhere = await api.post("/api/v1/pools/other/jobs", json={"payload": 1}, headers={"Idempotency-Key": "b"})

    assert (other.status_code, elsewhere.status_code) == (422, 422)
    assert other.json()["errors"][0]["field"] == "header.Idempotency-Key"


async def test_of_many_at_once_one_is_done(api: httpx.AsyncClient) -> None:
    await pushed(api, "warm up")
    before = await jobs(api)

    answers = await asyncio.gather(*(pushed(api, "c") for _ in range(8)))

    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.text for answer in answers if answer.status_code == 201}) == 1
    assert await jobs(api) == before + 1


async def test_what_went_wrong_may_be_tried_again_under_its_key(api: httpx.AsyncClient) -> None:
    wrong = await api.post(PUSH, json={"nonsense": 1}, headers={"Idempotency-Key": "d"})
    right = await pushed(api, "d")

    assert (wrong.status_code, right.status_code) == (422, 201)


@pytest.mark.parametrize("key", ["", "x" * 201, "a b"])
async def test_what_is_no_key_is_refused(api: httpx.AsyncClient, key: str) -> None:
    assert (await pushed(api, key)).status_code == 422


class FailingStore:
    """Makes one operation on the stored answers fail as long as ``is_down``."""

    def __init__(self, made: Web, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.is_down = True
        self._write = getattr(made.plane.store.answers, name)
        monkeypatch.setattr(made.plane.store.answers, name, self._called)

    async def _called(self, *values: Any) -> None:
        if self.is_down:
            raise StoreUnavailable("gone")
        await self._write(*values)


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def own(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Web]:
    """A server whose background work waits for the test's clock."""
    async with web(tmp_path, clock=clock) as made:
        yield made


async def test_what_was_done_is_answered_even_if_it_cannot_be_kept_and_never_done_again(
    own: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    FailingStore(own, monkeypatch, "give")
    async with own.client() as api:
        first = await pushed(api, "e")
        again = await pushed(api, "e")
        left = await jobs(api)
    kept = await own.plane.store.answers.hold("http/e", "f", KEPT_FOR)

    assert (first.status_code, again.status_code, left) == (201, 409, 1)
    assert "new key" in again.json()["detail"]
    assert kept is not None
    assert kept.expires_at - await own.plane.store.now() > KEPT_FOR - timedelta(hours=1)


async def test_an_answer_that_could_not_be_kept_is_kept_once_the_store_is_back(
    own: Web, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FailingStore(own, monkeypatch, "give")
    async with own.client() as api:
        first = await pushed(api, "e")
        await clock.advance(timedelta(seconds=1))
        store.is_down = False
        await clock.advance(timedelta(minutes=1))
        again = await replayed(api, "e")

        assert (again.json(), await jobs(api)) == (first.json(), 1)


async def test_a_key_that_could_not_be_freed_is_freed_once_the_store_is_back(
    own: Web, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FailingStore(own, monkeypatch, "forget")
    async with own.client() as api:
        wrong = await api.post(PUSH, json={"payload": 1, "priority": "high"}, headers={"Idempotency-Key": "f"})
        refused = await pushed(api, "f")
        store.is_down = False
        await clock.advance(timedelta(minutes=1))
        while (right := await pushed(api, "f")).status_code == 422:
            await asyncio.sleep(0)

    assert (wrong.status_code, refused.status_code, right.status_code) == (422, 422, 201)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StoreUnavailable("the connection was cut"), 503),
        (SpawnAmbiguous("no answer"), 502),
        (LargeUnavailable("no answer"), 503),
        (RuntimeError("a bug"), 500),
    ],
)
async def test_what_may_have_been_done_is_not_done_again(
    own: Web, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    """The first request pushes its job and fails then: nobody but the caller can find out."""
    push = own.plane.store.queue.push
    async with own.client() as api:
        await api.post("/api/v1/pools", json={"pool_id": "once"})
        with monkeypatch.context() as patch:

            async def push_and_fail(*given: Any) -> None:
                await push(*given)
                raise error

            patch.setattr(own.plane.store.queue, "push", push_and_fail)
            failed = await pushed(api, "h")
        again, other, left = await pushed(api, "h"), await pushed(api, "h", 2), await jobs(api)
    kept = await own.plane.store.answers.hold("http/h", "f", KEPT_FOR)

    assert [failed.status_code, again.status_code, other.status_code, left] == [status, 409, 422, 1]
    assert f"failed with status {status}, so it is not known whether it took effect" in again.json()["detail"]
    assert "new key" in again.json()["detail"]
    assert kept is not None
    assert kept.expires_at - await own.plane.store.now() > KEPT_FOR - timedelta(hours=1)


@pytest.mark.parametrize(
    "error",
    [NotFound("no pool"), InvalidInput("payload: odd"), Refused("not now"), HTTPException(413, "too large")],
)
async def test_what_was_refused_may_be_sent_again(own: Web, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def refuse(*_: Any) -> None:
        raise error

    async with own.client() as api:
        await api.post("/api/v1/pools", json={"pool_id": "once"})
        with monkeypatch.context() as patch:
            patch.setattr(own.plane.store.queue, "push", refuse)
            refused = await pushed(api, "i")
        again = await pushed(api, "i")

    assert 400 <= refused.status_code < 500
    assert again.status_code == 201


async def test_what_was_done_with_too_large_an_answer_is_not_done_again(own: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "_LARGEST", 10)
    async with own.client() as api:
        answers = [await pushed(api, "g"), await pushed(api, "g")]

        assert [answer.status_code for answer in answers] == [201, 409]
        assert await jobs(api) == 1


async def replayed(api: httpx.AsyncClient, key: str) -> httpx.Response:
    """The stored answer, as soon as the server's background work has stored it."""
    while (answer := await pushed(api, key)).status_code == 409:
        await asyncio.sleep(0)
    assert answer.headers["Idempotent-Replayed"] == "true"
    return answer


async def test_a_key_is_free_again_when_its_time_is_over() -> None:
    from drumbeat.core.answer import RequestAnswer

    clock = ManualClock()
    store = MemoryStore(clock)
    await store.answers.hold("k", "f", KEPT_FOR)
    await store.answers.give("k", RequestAnswer(status=201), KEPT_FOR)
    assert await store.answers.hold("k", "g", KEPT_FOR) is not None

    await clock.advance(KEPT_FOR)

    assert await store.answers.hold("k", "g", KEPT_FOR) is None
