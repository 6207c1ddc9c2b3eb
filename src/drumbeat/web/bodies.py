"""Size limits of request bodies."""

from collections.abc import MutableMapping
from typing import Any

from fastapi import HTTPException
from starlette.types import Receive

LARGEST = 8 * 1024 * 1024  #: maximum size of a request body, in bytes
LARGEST_HOOK = 64 * 1024  #: the same for a webhook: small, because anyone can send one
_HOOKS = "/hooks/"


def limit_body(scope: MutableMapping[str, Any], headers: dict[str, str], receive: Receive) -> Receive:
    """Wrap ``receive`` so that it raises HTTPException 413 if the body or its declared length is over the limit."""
    if scope["type"] != "http":
        return receive
    limit = LARGEST_HOOK if scope["path"].startswith(_HOOKS) else LARGEST
    received = _declared_length(headers)

    async def receive_within() -> MutableMapping[str, Any]:
        nonlocal received
        if received > limit:
            raise HTTPException(413, f"expected a body of at most {limit} bytes, got a larger one")
        message = await receive()
        if "content-length" not in headers:
            received += len(message.get("body", b""))
        return message

    return receive_within


def _declared_length(headers: dict[str, str]) -> int:
    length = headers.get("content-length", "")
    return int(length[:20]) if length.isascii() and length.isdecimal() else 0
