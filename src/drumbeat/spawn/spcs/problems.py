"""Turns errors of Snowflake into exceptions, each with a cause and with one line that says what to do."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from drumbeat.core.errors import SpawnCause, SpawnError, Unanswered

_LONGEST = 500
_EXISTS: Final = 2002
_MISSING: Final = frozenset({2003, 2043})
#: the session is too old or was closed: sign in again. 250001: the connector could not renew it
_EXPIRED: Final = frozenset({250_001, 390_104, *range(390_110, 390_116)})
_CAUSES: Mapping[int, SpawnCause] = {
    3001: SpawnCause.AUTH,  # insufficient privileges
    666: SpawnCause.NO_MONEY,  # the account is suspended
    90_073: SpawnCause.NO_MONEY,  # a resource monitor's quota is used up
    1003: SpawnCause.BAD_REQUEST,  # a syntax error
    **dict.fromkeys(range(390_100, 390_500), SpawnCause.AUTH),  # failed sign-ins
}
_WORDS: tuple[tuple[re.Pattern[str], SpawnCause], ...] = (
    (re.compile(r"insufficient privileges|not authorized to|permission denied", re.I), SpawnCause.AUTH),
    (re.compile(r"suspended due to|payment|resource monitor|trial .*ended", re.I), SpawnCause.NO_MONEY),
    (re.compile(r"too many (requests|statements|queries)|rate limit|\b429\b", re.I), SpawnCause.RATE_LIMITED),
    (
        re.compile(
            r"(capacity|quota|no .*nodes? .*available|maximum number|limit .*(reached|exceeded)|(reached|exceed\w*) .*limit"
            r"|insufficient (cpu|memory|gpu|resources))",
            re.I,
        ),
        SpawnCause.NO_CAPACITY,
    ),
    (
        re.compile(r"try again|temporar|timed? ?out|unavailable|internal error|being (created|resumed|stopped)", re.I),
        SpawnCause.TRANSIENT,
    ),
)
_RETRY_AFTER: Mapping[SpawnCause, timedelta] = {
    SpawnCause.NO_CAPACITY: timedelta(minutes=1),
    SpawnCause.RATE_LIMITED: timedelta(seconds=30),
}


class NotSubmitted(Unanswered):
    """The statement was not sent, because the sign-in or the connection failed; so it certainly had no effect."""


class SpcsRefused(SpawnError):
    """Snowflake answered a statement with an error; ``errno`` and ``sqlstate`` are its codes, ``said`` is its message."""

    def __init__(self, message: str, *, errno: int, sqlstate: str, said: str, cause: SpawnCause) -> None:
        super().__init__(message, cause=cause, retry_after=_RETRY_AFTER.get(cause))
        self.errno, self.sqlstate, self.said = errno, sqlstate, said

    @property
    def says_exists(self) -> bool:
        """Whether the error says that an object of that name already exists."""
        return self.errno == _EXISTS or "already exists" in self.said

    @property
    def says_missing(self) -> bool:
        """Whether the error says that no object of that name exists, or none that the role may see."""
        return self.errno in _MISSING

    @property
    def says_expired(self) -> bool:
        """Whether the error says that the session has expired; then the statement was not run."""
        return self.errno in _EXPIRED


def refusal(place: str, what: str, errno: int, sqlstate: str, said: str) -> SpcsRefused:
    """Return the exception for an error of Snowflake. ``place``: the account; ``what``: such as ``DROP SERVICE``."""
    line = one_line(said) or "no reason given"
    cause = cause_of(errno, sqlstate, line)
    return SpcsRefused(
        f"{place}: {what} failed ({errno:06d}): {line}{_advice(errno, cause, line)}",
        errno=errno,
        sqlstate=sqlstate,
        said=line,
        cause=cause,
    )


def cause_of(errno: int, sqlstate: str, said: str) -> SpawnCause:
    """Return the cause of an error, by its number, its message or its SQL state; an unknown error counts as BAD_REQUEST."""
    if errno in _CAUSES:
        return _CAUSES[errno]
    for words, cause in _WORDS:
        if words.search(said):
            return cause
    if sqlstate == "42501":
        return SpawnCause.AUTH
    return SpawnCause.TRANSIENT if sqlstate[:2] in {"XX", "08", "57", "58"} else SpawnCause.BAD_REQUEST


def one_line(text: str) -> str:
    """Return a text as one line; it is cut after 500 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _advice(errno: int, cause: SpawnCause, said: str) -> str:
    """Return what to do about an error, as the end of its message; empty if there is no advice."""
    if errno in _MISSING:
        return "; check the name, and that the role may use it: see the grants in docs/engines.md"
    if cause is SpawnCause.AUTH:
        return "; check the sign-in, and the role's grants: see docs/engines.md"
    if cause is SpawnCause.NO_CAPACITY and "service" in said.lower() and "maximum" in said.lower():
        return "; drop services that have ended, or ask Snowflake for a higher limit"
    if cause is SpawnCause.NO_CAPACITY:
        return "; raise MAX_NODES of the compute pool, or run fewer workers"
    return ""
