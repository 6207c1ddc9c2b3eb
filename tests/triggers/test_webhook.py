"""Webhooks: signed, recent, whole and once; everything else is refused with the field named."""

import json
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import pytest
from hypothesis import given, strategies as st

from drumbeat.triggers.webhook import KEY, LARGEST_BODY, SIGNATURE, TIMESTAMP, WINDOW, Delivery, RequestRefused, accept, sign
from triggers.given import SECRET

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = int(NOW.timestamp())
BODY = b'{"pool_id": "papers", "commit": "abc"}'


class Seen:
    def __init__(self) -> None:
        self.keys: set[str] = set()

    async def __call__(self, key: str) -> bool:
        known = key in self.keys
        self.keys.add(key)
        return known


def headers(body: bytes = BODY, stamp: int = STAMP, key: str | None = None, secret: str = SECRET) -> dict[str, str]:
    named = {} if key is None else {KEY: key}
    return {TIMESTAMP: str(stamp), SIGNATURE: sign(secret, stamp, body, key), **named}


async def ask(given: dict[str, str], body: bytes = BODY, seen: Seen | None = None) -> Delivery:
    return await accept(given, body, SECRET, NOW, seen or Seen())


async def test_a_signed_request_is_accepted() -> None:
    delivery = await ask(headers())

    assert (delivery.pool_id, delivery.repeated) == ("papers", False)


def test_the_signature_is_what_openssl_makes() -> None:
    """printf '1767225600.{}' | openssl dgst -sha256 -hmac a-secret-of-some-length"""
    expected = "sha256=4f58cf562b3ba76e4ab24cef05ce9c1f7d0e33d6a9942601ae882f980bd7fd3d"

    assert sign(SECRET, 1767225600, b"{}") == expected


async def test_headers_are_known_in_any_case() -> None:
    assert await ask({name.upper(): f" {value} " for name, value in headers().items()})


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b'{"other": 1}'])
async def test_a_body_need_name_no_pool(body: bytes) -> None:
    assert (await ask(headers(body), body)).pool_id is None


async def test_the_same_request_twice_is_one() -> None:
    seen = Seen()

    assert [(await ask(headers(), seen=seen)).repeated for _ in range(3)] == [False, True, True]


async def test_one_key_is_one_delivery_however_often_it_is_signed() -> None:
    seen = Seen()

    repeated = [(await ask(headers(stamp=STAMP + n, key="delivery-1"), seen=seen)).repeated for n in range(3)]

    assert repeated == [False, True, True]
    assert (await ask(headers(key="delivery-2"), seen=seen)).repeated is False


FAR = WINDOW + timedelta(seconds=1)
REFUSED: list[tuple[str, dict[str, str], bytes, HTTPStatus, str]] = [
    ("unsigned", {}, BODY, HTTPStatus.UNAUTHORIZED, f"{SIGNATURE}: expected sha256=HEX, got none"),
    ("no timestamp", {SIGNATURE: "sha256=00"}, BODY, HTTPStatus.UNAUTHORIZED, f"{TIMESTAMP}: expected seconds since 1970"),
    ("an odd timestamp", headers() | {TIMESTAMP: "1e9"}, BODY, HTTPStatus.UNAUTHORIZED, f"{TIMESTAMP}: expected seconds"),
    ("another timestamp", headers() | {TIMESTAMP: str(STAMP + 1)}, BODY, HTTPStatus.UNAUTHORIZED, f"{SIGNATURE}: it does not"),
    ("another body", headers(), b"{}", HTTPStatus.UNAUTHORIZED, f"{SIGNATURE}: it does not"),
    ("another secret", headers(secret="x" * 20), BODY, HTTPStatus.UNAUTHORIZED, f"{SIGNATURE}: it does not"),
    ("another key", headers(key="a") | {KEY: "b"}, BODY, HTTPStatus.UNAUTHORIZED, f"{SIGNATURE}: it does not"),
    ("the key left out", headers(key="a") | {KEY: ""}, BODY, HTTPStatus.UNAUTHORIZED, f"{SIGNATURE}: it does not"),
    ("an empty key", headers(key=""), BODY, HTTPStatus.BAD_REQUEST, f"{KEY}: expected 1 to 100"),
    ("not hex", headers() | {SIGNATURE: "sha256=\u00e9"}, BODY, HTTPStatus.UNAUTHORIZED, f"{SIGNATURE}: it does not"),
    (
        "too old",
        headers(stamp=STAMP - int(FAR.total_seconds())),
        BODY,
        HTTPStatus.UNAUTHORIZED,
        f"{TIMESTAMP}: expected a time",
    ),
    (
        "too early",
        headers(stamp=STAMP + int(FAR.total_seconds())),
        BODY,
        HTTPStatus.UNAUTHORIZED,
        f"{TIMESTAMP}: expected a time",
    ),
    (
        "too long",
        headers(b"x" * (LARGEST_BODY + 1)),
        b"x" * (LARGEST_BODY + 1),
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "at most 65536",
    ),
    ("not JSON", headers(b"{"), b"{", HTTPStatus.BAD_REQUEST, "body: expected a JSON object, or an empty body"),
    ("a list", headers(b"[]"), b"[]", HTTPStatus.BAD_REQUEST, "body: expected a JSON object, got list"),
    ("too deep", headers(b"[" * 60_000), b"[" * 60_000, HTTPStatus.BAD_REQUEST, "body: expected a JSON object"),
    ("an odd pool", headers(b'{"pool_id": 7}'), b'{"pool_id": 7}', HTTPStatus.BAD_REQUEST, "pool_id: expected a pool's name"),
]


@pytest.mark.parametrize(("given_", "body", "status", "says"), [pytest.param(*rest, id=title) for title, *rest in REFUSED])
async def test_everything_else_is_refused_and_not_remembered(
    given_: dict[str, str], body: bytes, status: HTTPStatus, says: str
) -> None:
    seen = Seen()

    with pytest.raises(RequestRefused, match=says) as caught:
        await ask(given_, body, seen)

    assert caught.value.status is status
    assert seen.keys == set()


@pytest.mark.parametrize("side", [-1, 1])
async def test_a_clock_may_be_off_by_the_whole_window(side: int) -> None:
    assert await ask(headers(stamp=STAMP + side * int(WINDOW.total_seconds())))


async def test_a_key_cannot_be_moved_into_the_body() -> None:
    """What is signed as TIMESTAMP.KEY.BODY is TIMESTAMP.BODY of another body: which is no JSON, and so refused."""
    signed = headers(b"", key="a")
    del signed[KEY]

    with pytest.raises(RequestRefused, match="body: expected a JSON object"):
        await ask(signed, b"a.")


@given(st.binary(max_size=50), st.binary(max_size=50), st.text("abc-_", min_size=1, max_size=5) | st.none())
def test_no_two_requests_that_can_be_taken_have_one_signature(one: bytes, other: bytes, key: str | None) -> None:
    if one == other and key is None:
        return
    takeable = not other.strip() or _is_object(other)

    assert sign(SECRET, STAMP, one, key) != sign(SECRET, STAMP, other) or not takeable


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False
