"""Errors as RFC 9457 problems: what was expected, what was got, what to do, and which field."""

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
    MissingExtra,
    NotFound,
    Refused,
    SpawnError,
    StoreError,
)
from drumbeat.web.disconnects import is_for_nobody

MEDIA_TYPE = "application/problem+json"
_STATUS: Mapping[type[DrumbeatError], int] = {
    InvalidInput: 422,
    NotFound: 404,
    AlreadyExists: 409,
    Refused: 409,
    JobEnded: 409,
    StoreError: 503,
    SpawnError: 502,
    MissingExtra: 501,
}
_NAMED = re.compile(r"(?:the template is wrong at )?([A-Za-z_][\w.\[\]-]*): (.+)", re.DOTALL)
_MOST_FIELDS = 100  #: named in one answer
_LONGEST = 4000  #: characters of a detail

log = logging.getLogger(__name__)


def problem(
    status: int, detail: str, headers: Mapping[str, str] | None = None, *, errors: Sequence[Mapping[str, Any]] = ()
) -> JSONResponse:
    """An answer that says what is wrong. ``errors`` name fields: each with ``field`` and ``detail``."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _written(detail),
    }
    if errors:
        body["errors"] = [{name: _written(str(said)) for name, said in each.items()} for each in errors[:_MOST_FIELDS]]
    return JSONResponse(body, status_code=status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def _written(text: str) -> str:
    """Text that any answer can hold."""
    return text.encode("utf-8", "replace").decode()[:_LONGEST]


def explain_errors(app: FastAPI) -> None:
    """Have every error of ours, and FastAPI's own, answered as a problem."""
    app.add_exception_handler(DrumbeatError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unforeseen)


def status_of(error: DrumbeatError) -> int:
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)


async def _ours(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, DrumbeatError)
    status = status_of(exc)
    if status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path[:200], exc)
    headers = {"Retry-After": "5"} if status == 503 else None
    return problem(status, str(exc), headers, errors=fields_in(str(exc)) if isinstance(exc, InvalidInput) else ())


def fields_in(message: str) -> list[dict[str, str]]:
    """The fields a message of ours names, each at the beginning of a line: ``scaling.mode: expected …``."""
    found = (_NAMED.fullmatch(line.strip()) for line in message.splitlines())
    return [{"field": each[1], "detail": each[2]} for each in found if each]


@contextmanager
def naming(field: str) -> Iterator[None]:
    """What is refused within and names no field is this one's fault."""
    try:
        yield
    except InvalidInput as exc:
        raise exc if fields_in(str(exc)) else InvalidInput(f"{field}: {exc}") from exc


async def _invalid(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, RequestValidationError)
    errors = [{"field": _place(each["loc"]), "detail": str(each["msg"])} for each in exc.errors()[:_MOST_FIELDS]]
    detail = "; ".join(f"{each['field']}: {each['detail']}" for each in errors)
    return problem(422, detail or "the request is not as expected", errors=errors)


def _place(parts: Sequence[Any]) -> str:
    """Where a field is: a body's by its own name, others with where they stand (path, query, header)."""
    named = parts[1:] if len(parts) > 1 and parts[0] == "body" else parts
    return ".".join(str(part) for part in named)


async def _http(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)
    return problem(exc.status_code, str(exc.detail), exc.headers)


async def _unforeseen(request: Request, exc: Exception) -> JSONResponse:
    if not is_for_nobody(request.scope, exc):
        log.error("%s %s failed", request.method, request.url.path[:200], exc_info=exc)
    return problem(500, "it failed in a way nobody foresaw; the server's log says how")
