"""Answers HEAD (except on endless streams) and OPTIONS on API paths, and 405 for methods that a path does not have."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Message, Receive, Scope, Send

from drumbeat.web.problems import problem

API = ("/api/", "/hooks/")
_PLAIN = ("/health", "/ready", "/metrics")
_STREAM = "-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """The path pattern and the HTTP methods of a route."""

    pattern: re.Pattern[str]
    methods: frozenset[str]


class Methods:
    """Wraps the application and answers HEAD, OPTIONS and unknown methods of the API. Pages are passed through."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes: Sequence[_Route] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_ours(scope["path"]):
            await self._app(scope, receive, send)
            return
        self._routes = self._routes or known_routes(self._app)
        method, allowed = scope["method"], allowed_methods(self._routes, scope["path"])
        if answer := _answer(method, allowed):
            await answer(scope, receive, send)
        elif method == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, _bodiless(send))
        else:
            await self._app(scope, receive, send)


def _answer(method: str, allowed: Sequence[str]) -> Response | None:
    """Return the response to an unknown path, a wrong method or OPTIONS; None if the application must answer."""
    if not allowed:
        return problem(404, "no such path; all paths are listed at /api/v1/openapi.json")
    if method not in allowed:
        return problem(405, f"expected {', '.join(allowed)}, got {method}", {"Allow": ", ".join(allowed)})
    return Response(status_code=204, headers={"Allow": ", ".join(allowed)}) if method == "OPTIONS" else None


def known_routes(app: FastAPI) -> Sequence[_Route]:
    """Return every route of the application that has HTTP methods."""
    routes = [each for each in all_routes(app.routes) if getattr(each, "methods", None) and hasattr(each, "path_regex")]
    return [_Route(pattern=each.path_regex, methods=frozenset(each.methods)) for each in routes]  # type: ignore[attr-defined]


def allowed_methods(routes: Sequence[_Route], path: str) -> Sequence[str]:
    """Return the HTTP methods of all routes that match a path; empty if none matches.

    A path can match two routes: /templates/plan accepts POST, and also GET, for the template that is named plan."""
    found = {method for each in routes if each.pattern.match(path) for method in each.methods}
    if "GET" in found and not path.endswith(_STREAM):
        found |= {"HEAD"}
    return sorted(found | {"OPTIONS"}) if found else []


def all_routes(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Yield every route, including the routes of included routers."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from all_routes(included.routes)


def _is_ours(path: str) -> bool:
    return path.startswith(API) or path in _PLAIN


def _bodiless(send: Send) -> Send:
    async def send_without_body(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_without_body
