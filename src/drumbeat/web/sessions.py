"""Sessions as signed cookies: nothing of them is kept here, so they outlive a restart, and end when a token changes."""

import base64
import hashlib
import hmac
import json
from datetime import datetime, timedelta
from http.cookies import CookieError, SimpleCookie

from drumbeat.web.roles import Role
from drumbeat.web.settings import WebSettings

COOKIE = "drumbeat_session"
LIFETIME = timedelta(hours=12)
_PURPOSE = b"drumbeat session 1"


class Sessions:
    """Opens and reads sessions. The key is made of the tokens, so that no other server and no former token can."""

    def __init__(self, settings: WebSettings) -> None:
        secret = "\0".join((settings.token or "", settings.read_token or "")).encode()
        self._key = hmac.digest(secret, _PURPOSE, hashlib.sha256)
        self._settings = settings

    def role_of(self, token: str) -> Role | None:
        """Whom a token lets in. Takes the same time however much of it is right."""
        given = token.encode()
        operator = hmac.compare_digest(given, (self._settings.token or "").encode())
        reader = hmac.compare_digest(given, (self._settings.read_token or "").encode())
        if operator and self._settings.token:
            return Role.OPERATOR
        return Role.READER if reader and self._settings.read_token else None

    def open(self, role: Role, now: datetime) -> str:
        """A cookie's value."""
        body = base64.urlsafe_b64encode(json.dumps({"role": role, "until": (now + LIFETIME).timestamp()}).encode())
        return f"{body.decode()}.{self._sign(body)}"

    def read(self, cookie: str, now: datetime) -> Role | None:
        """Whom a cookie lets in; None if it is not of ours, or too old."""
        body, _, signature = cookie.partition(".")
        if not body.isascii() or not hmac.compare_digest(self._sign(body.encode()).encode(), signature.encode()):
            return None
        kept = json.loads(base64.urlsafe_b64decode(body))
        return Role(kept["role"]) if kept["until"] > now.timestamp() else None

    def _sign(self, body: bytes) -> str:
        return base64.urlsafe_b64encode(hmac.digest(self._key, body, hashlib.sha256)).decode()


def cookie_in(header: str) -> str | None:
    """The session's cookie in a Cookie header."""
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(header)
    except CookieError:
        return None
    found = jar.get(COOKIE)
    return found.value if found else None
