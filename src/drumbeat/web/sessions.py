"""Sessions as signed cookies: they outlive a restart, and end by age, by a logout, or when a token changes."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.web.roles import Role
from drumbeat.web.settings import WebSettings

COOKIE = "drumbeat_session"
LIFETIME = timedelta(hours=12)
_PURPOSE = b"drumbeat session 1"
_MOST_ENDED = 10_000  #: logouts that are remembered
_LONGEST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSession:
    """What a cookie says, once its signature is known to be ours."""

    session_id: str
    role: Role
    until: float  #: seconds since 1970


class Sessions:
    """Opens, reads and ends sessions. The key is made of the tokens, so that no other server and no former token can."""

    def __init__(self, settings: WebSettings) -> None:
        secret = "\0".join((settings.token or "", settings.read_token or "")).encode()
        self._key = hmac.digest(secret, _PURPOSE, hashlib.sha256)
        self._tokens = {Role.OPERATOR: settings.token, Role.READER: settings.read_token}
        self._ended: OrderedDict[str, None] = OrderedDict()

    def role_of(self, token: str) -> Role | None:
        """Whom a token lets in. Takes the same time however much of it is right, and however long it is."""
        given = self._mark(token)
        right = [role for role, known in self._tokens.items() if hmac.compare_digest(given, self._mark(known or "")) and known]
        return right[0] if right else None

    def open(self, role: Role, now: datetime) -> str:
        """A cookie's value."""
        said = {"id": secrets.token_urlsafe(16), "role": role, "until": (now + LIFETIME).timestamp()}
        body = base64.urlsafe_b64encode(json.dumps(said).encode())
        return f"{body.decode()}.{self._sign(body)}"

    def read(self, cookie: str, now: datetime) -> LoginSession | None:
        """Whose cookie it is; None if it is not of ours, too old, or logged out."""
        found = self._session(cookie)
        return found if found is not None and self.holds(found, now) else None

    def holds(self, session: LoginSession, now: datetime) -> bool:
        """Whether a session goes on: it is neither too old nor logged out, and its role still has a token."""
        ended = session.until <= now.timestamp() or session.session_id in self._ended
        return not ended and bool(self._tokens[session.role])

    def end(self, cookie: str) -> None:
        """Let this cookie in no more, for as long as this process lives."""
        found = self._session(cookie)
        if found is not None:
            self._ended[found.session_id] = None
            if len(self._ended) > _MOST_ENDED:
                self._ended.popitem(last=False)

    def _session(self, cookie: str) -> LoginSession | None:
        body, _, signature = cookie.partition(".")
        if len(cookie) > _LONGEST or not cookie.isascii() or not _same(self._sign(body.encode()), signature):
            return None
        try:
            said = json.loads(base64.urlsafe_b64decode(body))
            return LoginSession(session_id=str(said["id"]), role=Role(said["role"]), until=float(said["until"]))
        except (binascii.Error, ValueError, TypeError, KeyError, RecursionError):
            return None

    def _mark(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode(errors="replace"), hashlib.sha256)

    def _sign(self, body: bytes) -> str:
        return base64.urlsafe_b64encode(hmac.digest(self._key, body, hashlib.sha256)).decode()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def cookie_in(header: str) -> str | None:
    """The session's cookie in a Cookie header, whatever else is in it."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value.strip().strip('"')
    return None
