"""Login and logout: a page without scripts, a rate limit on wrong tokens, and the session cookie."""

import logging
from datetime import timedelta
from html import escape
from importlib.resources import files
from math import ceil
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from drumbeat.core.clock import Clock
from drumbeat.web.login_attempts import LoginAttempts
from drumbeat.web.logouts import Logouts
from drumbeat.web.problems import problem
from drumbeat.web.sessions import COOKIE, LIFETIME, Sessions, cookie_in

LOGIN = "/login"
LOGOUT = "/logout"
LONGEST_FORM = 8 * 1024
_SAFE_IN_QUERY = "/?:@!$&'()*+,;=%"
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="drumbeat"'}

log = logging.getLogger(__name__)


class Login:
    """Answers login forms, logouts and requests without a session."""

    def __init__(self, sessions: Sessions, logouts: Logouts, attempts: LoginAttempts, clock: Clock) -> None:
        self._sessions = sessions
        self._logouts = logouts
        self._attempts = attempts
        self._clock = clock

    def page(self, headers: dict[str, str], path: str = "/", query: str = "") -> Response:
        """Return the response (401) to a request without a login: the login form for browsers, a JSON error for programs."""
        if not _accepts_html(headers):
            return problem(401, "expected a token: send Authorization: Bearer TOKEN, or log in at /login", _CHALLENGE)
        return _form("/" if path in (LOGIN, LOGOUT) else _url(path, query))

    def rate_limited(self, headers: dict[str, str], wait: timedelta) -> Response:
        """Return the response (429) to a client whose address has sent too many wrong tokens."""
        seconds = max(ceil(wait.total_seconds()), 1)
        retry_after = {"Retry-After": str(seconds)}
        if not _accepts_html(headers):
            return problem(429, f"too many wrong tokens from your address; retry in {seconds} s", retry_after)
        return _form(message=f"Too many wrong tokens. Try again in {seconds} s.", status=429, headers=retry_after)

    async def answer(self, scope: Any, receive: Any, send: Any, address: str) -> None:
        """Handle a submitted login form."""
        try:
            response = await self._answer(Request(scope, receive), address)
        except ClientDisconnect:
            log.debug("client disconnected before its login form had arrived")
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request, address: str) -> Response:
        body = await _read_body(request)
        if body is None:
            return _form(message="The login form is too large.", status=413)
        fields = parse_qs(body.decode("latin-1"))
        role = self._sessions.role_of("".join(fields.get("token", [])[:1]))
        target = _local_path(fields.get("next", ["/"])[0])
        if role is None:
            if wait := self._attempts.barred_for(address):
                return self.rate_limited(dict(request.headers), wait)
            self._attempts.note(address)
            return _form(target, message="Wrong token.")
        return self._logged_in(request, self._sessions.open(role, self._clock.now()), target)

    def _logged_in(self, request: Request, cookie: str, target: str) -> Response:
        response = RedirectResponse(target, status_code=303)
        secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
        response.set_cookie(
            COOKIE, cookie, max_age=int(LIFETIME.total_seconds()), httponly=True, samesite="strict", secure=secure
        )
        return response

    async def leave(self, headers: dict[str, str]) -> Response:
        """Log out: end the session and delete its cookie."""
        cookie = cookie_in(headers.get("cookie", ""))
        if cookie is not None:
            await self._logouts.end(cookie)
        response = RedirectResponse("/", status_code=303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response


def _accepts_html(headers: dict[str, str]) -> bool:
    return "text/html" in headers.get("accept", "")


def _form(path: str = "/", message: str = "", status: int = 401, headers: dict[str, str] | None = None) -> HTMLResponse:
    text = files("drumbeat.web").joinpath("login.html").read_text(encoding="utf-8")
    filled = text.replace("{{next}}", escape(path)).replace("{{message}}", escape(message))
    return HTMLResponse(filled, status_code=status, headers=headers or (_CHALLENGE if status == 401 else None))


def _url(path: str, query: str) -> str:
    """Return the requested path and query as a percent-encoded URL, to return to after the login."""
    return quote(path) + (f"?{quote(query, safe=_SAFE_IN_QUERY)}" if query else "")


def _local_path(path: str) -> str:
    """Return the path if it is on this server, else ``/``, so that a login never redirects to another site."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return "/"
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.netloc and path.isprintable()
    return path if is_ours else "/"


async def _read_body(request: Request) -> bytes | None:
    """Return the request body; None if it is longer than ``LONGEST_FORM`` bytes."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM:
            return None
    return body
