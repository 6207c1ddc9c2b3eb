"""Size limits of request bodies."""

from collections.abc import MutableMapping
from typing import Any

from fastapi import HTTPException
from starlette.types import Receive

LARGEST = 8 * 1024 * 1024  #: maximum size of a request body, in bytes
LARGEST_HOOK = 64 * 1024  #: the same for a webhook: small, because anyone can send one
_HOOKS = "/hooks/"
_MOST_DIGITS = 20  #: a length with more digits is cut to this many, which still say a number over every limit


def limit_body(scope: MutableMapping[str, Any], headers: dict[str, str], receive: Receive) -> Receive:
    """Wrap ``receive`` so that it raises HTTPException 413 if the body is over the limit.

    A declared length over the limit is refused before anything is read. What arrives is counted too, whatever was declared."""
    if scope["type"] != "http":
        return receive
    limit = LARGEST_HOOK if scope["path"].startswith(_HOOKS) else LARGEST
    declared, received = _declared_length(headers), 0

    async def receive_within() -> MutableMapping[str, Any]:
        nonlocal received
        _check_size(max(declared, received), limit)
        message = await receive()
        received += len(message.get("body", b""))
        _check_size(received, limit)
        return message

    return receive_within


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise HTTPException(413, f"expected a body of at most {limit} bytes, got a larger one")


def _declared_length(headers: dict[str, str]) -> int:
    length = headers.get("content-length", "")
    return int(length.lstrip("0")[:_MOST_DIGITS] or "0") if length.isascii() and length.isdecimal() else 0
