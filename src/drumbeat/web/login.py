"""The login: a page without scripts, a limit on wrong tokens, the cookie that follows a right one, and its end."""

from datetime import timedelta
from html import escape
from importlib.resources import files
from math import ceil
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from drumbeat.core.clock import Clock
from drumbeat.web.login_attempts import LoginAttempts
from drumbeat.web.problems import problem
from drumbeat.web.sessions import COOKIE, LIFETIME, Sessions, cookie_in

LOGIN = "/login"
LOGOUT = "/logout"
LONGEST_FORM = 8 * 1024
_IN_A_QUERY = "/?:@!$&'()*+,;=%"
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="drumbeat"'}


class Login:
    """Answers those who are not let in yet, and those who leave."""

    def __init__(self, sessions: Sessions, attempts: LoginAttempts, clock: Clock) -> None:
        self._sessions = sessions
        self._attempts = attempts
        self._clock = clock

    def page(self, headers: dict[str, str], path: str = "/", query: str = "") -> Response:
        """401, as a form for browsers and as a problem for programs."""
        if not _wants_a_page(headers):
            return problem(401, "expected a token: Authorization: Bearer …, or log in at /login", _CHALLENGE)
        return _form("/" if path in (LOGIN, LOGOUT) else _address(path, query))

    def barred(self, headers: dict[str, str], wait: timedelta) -> Response:
        """429: too many wrong tokens came from there."""
        seconds = max(ceil(wait.total_seconds()), 1)
        later = {"Retry-After": str(seconds)}
        if not _wants_a_page(headers):
            return problem(429, f"too many wrong tokens came from your address; wait {seconds} s", later)
        return _form(message=f"Too many wrong tokens; wait {seconds} s.", status=429, headers=later)

    async def answer(self, scope: Any, receive: Any, send: Any, address: str) -> None:
        """Take a form's token."""
        response = await self._answer(Request(scope, receive), address)
        await response(scope, receive, send)

    async def _answer(self, request: Request, address: str) -> Response:
        body = await _bounded(request)
        if body is None:
            return _form(message="That was too long for a token.", status=413)
        fields = parse_qs(body.decode("latin-1"))
        role = self._sessions.role_of("".join(fields.get("token", [])[:1]))
        to = _inside(fields.get("next", ["/"])[0])
        if role is None:
            if wait := self._attempts.barred_for(address):
                return self.barred(dict(request.headers), wait)
            self._attempts.note(address)
            return _form(to, message="That token is not right.")
        return self._welcome(request, self._sessions.open(role, self._clock.now()), to)

    def _welcome(self, request: Request, cookie: str, to: str) -> Response:
        response = RedirectResponse(to, status_code=303)
        secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
        response.set_cookie(
            COOKIE, cookie, max_age=int(LIFETIME.total_seconds()), httponly=True, samesite="strict", secure=secure
        )
        return response

    def leave(self, headers: dict[str, str]) -> Response:
        """End the session, here and in the browser."""
        cookie = cookie_in(headers.get("cookie", ""))
        if cookie is not None:
            self._sessions.end(cookie)
        response = RedirectResponse("/", status_code=303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response


def _wants_a_page(headers: dict[str, str]) -> bool:
    return "text/html" in headers.get("accept", "")


def _form(path: str = "/", message: str = "", status: int = 401, headers: dict[str, str] | None = None) -> HTMLResponse:
    text = files("drumbeat.web").joinpath("login.html").read_text(encoding="utf-8")
    filled = text.replace("{{next}}", escape(path)).replace("{{message}}", escape(message))
    return HTMLResponse(filled, status_code=status, headers=headers or (_CHALLENGE if status == 401 else None))


def _address(path: str, query: str) -> str:
    """Where somebody wanted to go, as a browser writes it."""
    return quote(path) + (f"?{quote(query, safe=_IN_A_QUERY)}" if query else "")


def _inside(path: str) -> str:
    """A path of this server; whatever else was asked for leads home."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return "/"
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.netloc and path.isprintable()
    return path if is_ours else "/"


async def _bounded(request: Request) -> bytes | None:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM:
            return None
    return body
