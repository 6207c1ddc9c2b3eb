"""The route class of the API: checks the text and JSON of each request, and applies idempotency keys."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.routing import APIRoute

from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import DEEPEST, too_deep
from drumbeat.web.api.entry import PREFIX
from drumbeat.web.api.once import KEY, with_idempotency_key

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class CheckedRequest(Request):
    """A request that refuses a JSON body with NaN or invalid text, or one that is nested too deeply."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = json.loads(await self.body(), parse_constant=_refuse_constant)
        return self._json

    async def check_body(self) -> None:
        """Raise HTTPException 415 if the content type is not JSON, 400 if the body is not; InvalidInput for invalid text."""
        if not await self.body():
            return
        if not _is_json(self.headers.get("content-type")):
            got = self.headers.get("content-type") or "none"
            raise HTTPException(415, f"expected Content-Type: application/json, got {got[:100]}")
        try:
            value = await self.json()
        except RecursionError:
            raise too_deep("JSON") from None
        except ValueError as exc:
            raise HTTPException(400, f"the body is not JSON: {_where(exc)}") from exc
        check(value)


class Route(APIRoute):
    """A route that checks the text and JSON of each request and applies its idempotency key."""

    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()

        async def answer(request: Request) -> Response:
            for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
                _check_text(name, str(name))
                _check_text(str(value), name)
            checked = CheckedRequest(request.scope, request.receive)
            if self.body_field is not None:
                await checked.check_body()
            return await with_idempotency_key(checked, inner) if _has_key(request) else await inner(checked)

        return answer


def _has_key(request: Request) -> bool:
    """Whether to apply an idempotency key: the request has one and is a POST request to the API, not a webhook."""
    return request.method == "POST" and KEY in request.headers and request.url.path.startswith(PREFIX)


def router(tag: str) -> APIRouter:
    """Return a router whose routes check their requests. ``tag``: section in the OpenAPI schema."""
    return APIRouter(tags=[tag], route_class=Route)


def check(value: Any, path: str = "", depth: int = 0) -> None:
    """Raise InvalidInput if JSON contains text that cannot be stored, or is nested too deeply."""
    if depth > DEEPEST:
        raise too_deep("JSON")
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, list):
        for n, each in enumerate(value):
            check(each, f"{path}.{n}" if path else str(n), depth + 1)
    elif isinstance(value, dict):
        for name, each in value.items():
            _check_text(name, path)
            check(each, f"{path}.{name}" if path else name, depth + 1)


def _check_text(text: str, path: str) -> None:
    if "\0" in text or not _is_unicode(text):
        where = path[:200] if _is_unicode(path) and "\0" not in path and path else "text"
        raise InvalidInput(f"{where}: expected text without NUL characters and unpaired surrogates")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _is_json(content_type: str | None) -> bool:
    """Whether FastAPI treats a Content-Type as JSON."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _where(exc: ValueError) -> str:
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} at line {exc.lineno}, column {exc.colno}"
    if isinstance(exc, UnicodeDecodeError):
        return f"expected text in {exc.encoding}, got the byte {exc.object[exc.start]:#04x} at {exc.start}"
    return str(exc)
