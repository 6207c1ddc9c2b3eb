"""Idempotency keys: a request repeated with its key gets the first response again and has no further effect."""

import logging
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from fastapi import Request, Response

from drumbeat.core.answer import RequestAnswer, StoredAnswer
from drumbeat.core.errors import InvalidInput, Refused, StoreError
from drumbeat.web.app_state import AppState

KEY = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
KEPT_FOR = timedelta(days=1)
HOLD_FOR = timedelta(minutes=2)  #: how long a key stays reserved if the server dies before it has answered
KEY_PATTERN = r"^[\x21-\x7e]{1,200}$"
_LARGEST = 1024 * 1024  #: bytes; a larger response is not stored

log = logging.getLogger(__name__)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


async def with_idempotency_key(request: Request, work: Handler) -> Response:
    """Process a request, unless its idempotency key was used for the same request before: then return the stored response.

    Raises InvalidInput if the key was used for a different request, Refused if the first request is still being processed.
    """
    state: AppState = request.app.state.app_state
    key, fingerprint = _key(request), state.fingerprint(await _content(request))
    stored = await state.plane.store.answers.hold(key, fingerprint, HOLD_FOR)
    if stored is not None:
        return _replay(stored, fingerprint)
    try:
        response = await work(request)
    except BaseException:
        with _store_errors_logged(key):
            await state.plane.store.answers.forget(key)
        raise
    with _store_errors_logged(key):
        await _store(state, key, response)
    return response


@contextmanager
def _store_errors_logged(key: str) -> Iterator[None]:
    """Log a StoreError of the block instead of raising it: the client still gets its response, and the reserved key expires."""
    try:
        yield
    except StoreError as exc:
        seconds = HOLD_FOR.total_seconds()
        log.warning("failed to store the response for %s %s or free the key: %s; it expires in %g s", KEY, key, exc, seconds)


def _key(request: Request) -> str:
    key = request.headers[KEY]
    if not re.fullmatch(KEY_PATTERN, key):
        raise InvalidInput(f"header.{KEY}: expected 1 to 200 visible ASCII characters, no spaces")
    return f"http/{key}"


async def _content(request: Request) -> bytes:
    """Return the parts of a request that must be equal when it is repeated: role, method, URL, content type and body."""
    role = request.state.caller.role
    head = f"{role} {request.method} {request.url.path}?{request.url.query}\n{request.headers.get('content-type', '')}\n"
    return head.encode() + await request.body()


def _replay(stored: StoredAnswer, fingerprint: str) -> Response:
    if stored.fingerprint != fingerprint:
        raise InvalidInput(f"header.{KEY}: this key was used for a different request; use a new key for each request")
    if stored.answer is None:
        raise Refused(f"a request with this {KEY} is still being processed; retry in a moment")
    headers = {REPLAYED: "true"} | ({"Location": stored.answer.location} if stored.answer.location else {})
    return Response(stored.answer.body, stored.answer.status, headers, "application/json")


async def _store(state: AppState, key: str, response: Response) -> None:
    """Store a 2xx response of at most 1 MiB under its idempotency key; else free the key, so that the request can run again."""
    body = bytes(response.body)
    if response.status_code >= 300 or len(body) > _LARGEST:
        await state.plane.store.answers.forget(key)
        return
    answer = RequestAnswer(status=response.status_code, body=body.decode(), location=response.headers.get("Location"))
    await state.plane.store.answers.give(key, answer, KEPT_FOR)
