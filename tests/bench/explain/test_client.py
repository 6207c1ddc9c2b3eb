"""The endpoint of a language model answers, refuses, stalls, lies or is away: a text, or one clear line."""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from drumbeat.bench.explain.client import LARGEST, LanguageModelClient
from drumbeat.bench.explain.settings import LanguageModelSettings
from drumbeat.core.errors import LanguageModelFailed
from servers.language_model import KEY, MODEL, Endpoint, language_model

MESSAGES = [{"role": "user", "content": "{}"}]


@pytest.fixture(scope="module")
def shared() -> Iterator[Endpoint]:
    with language_model() as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(shared: Endpoint) -> Endpoint:
    shared.asked.clear()
    shared.says("It was slow.")
    return shared


def client(endpoint: Endpoint, key: str | None = KEY, timeout: float = 60) -> LanguageModelClient:
    limit = timedelta(seconds=timeout)
    return LanguageModelClient(LanguageModelSettings(url=endpoint.url, model=MODEL, timeout=limit, max_tokens=300), key)


async def refusal(endpoint: Endpoint, key: str | None = KEY, timeout: float = 60) -> str:
    with pytest.raises(LanguageModelFailed) as refused:
        await client(endpoint, key, timeout).answer(MESSAGES)
    said = str(refused.value)
    assert said.isprintable()
    assert len(said) < 500
    assert KEY not in said
    return said


async def test_a_text_is_answered(endpoint: Endpoint) -> None:
    assert await client(endpoint).answer(MESSAGES) == "It was slow."

    (asked,) = endpoint.asked
    assert (asked.path, asked.headers["Authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert json.loads(asked.body) == {
        "model": MODEL, "messages": MESSAGES, "max_completion_tokens": 300, "stream": False
    }  # fmt: skip


async def test_without_a_key_none_is_sent(endpoint: Endpoint) -> None:
    await client(endpoint, key=None).answer(MESSAGES)

    assert "Authorization" not in endpoint.asked[0].headers


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "refuses the key in DRUMBEAT_LANGUAGE_MODEL_KEY (HTTP 401)"),
        (403, "refuses the key in DRUMBEAT_LANGUAGE_MODEL_KEY (HTTP 403)"),
        (404, "has no such address or model (HTTP 404); check url and model in [language_model]"),
        (429, "refuses for now (HTTP 429): too many requests, or no budget left; try again later"),
        (302, "redirects to another address (HTTP 302), which is not followed"),
        (500, "failed (HTTP 500); try again later"),
        (503, "failed (HTTP 503)"),
        (400, "refused the request (HTTP 400)"),
        (204, "refused the request (HTTP 204)"),
    ],
)
async def test_a_refusal_is_one_line_with_what_to_do(endpoint: Endpoint, status: int, said: str) -> None:
    endpoint.refuses(status)
    if status == 302:
        endpoint.headers = {"Location": f"{endpoint.address}/elsewhere"}

    assert said in await refusal(endpoint)
    assert len(endpoint.asked) == 1


async def test_a_missing_key_is_asked_for(endpoint: Endpoint) -> None:
    endpoint.refuses(401)

    assert "asks for a key (HTTP 401); set DRUMBEAT_LANGUAGE_MODEL_KEY" in await refusal(endpoint, key=None)


async def test_the_reason_of_a_refusal_is_told_without_the_key_and_without_control_characters(endpoint: Endpoint) -> None:
    endpoint.refuses(400, f"\x1b[31mno model for {KEY}\n" + "x" * 1000)

    said = await refusal(endpoint)

    assert "(HTTP 400): [31mno model for … xxx" in said


@pytest.mark.parametrize(
    "reason", [b"<html>", b'"no"', b'{"error": "plain"}', b'{"message": "of Snowflake"}', b'{"error": {"message": 5}}']
)
async def test_any_form_of_refusal_is_read(endpoint: Endpoint, reason: bytes) -> None:
    endpoint.sends(reason, status=400)

    assert "refused the request (HTTP 400)" in await refusal(endpoint)


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"<html><body>Sign in</body></html>", "text/html", "expected JSON from the language model, got HTML"),
        (b"not json", "application/json", "expected JSON"),
        (b'{"ok": true}', "application/json", "expected choices[0].message.content"),
        (b"x" * (LARGEST + 10), "application/json", f"answered with more than {LARGEST // 1024} KiB"),
    ],
)
async def test_a_lie_is_refused(endpoint: Endpoint, content: bytes, kind: str, said: str) -> None:
    endpoint.sends(content, content_type=kind)

    assert said in await refusal(endpoint)


async def test_a_broken_encoding_is_refused(endpoint: Endpoint) -> None:
    endpoint.sends(b"not gzip")
    endpoint.headers = {"Content-Encoding": "gzip"}

    assert "could not be reached" in await refusal(endpoint)


async def test_one_that_stalls_is_left_after_the_time_limit(endpoint: Endpoint) -> None:
    endpoint.stalls = True

    assert "did not answer within 1.0 s; try again, or raise timeout" in await refusal(endpoint, timeout=1)


async def test_one_that_drips_is_left_after_the_time_limit(endpoint: Endpoint) -> None:
    endpoint.drips = True

    assert "did not answer within 1.0 s" in await refusal(endpoint, timeout=1)


async def test_one_that_hangs_up_is_said(endpoint: Endpoint) -> None:
    endpoint.hangs_up = True

    assert "could not be reached" in await refusal(endpoint)


async def test_one_that_is_away_is_said() -> None:
    with language_model() as gone:
        pass

    assert f"the language model at {gone.address.removeprefix('http://')} could not be reached" in await refusal(gone)
