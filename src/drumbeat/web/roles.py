"""Roles of callers, and which requests each role is allowed to make."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Role(StrEnum):
    """The role of a caller, which decides what the caller is allowed to do."""

    READER = "reader"  #: reads everything, changes nothing
    OPERATOR = "operator"  #: reads and changes everything


class AuthMethod(StrEnum):
    """How a caller was authenticated."""

    LOOPBACK = "loopback"  #: from this machine, where no token is required
    TOKEN = "token"  #: a bearer token, with each request  # noqa: S105
    SESSION = "session"  #: a cookie, after a login


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller. ``is_valid`` returns whether the session is still valid: a page can stay open for hours."""

    role: Role
    means: AuthMethod
    is_valid: Callable[[], bool] = _always  #: False once the session has expired or was logged out

    @property
    def may_change(self) -> bool:
        return self.role is Role.OPERATOR and self.is_valid()


def allowed(caller: Caller, method: str) -> bool:
    """Whether a caller is allowed to use this HTTP method: operators can use any, readers only safe methods such as GET."""
    return caller.may_change or method in SAFE_METHODS
