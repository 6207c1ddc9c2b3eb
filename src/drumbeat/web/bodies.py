"""Bodies of requests, bounded: what is longer is not read."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import HTTPException

LARGEST = 8 * 1024 * 1024  #: bytes
LARGEST_HOOK = 64 * 1024  #: of a webhook, which anybody may send
_HOOKS = "/hooks/"

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


def bounded(scope: MutableMapping[str, Any], headers: dict[str, str], receive: Receive) -> Receive:
    """The same, but it raises HTTPException 413 once more has come, or is announced, than anybody needs to send."""
    if scope["type"] != "http":
        return receive
    most = LARGEST_HOOK if scope["path"].startswith(_HOOKS) else LARGEST
    came = _announced(headers)

    async def receive_within() -> MutableMapping[str, Any]:
        nonlocal came
        if came > most:
            raise HTTPException(413, f"expected a body of at most {most} bytes")
        message = await receive()
        if "content-length" not in headers:
            came += len(message.get("body", b""))
        return message

    return receive_within


def _announced(headers: dict[str, str]) -> int:
    told = headers.get("content-length", "")
    return int(told[:20]) if told.isascii() and told.isdecimal() else 0
