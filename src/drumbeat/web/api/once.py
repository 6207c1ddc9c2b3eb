"""Idempotency keys: a request repeated with its key gets the first response again and has no further effect.

A key is reserved for a day before the request is processed, with a fingerprint of the request, and freed only if the request
was refused (4xx). After any other failure (5xx, or the server died) nobody knows whether the request took effect, so a
repeated request is refused. So is one whose first request succeeded, but whose response could not be stored.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from drumbeat.core.answer import RequestAnswer, StoredAnswer
from drumbeat.core.errors import DrumbeatError, InvalidInput, Refused, StoreError
from drumbeat.web.app_state import AppState
from drumbeat.web.problems import status_of

KEY = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
KEPT_FOR = timedelta(days=1)  #: how long a key is reserved and, from then on, its response is stored
KEY_PATTERN = r"^[\x21-\x7e]{1,200}$"
_CHECK = "check whether the request took effect, and if it did not, send it with a new key"
_LARGEST = 1024 * 1024  #: bytes; a larger response is not stored
_UNKNOWN_FROM = 500  #: after an error with this status or a higher one, nobody knows whether the request took effect
_PAUSES = (timedelta(seconds=1), timedelta(minutes=1))  #: first and longest pause before a failed write is retried
_RETRIES = 60

log = logging.getLogger(__name__)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


async def with_idempotency_key(request: Request, work: Handler) -> Response:
    """Process a request, unless its idempotency key was used for the same request before: then return the stored response.

    Raises InvalidInput if the key was used for a different request, Refused if there is no response to the first request: it
    is still being processed, its outcome is not known, or its response was lost or too large.
    """
    state: AppState = request.app.state.app_state
    answers = state.plane.store.answers
    key, fingerprint = _key(request), state.fingerprint(await _content(request))
    stored = await answers.hold(key, fingerprint, KEPT_FOR)
    if stored is not None:
        return _replay(stored, fingerprint)
    try:
        response = await work(request)
    except BaseException as exc:
        await _note_failure(state, key, _status_of(exc))
        raise
    if response.status_code >= 300:
        await _note_failure(state, key, response.status_code)
    elif len(response.body) <= _LARGEST:
        await _write(state, key, partial(answers.give, key, _answer(response), KEPT_FOR))
    return response


async def _note_failure(state: AppState, key: str, status: int) -> None:
    """Free the key of a refused request; after any other failure keep it, because the request may have taken effect."""
    answers = state.plane.store.answers
    if status < _UNKNOWN_FROM:
        await _write(state, key, partial(answers.forget, key))
    else:
        await _write(state, key, partial(answers.give, key, RequestAnswer(status=status), KEPT_FOR))


def _status_of(exc: BaseException) -> int:
    """Return the status of the response to a request that raised this error."""
    if isinstance(exc, DrumbeatError):
        return status_of(exc)
    if isinstance(exc, HTTPException):
        return exc.status_code
    return 422 if isinstance(exc, RequestValidationError) else 500


async def _write(state: AppState, key: str, write: Callable[[], Awaitable[None]]) -> None:
    """Store a response or free a key. If the store fails, the client is answered anyway, and the write is retried later."""
    try:
        await write()
    except StoreError as exc:
        log.warning("failed to store the response for %s %s or free the key: %s; retrying", KEY, key, exc)
        state.start_task(_retry(state, key, write))


async def _retry(state: AppState, key: str, write: Callable[[], Awaitable[None]]) -> None:
    """Try a failed write again, for about an hour. Raises nothing, since an error would stop the server."""
    pause, longest = _PAUSES
    for _ in range(_RETRIES):
        await state.clock.sleep(pause)
        pause = min(pause * 2, longest)
        try:
            await write()
        except StoreError:
            continue
        except Exception:
            log.exception("failed to store the response for %s %s or free the key", KEY, key)
        return
    log.warning("gave up storing the response for %s %s or freeing the key; requests with this key are refused", KEY, key)


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
        raise Refused(
            f"a request with this {KEY} is still being processed, or its response was lost or too large to store; retry in a "
            f"moment, or {_CHECK}"
        )
    if stored.answer.status >= _UNKNOWN_FROM:
        raise Refused(
            f"the first request with this {KEY} failed with status {stored.answer.status}, so it is not known whether it took "
            f"effect, and it is not executed again; {_CHECK}"
        )
    headers = {REPLAYED: "true"} | ({"Location": stored.answer.location} if stored.answer.location else {})
    return Response(stored.answer.body, stored.answer.status, headers, "application/json")


def _answer(response: Response) -> RequestAnswer:
    body = bytes(response.body).decode()
    return RequestAnswer(status=response.status_code, body=body, location=response.headers.get("Location"))
