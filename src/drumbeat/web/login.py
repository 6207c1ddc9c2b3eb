"""The login: a page without scripts, a limit on wrong tokens, and the cookie that follows a right one."""

from collections import deque
from datetime import timedelta
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from drumbeat.core.clock import Clock
from drumbeat.web.problems import problem
from drumbeat.web.sessions import COOKIE, LIFETIME, Sessions

LOGIN = "/login"
LONGEST_FORM = 8 * 1024
WRONG_AT_MOST = 5  #: wrong tokens in a window, from everybody together: there is one token to guess
WINDOW = timedelta(minutes=1)


class Login:
    """Answers those who are not let in yet."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        self._wrong: deque[timedelta] = deque(maxlen=WRONG_AT_MOST)

    def page(self, headers: dict[str, str], path: str = "/") -> Response:
        """401, as a form for browsers and as a problem for programs."""
        if "text/html" not in headers.get("accept", ""):
            return problem(401, "expected a token: Authorization: Bearer …, or log in at /login", _CHALLENGE)
        return _form(path)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Take a form's token."""
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if self._is_barred():
            return _form(message="Too many wrong tokens; wait a minute.", status=429)
        body = await _bounded(request)
        if body is None:
            return _form(message="That was too long for a token.", status=413)
        fields = parse_qs(body.decode("latin-1"))
        role = self._sessions.role_of("".join(fields.get("token", [])[:1]))
        if role is None:
            self._wrong.append(self._clock.elapsed())
            return _form(message="That token is not right.")
        return self._welcome(request, self._sessions.open(role, self._clock.now()), _inside(fields.get("next", ["/"])[0]))

    def _is_barred(self) -> bool:
        return len(self._wrong) == WRONG_AT_MOST and self._clock.elapsed() - self._wrong[0] < WINDOW

    def _welcome(self, request: Request, cookie: str, to: str) -> Response:
        response = RedirectResponse(to, status_code=303)
        secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
        response.set_cookie(
            COOKIE, cookie, max_age=int(LIFETIME.total_seconds()), httponly=True, samesite="strict", secure=secure
        )
        return response


_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="drumbeat"'}


def _form(path: str = "/", message: str = "", status: int = 401) -> HTMLResponse:
    text = files("drumbeat.web").joinpath("login.html").read_text(encoding="utf-8")
    filled = text.replace("{{next}}", escape(quote(path, safe="/?=&"))).replace("{{message}}", escape(message))
    return HTMLResponse(filled, status_code=status, headers=_CHALLENGE if status == 401 else None)


def _inside(path: str) -> str:
    """A path of this server; whatever else was asked for leads home."""
    parts = urlsplit(path)
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.netloc and path.isprintable()
    return path if is_ours else "/"


async def _bounded(request: Request) -> bytes | None:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM:
            return None
    return body
