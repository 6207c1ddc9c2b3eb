"""Which methods a path of the API knows: HEAD is GET without its body, OPTIONS tells them, others are refused here.

A stream has no HEAD: it has no end.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import BaseRoute

from drumbeat.web.problems import problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

API = ("/api/", "/hooks/")
_PLAIN = ("/health", "/ready", "/metrics")
_STREAM = "-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A route's path, and what may be asked of it."""

    pattern: re.Pattern[str]
    methods: frozenset[str]
    unknowns: int  #: parts of the path that may be anything


class Methods:
    """Stands before the application. Pages answer for themselves."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._ways: Sequence[_Way] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_ours(scope["path"]):
            await self._app(scope, receive, send)
            return
        self._ways = self._ways or ways(self._app)
        method, allowed = scope["method"], allowed_methods(self._ways, scope["path"])
        if answer := _answer(method, allowed):
            await answer(scope, receive, send)
        elif method == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, _bodiless(send))
        else:
            await self._app(scope, receive, send)


def _answer(method: str, allowed: Sequence[str]) -> Response | None:
    """What can be said without the application."""
    if not allowed:
        return problem(404, "there is nothing at this path; what there is, is told at /api/v1/openapi.json")
    if method not in allowed:
        return problem(405, f"expected {', '.join(allowed)}, got {method}", {"Allow": ", ".join(allowed)})
    return Response(status_code=204, headers={"Allow": ", ".join(allowed)}) if method == "OPTIONS" else None


def ways(app: FastAPI) -> Sequence[_Way]:
    """Every route that has methods; those of which most is known first."""
    routes = [each for each in all_routes(app.routes) if getattr(each, "methods", None) and hasattr(each, "path_regex")]
    found = [
        _Way(pattern=each.path_regex, methods=frozenset(each.methods), unknowns=each.path.count("{"))  # type: ignore[attr-defined]
        for each in routes
    ]
    return sorted(found, key=lambda way: way.unknowns)


def allowed_methods(ways: Sequence[_Way], path: str) -> Sequence[str]:
    """What may be asked of a path, by the routes that know most of it; nothing where there is none."""
    here = [way for way in ways if way.pattern.match(path)]
    found = {method for way in here if way.unknowns == here[0].unknowns for method in way.methods}
    if "GET" in found and not path.endswith(_STREAM):
        found |= {"HEAD"}
    return sorted(found | {"OPTIONS"}) if found else []


def all_routes(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Every route, those of included routers too."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from all_routes(included.routes)


def _is_ours(path: str) -> bool:
    return path.startswith(API) or path in _PLAIN


def _bodiless(send: Send) -> Send:
    async def told(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return told
