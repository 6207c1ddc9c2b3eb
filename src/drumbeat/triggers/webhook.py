"""Check the signatures of webhook requests, and detect repeated deliveries."""

import hashlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

TIMESTAMP = "X-Drumbeat-Timestamp"  #: when the request was signed, in seconds since 1970
SIGNATURE = "X-Drumbeat-Signature"  #: sha256=HEX
KEY = "Idempotency-Key"  #: optional; requests with the same key count as one delivery

WINDOW = timedelta(minutes=5)  #: how far the sender's clock may differ from ours
REMEMBERED = timedelta(days=1)  #: how long a repeated delivery is recognised
LARGEST_BODY = 64 * 1024
LEAST_SECRET = 16  #: minimum number of characters in a secret

_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
_STAMP = re.compile(r"[0-9]{1,12}")

RecordDelivery = Callable[[str], Awaitable[bool]]  #: records a delivery; returns True if it was recorded before


class RequestRefused(Exception):
    """Raised to refuse a webhook request; turned into an HTTP response inside this package."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A webhook request with a valid signature."""

    key: str  #: identifies the delivery, so that a repeated one is recognised
    pool_id: str | None
    repeated: bool  #: True: the delivery was received before, so there is nothing to do


def sign(secret: str, timestamp: int, body: bytes, key: str | None = None) -> str:
    """Return the signature of a request: HMAC-SHA256 over TIMESTAMP.BODY, or TIMESTAMP.KEY.BODY with an idempotency key.

    The two forms cannot be confused: a valid body is empty or a JSON object, and neither starts with KEY and a dot.
    """
    signed = f"{timestamp}." if key is None else f"{timestamp}.{key}."
    return "sha256=" + hmac.new(secret.encode(), signed.encode() + body, hashlib.sha256).hexdigest()


async def accept(headers: Mapping[str, str], body: bytes, secret: str, now: datetime, seen: RecordDelivery) -> Delivery:
    """Check a request and return it as a delivery. Raises RequestRefused if it is not signed, not recent or not valid.

    The JSON body and the idempotency key are parsed only after the signature is checked. ``seen`` records the delivery, and
    returns True if it was recorded before.
    """
    if len(body) > LARGEST_BODY:
        raise RequestRefused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"body: expected at most {LARGEST_BODY} bytes, got {len(body)}"
        )
    given = {name.lower(): value.strip() for name, value in headers.items()}
    signature = _checked_signature(given, body, secret, now, given.get(KEY.lower()))
    key = _checked_key(given.get(KEY.lower()))
    pool_id = _pool(body)
    identity = f"key-{key}" if key is not None else f"signature-{signature.removeprefix('sha256=')}"
    return Delivery(key=identity, pool_id=pool_id, repeated=await seen(identity))


def _checked_key(key: str | None) -> str | None:
    if key is not None and not _KEY.fullmatch(key):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"{KEY}: expected 1 to 100 letters, digits, dashes or underscores")
    return key


def _checked_signature(given: Mapping[str, str], body: bytes, secret: str, now: datetime, key: str | None) -> str:
    stamp, signature = given.get(TIMESTAMP.lower(), ""), given.get(SIGNATURE.lower(), "")
    if not signature:
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, f"{SIGNATURE}: expected sha256=HEX, got none; the request is not signed")
    if not _STAMP.fullmatch(stamp):
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, f"{TIMESTAMP}: expected seconds since 1970, as a whole number")
    if not hmac.compare_digest(sign(secret, int(stamp), body, key).encode(), signature.encode(errors="replace")):
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, f"{SIGNATURE}: it does not match this request and the trigger's secret")
    if abs(now.timestamp() - int(stamp)) > WINDOW.total_seconds():
        raise RequestRefused(
            HTTPStatus.UNAUTHORIZED, f"{TIMESTAMP}: expected a time within {WINDOW.total_seconds():g} s of now, got {stamp}"
        )
    return signature


def _pool(body: bytes) -> str | None:
    """Return the pool that a request body names; None if it names none. Other keys are ignored. Raises RequestRefused."""
    if not body.strip():
        return None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "body: expected a JSON object, or an empty body") from None
    if not isinstance(found, dict):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"body: expected a JSON object, got {type(found).__name__}")
    pool_id = found.get("pool_id")
    if pool_id is not None and not (isinstance(pool_id, str) and pool_id):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "body: pool_id: expected a pool's name")
    return pool_id
