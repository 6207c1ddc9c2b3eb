"""Who may do what."""

from collections.abc import Callable
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


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who was let in. A page stays open for hours: ``is_here`` says whether they would be let in still."""

    role: Role
    means: Means
    is_here: Callable[[], bool] = _always  #: a session ends by a logout anywhere, or by its age

    @property
    def may_change(self) -> bool:
        return self.role is Role.OPERATOR and self.is_here()


def allowed(caller: Caller, method: str) -> bool:
    """Whether a caller may make a request with this method."""
    return caller.may_change or method in SAFE_METHODS
