"""Errors as RFC 9457 problem documents: what was expected, what was got, what to do, and which field."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from drumbeat.core.errors import (
    AlreadyExists,
    DrumbeatError,
    InvalidInput,
    JobEnded,
    LanguageModelFailed,
    LargeValueError,
    MissingExtra,
    NotFound,
    Refused,
    SpawnError,
    StoreError,
)
from drumbeat.web.disconnects import is_disconnect

MEDIA_TYPE = "application/problem+json"
_STATUS: Mapping[type[DrumbeatError], int] = {
    InvalidInput: 422,
    NotFound: 404,
    AlreadyExists: 409,
    Refused: 409,
    JobEnded: 409,
    StoreError: 503,
    SpawnError: 502,
    LanguageModelFailed: 502,
    LargeValueError: 503,
    MissingExtra: 501,
}
_NAMED = re.compile(r"(?:the template is wrong at )?([A-Za-z_][\w.\[\]-]*): (.+)", re.DOTALL)
_MOST_FIELDS = 100  #: maximum number of wrong fields listed in one response
_LONGEST = 4000  #: maximum length of a detail, in characters

log = logging.getLogger(__name__)


def problem(
    status: int, detail: str, headers: Mapping[str, str] | None = None, *, errors: Sequence[Mapping[str, Any]] = ()
) -> JSONResponse:
    """Create a problem response. Each of ``errors`` has a ``field`` and a ``detail``."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _encodable(detail),
    }
    if errors:
        body["errors"] = [{name: _encodable(str(text)) for name, text in each.items()} for each in errors[:_MOST_FIELDS]]
    return JSONResponse(body, status_code=status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def _encodable(text: str) -> str:
    """Return the text, shortened, and with ``?`` for each character that UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()[:_LONGEST]


def explain_errors(app: FastAPI) -> None:
    """Answer every error, including FastAPI's own, with a problem document."""
    app.add_exception_handler(DrumbeatError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def status_of(error: DrumbeatError) -> int:
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)


async def _ours(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, DrumbeatError)
    status = status_of(exc)
    if status >= 500:
        log.warning("%s %s failed: %s", request.method, request.url.path[:200], exc)
    headers = {"Retry-After": "5"} if status == 503 else None
    return problem(status, str(exc), headers, errors=fields_in(str(exc)) if isinstance(exc, InvalidInput) else ())


def fields_in(message: str) -> list[dict[str, str]]:
    """Return field and detail of each line of an error message that names a field, such as ``scaling.mode: expected …``."""
    found = (_NAMED.fullmatch(line.strip()) for line in message.splitlines())
    return [{"field": each[1], "detail": each[2]} for each in found if each]


@contextmanager
def prefix_field(field: str) -> Iterator[None]:
    """Put ``field`` before the message of an InvalidInput raised in the block, unless the message already names a field."""
    try:
        yield
    except InvalidInput as exc:
        raise exc if fields_in(str(exc)) else InvalidInput(f"{field}: {exc}") from exc


async def _invalid(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, RequestValidationError)
    errors = [{"field": _field_name(each["loc"]), "detail": str(each["msg"])} for each in exc.errors()[:_MOST_FIELDS]]
    detail = "; ".join(f"{each['field']}: {each['detail']}" for each in errors)
    return problem(422, detail or "the request is not valid", errors=errors)


def _field_name(parts: Sequence[Any]) -> str:
    """Return the name of a wrong field. For a parameter it begins with where the parameter is, such as ``query.limit``."""
    named = parts[1:] if len(parts) > 1 and parts[0] == "body" else parts
    return ".".join(str(part) for part in named)


async def _http(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)
    return problem(exc.status_code, str(exc.detail), exc.headers)


async def _unexpected(request: Request, exc: Exception) -> JSONResponse:
    if not is_disconnect(request.scope, exc):
        log.error("unexpected error in %s %s", request.method, request.url.path[:200], exc_info=exc)
    return problem(500, "unexpected error; see the server's log")
