"""Login sessions as signed cookies: they survive a restart, and end by age, by logout (logouts.py), or when a token changes."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.web.roles import Role
from drumbeat.web.settings import WebSettings

COOKIE = "drumbeat_session"
LIFETIME = timedelta(hours=12)
_PURPOSE = b"drumbeat session 1"
_LONGEST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSession:
    """A login session, read from a cookie with a valid signature."""

    session_id: str
    role: Role
    until: float  #: when the session expires, in seconds since 1970


class Sessions:
    """Opens, reads and ends sessions. The signing key is derived from the tokens, so a changed token ends all sessions."""

    def __init__(self, settings: WebSettings) -> None:
        secret = "\0".join((settings.token or "", settings.read_token or "")).encode()
        self._key = hmac.digest(secret, _PURPOSE, hashlib.sha256)
        self._tokens = {Role.OPERATOR: settings.token, Role.READER: settings.read_token}
        self._ended: dict[str, float] = {}  #: sessions that were logged out, and when each would have expired

    def role_of(self, token: str) -> Role | None:
        """Return the role of a token; None if the token is wrong. Compares in constant time."""
        given = self._digest(token)
        tokens = self._tokens.items()
        right = [role for role, known in tokens if hmac.compare_digest(given, self._digest(known or "")) and known]
        return right[0] if right else None

    def open(self, role: Role, now: datetime) -> str:
        """Start a session and return its cookie value."""
        content = {"id": secrets.token_urlsafe(16), "role": role, "until": (now + LIFETIME).timestamp()}
        body = base64.urlsafe_b64encode(json.dumps(content).encode())
        return f"{body.decode()}.{self._sign(body)}"

    def read(self, cookie: str, now: datetime) -> LoginSession | None:
        """Return the session of a cookie; None if the cookie is invalid, expired or logged out."""
        found = self._session(cookie)
        return found if found is not None and self.is_valid(found, now) else None

    def is_valid(self, session: LoginSession, now: datetime) -> bool:
        """Whether a session is still valid: not expired, not logged out, and its role still has a token."""
        ended = session.until <= now.timestamp() or session.session_id in self._ended
        return not ended and bool(self._tokens[session.role])

    def end(self, cookie: str) -> LoginSession | None:
        """Log out: refuse this cookie from now on. Returns its session; None if the cookie is invalid."""
        found = self._session(cookie)
        if found is not None:
            self._ended[found.session_id] = found.until
        return found

    def note_ended(self, ended: Mapping[str, float], now: datetime) -> None:
        """Add sessions that were logged out elsewhere or before a restart, and forget those that have expired since."""
        known = self._ended | dict(ended)
        self._ended = {session_id: until for session_id, until in known.items() if until > now.timestamp()}

    def _session(self, cookie: str) -> LoginSession | None:
        body, _, signature = cookie.partition(".")
        if len(cookie) > _LONGEST or not cookie.isascii() or not _same(self._sign(body.encode()), signature):
            return None
        try:
            content = json.loads(base64.urlsafe_b64decode(body))
            return LoginSession(session_id=str(content["id"]), role=Role(content["role"]), until=float(content["until"]))
        except (binascii.Error, ValueError, TypeError, KeyError, RecursionError):
            return None

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode(errors="replace"), hashlib.sha256)

    def _sign(self, body: bytes) -> str:
        return base64.urlsafe_b64encode(hmac.digest(self._key, body, hashlib.sha256)).decode()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def cookie_in(header: str) -> str | None:
    """Return the value of the session cookie in a Cookie header; None if the header has none."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value.strip().strip('"')
    return None
