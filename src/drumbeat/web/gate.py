"""The gate before everything the server answers: API, pages, streams and files alike. Nobody passes beside it."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response

from drumbeat.core.clock import Clock
from drumbeat.web.login import LOGIN, Login
from drumbeat.web.problems import problem
from drumbeat.web.roles import SAFE_METHODS, Caller, Means, Role, allowed
from drumbeat.web.sessions import Sessions, cookie_in
from drumbeat.web.settings import WebSettings, is_loopback

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HOOKS = "/hooks/"  #: webhooks are let in by their signature, which is checked behind the gate
POLICY_VIOLATION = 1008  #: what a WebSocket that is refused is closed with
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)

log = logging.getLogger(__name__)


class Gate:
    """Lets a request through to the application, with its caller in the scope's state, or answers it here."""

    def __init__(self, app: App, settings: WebSettings, clock: Clock) -> None:
        self._app = app
        self._settings = settings
        self._clock = clock
        self._sessions = Sessions(settings)
        self._login = Login(self._sessions, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        guarded = _guarding(send)
        answer = self._refusal(scope, headers)
        if answer is not None:
            await _refuse(answer, scope, receive, guarded)
        elif scope["type"] == "http" and scope["path"] == LOGIN and scope["method"] == "POST" and not self._settings.is_open:
            await self._login.answer(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """Why a request does not pass, as an answer to it; None: it passes."""
        if not self._is_ours(headers.get("host", "")):
            return problem(421, "expected this server's own name in Host; give it with --name if a proxy is before it")
        method = scope.get("method", "GET")
        if _is_foreign(scope, headers) and (scope["type"] == "websocket" or method not in SAFE_METHODS):
            return problem(403, "expected the request to come from this server's own pages; another site sent it")
        if scope["path"] == LOGIN and method == "POST":
            return None
        if scope["path"].startswith(HOOKS):
            return None
        caller = self._caller(headers)
        if caller is None:
            return self._login.page(headers, scope["path"])
        if not allowed(caller, method):
            return problem(403, "expected an operator, got a reader, who may look and change nothing")
        scope.setdefault("state", {})["caller"] = caller
        return None

    def _caller(self, headers: dict[str, str]) -> Caller | None:
        if self._settings.is_open:
            return Caller(role=Role.OPERATOR, means=Means.LOOPBACK)
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            role = self._sessions.role_of(token.strip())
            return Caller(role=role, means=Means.TOKEN) if role else None
        cookie = cookie_in(headers.get("cookie", ""))
        role = self._sessions.read(cookie, self._clock.now()) if cookie else None
        return Caller(role=role, means=Means.SESSION) if role else None

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header names this server; without a token other names would let other sites in (DNS rebinding)."""
        if not self._settings.is_open and not self._settings.names:
            return True
        name = _name_of(host)
        return is_loopback(name) or name in self._settings.names or name == self._settings.host


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_foreign(scope: Scope, headers: dict[str, str]) -> bool:
    """Whether a browser says that another site's page sent this. Programs say nothing, and carry no cookie."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host", "")


async def _refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    log.info("refused %s %s", scope.get("method", scope["type"]), scope["path"])
    if scope["type"] == "http":
        await answer(scope, receive, send)
    elif "websocket.http.response" in scope.get("extensions", {}):
        await answer({**scope, "type": "http"}, receive, _as_denial(send))
    else:
        await receive()
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "not allowed"})


def _as_denial(send: Send) -> Send:
    async def deny(message: MutableMapping[str, Any]) -> None:
        await send({**message, "type": message["type"].replace("http.", "websocket.http.", 1)})

    return deny


def _guarding(send: Send) -> Send:
    """Adds to each answer what browsers are to know of it."""

    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
        await send(message)

    return guarded
