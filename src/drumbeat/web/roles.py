"""Who may do what."""

from dataclasses import dataclass
from enum import StrEnum

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Role(StrEnum):
    """What somebody who was let in may do."""

    READER = "reader"  #: look at everything, change nothing
    OPERATOR = "operator"  #: all that the command line can


class Means(StrEnum):
    """How somebody showed who they are."""

    LOOPBACK = "loopback"  #: no token is asked for on this machine
    TOKEN = "token"  #: a bearer token, with each request  # noqa: S105
    SESSION = "session"  #: a cookie, after a login


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who was let in."""

    role: Role
    means: Means

    @property
    def may_change(self) -> bool:
        return self.role is Role.OPERATOR


def allowed(caller: Caller, method: str) -> bool:
    """Whether a caller may make a request with this method."""
    return caller.may_change or method in SAFE_METHODS
