"""Idempotency keys: asked twice, done once."""

import asyncio

import httpx
import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.store.memory import MemoryStore
from web.given import Web

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


async def test_what_was_done_is_answered_even_if_it_cannot_be_kept(furnished: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(furnished.plane.store.answers, "give", away)
    async with furnished.client() as api:
        assert (await pushed(api, "e")).status_code == 201


async def test_a_key_is_free_again_when_its_time_is_over() -> None:
    from drumbeat.core.answer import RequestAnswer
    from drumbeat.web.api.once import HOLD_FOR, KEPT_FOR

    clock = ManualClock()
    store = MemoryStore(clock)
    await store.answers.hold("k", "f", HOLD_FOR)
    await store.answers.give("k", RequestAnswer(status=201), KEPT_FOR)
    assert await store.answers.hold("k", "g", HOLD_FOR) is not None

    await clock.advance(KEPT_FOR)

    assert await store.answers.hold("k", "g", HOLD_FOR) is None
