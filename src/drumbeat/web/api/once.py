"""Idempotency keys: a request that is sent again with its key gets the answer it got, and nothing is done twice."""

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
WORKED_ON = timedelta(minutes=2)  #: for how long a key is held for a request whose server may have died
KEY_PATTERN = r"^[\x21-\x7e]{1,200}$"
_LARGEST = 1024 * 1024  #: bytes of an answer that is kept

log = logging.getLogger(__name__)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


async def once(request: Request, work: Handler) -> Response:
    """Do what is asked, unless the same was asked under the same key: then answer as before.

    Raises InvalidInput when another request came under the key, Refused while the first is still worked on.
    """
    house: AppState = request.app.state.house
    key, fingerprint = _key(request), house.fingerprint(await _asked(request))
    kept = await house.plane.store.answers.hold(key, fingerprint, WORKED_ON)
    if kept is not None:
        return _again(kept, fingerprint)
    try:
        response = await work(request)
    except BaseException:
        with _whatever_comes(key):
            await house.plane.store.answers.forget(key)
        raise
    with _whatever_comes(key):
        await _keep(house, key, response)
    return response


@contextmanager
def _whatever_comes(key: str) -> Iterator[None]:
    """What was done is answered even if the answer cannot be kept; the key is free again once its hold runs out."""
    try:
        yield
    except StoreError as exc:
        log.warning("the answer under %s %s could not be kept: %s", KEY, key, exc)


def _key(request: Request) -> str:
    key = request.headers[KEY]
    if not re.fullmatch(KEY_PATTERN, key):
        raise InvalidInput(f"header.{KEY}: expected 1 to 200 visible ASCII characters")
    return f"http/{key}"


async def _asked(request: Request) -> bytes:
    """Everything that makes it this request and no other."""
    role = request.state.caller.role
    what = f"{role} {request.method} {request.url.path}?{request.url.query}\n{request.headers.get('content-type', '')}\n"
    return what.encode() + await request.body()


def _again(kept: StoredAnswer, fingerprint: str) -> Response:
    if kept.fingerprint != fingerprint:
        raise InvalidInput(f"header.{KEY}: another request came under this key; choose a new key for a new request")
    if kept.answer is None:
        raise Refused(f"a request with this {KEY} is being worked on; ask again in a moment")
    headers = {REPLAYED: "true"} | ({"Location": kept.answer.location} if kept.answer.location else {})
    return Response(kept.answer.body, kept.answer.status, headers, "application/json")


async def _keep(house: AppState, key: str, response: Response) -> None:
    """Only what went well is kept; what failed may be asked again."""
    body = bytes(response.body)
    if response.status_code >= 300 or len(body) > _LARGEST:
        await house.plane.store.answers.forget(key)
        return
    answer = RequestAnswer(status=response.status_code, body=body.decode(), location=response.headers.get("Location"))
    await house.plane.store.answers.give(key, answer, KEPT_FOR)
