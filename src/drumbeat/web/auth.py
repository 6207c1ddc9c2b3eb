"""Authentication of every request: API, pages, streams and static files."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreError
from drumbeat.store.interface import Notes
from drumbeat.web.bodies import limit_body
from drumbeat.web.headers import with_security_headers
from drumbeat.web.login import LOGIN, LOGOUT, Login
from drumbeat.web.login_attempts import LoginAttempts
from drumbeat.web.logouts import Logouts
from drumbeat.web.problems import problem
from drumbeat.web.roles import SAFE_METHODS, AuthMethod, Caller, Role, allowed
from drumbeat.web.sessions import Sessions, cookie_in
from drumbeat.web.settings import WebSettings, is_loopback

App = Callable[[Scope, Receive, Send], Awaitable[None]]

PROBES = frozenset({"/health", "/ready"})  #: need no token and accept any Host, for load balancers; they reveal nothing
HOOKS = "/hooks/"  #: webhooks need no token; their route checks their signature
POLICY_VIOLATION = 1008  #: close code of a refused WebSocket

log = logging.getLogger(__name__)


class AuthMiddleware:
    """Authenticates each request and refuses it or passes it to the application, with the caller in ``scope["state"]``."""

    def __init__(self, app: App, settings: WebSettings, clock: Clock, notes: Notes) -> None:
        """``notes``: the store's notes, where logouts are kept."""
        self._app = app
        self._settings = settings
        self._clock = clock
        self._sessions = Sessions(settings)
        self._attempts = LoginAttempts(clock)
        self._logged = LoginAttempts(clock)  # the same limit, for log lines about refused requests
        self._logouts = Logouts(self._sessions, notes, clock)
        self._login = Login(self._sessions, self._logouts, self._attempts, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        answer = await self._answer(scope, headers)
        if answer is not None:
            self._log_refusal(answer, scope, self._address(scope, headers))
            await _refuse(answer, scope, receive, _with_headers(send, scope["path"], is_refusal=True))
        elif self._is_login(scope):
            guarded_send = _with_headers(send, scope["path"], is_refusal=True)
            await self._login.answer(scope, receive, guarded_send, self._address(scope, headers))
        else:
            await self._app(scope, limit_body(scope, headers, receive), _with_headers(send, scope["path"], is_refusal=False))

    async def _answer(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """Return the response if the request must not reach the application (refusal, logout); None to pass the request on."""
        if scope["type"] == "http" and scope["path"] in PROBES and scope["method"] in ("GET", "HEAD"):
            return None
        if not self._is_ours(headers.get("host", "")):
            return problem(421, "expected this server's name in the Host header; behind a proxy, start the server with --name")
        method, path = scope.get("method", "GET"), scope["path"]
        if self._is_foreign(headers) and (scope["type"] == "websocket" or method not in SAFE_METHODS):
            return problem(403, "expected a request from this server's own pages, got one from another site")
        if self._is_login(scope) or (path.startswith(HOOKS) and method == "POST"):
            return None
        try:
            caller = await self._caller(headers)
        except StoreError as exc:
            return problem(503, f"cannot check whether this session was logged out: {exc}; try again")
        if caller is None:
            return self._unauthenticated(scope, headers)
        if path == LOGOUT and scope["type"] == "http":
            return await self._login.leave(headers)
        if path == LOGIN and method == "GET":
            return RedirectResponse("/", status_code=303)
        if not allowed(caller, method):
            return problem(403, "expected the operator role, got reader, which is read-only")
        scope.setdefault("state", {})["caller"] = caller
        return None

    def _log_refusal(self, answer: Response, scope: Scope, address: str) -> None:
        """Log a refused request, unless enough others of this address were just logged: they must not fill the disk."""
        if not self._logged.barred_for(address):
            self._logged.note(address)
            method = scope.get("method", scope["type"])
            log.info("refused %s %s with status %d", method, scope["path"][:200], answer.status_code)

    def _is_login(self, scope: Scope) -> bool:
        is_form = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == LOGIN
        return is_form and not self._settings.is_open

    def _unauthenticated(self, scope: Scope, headers: dict[str, str]) -> Response:
        """Return the response to an unauthenticated request. Wrong tokens count for the rate limit; missing tokens do not."""
        if _token(headers) is not None:
            address = self._address(scope, headers)
            if wait := self._attempts.barred_for(address):
                return self._login.rate_limited(headers, wait)
            self._attempts.note(address)
        return self._login.page(headers, scope["path"], scope.get("query_string", b"").decode("latin-1"))

    async def _caller(self, headers: dict[str, str]) -> Caller | None:
        """Return the caller; None if it is not authenticated. Raises StoreError if the logouts were never read."""
        if self._settings.is_open:
            return Caller(role=Role.OPERATOR, means=AuthMethod.LOOPBACK)
        token = _token(headers)
        if token is not None:
            role = self._sessions.role_of(token)
            return Caller(role=role, means=AuthMethod.TOKEN) if role else None
        cookie = cookie_in(headers.get("cookie", ""))
        if cookie is None or self._sessions.read(cookie, self._clock.now()) is None:
            return None
        await self._logouts.refresh()
        session = self._sessions.read(cookie, self._clock.now())
        if session is None:
            return None
        return Caller(
            role=session.role, means=AuthMethod.SESSION, is_valid=lambda: self._sessions.is_valid(session, self._clock.now())
        )

    def _address(self, scope: Scope, headers: dict[str, str]) -> str:
        """Return the client's IP address; if a local proxy sent the request and --name is set, the last in X-Forwarded-For."""
        client = scope.get("client")
        peer = str(client[0]) if client else "unknown"
        forwarded = headers.get("x-forwarded-for", "")
        return forwarded.rpartition(",")[2].strip() if forwarded and self._settings.names and is_loopback(peer) else peer

    def _is_ours(self, host: str) -> bool:
        """Whether the Host header names this server, to stop DNS rebinding. With tokens but no --name, any name passes."""
        if not self._settings.is_open and not self._settings.names:
            return True
        name = _hostname(host)
        return is_loopback(name) or name in self._settings.names or name == self._settings.host.casefold()

    def _is_foreign(self, headers: dict[str, str]) -> bool:
        """Whether a browser's headers say that another site's page sent the request; False if there are no such headers."""
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site not in ("same-origin", "none")
        origin = headers.get("origin")
        if origin is None:
            return False
        netloc = _netloc(origin).casefold()
        return netloc != headers.get("host", "").casefold() and netloc not in self._settings.names


def _token(headers: dict[str, str]) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


async def _refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
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


def _with_headers(send: Send, path: str, *, is_refusal: bool) -> Send:
    async def guarded_send(message: MutableMapping[str, Any]) -> None:
        is_start = message["type"] == "http.response.start"
        await send(with_security_headers(message, path, is_refusal=is_refusal) if is_start else message)

    return guarded_send
