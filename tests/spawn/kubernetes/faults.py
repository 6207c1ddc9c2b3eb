"""What can go wrong at the simulated cluster, on command."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Befalls the next calls of its operation, such as ``create jobs``, or of any."""

    operation: str | None = None
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(Fault):
    """What the caller hears is not what was done."""

    done: bool = False  #: whether what was asked is done all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Loses(Ending):
    """The connection breaks before the answer."""

    done: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(Ending):
    """It says no, or that something went wrong."""

    status: int
    message: str = "on command"
    reason: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None  #: something else than a Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays(Fault):
    """It takes its time."""

    by: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Omits(Fault):
    """A list leaves everything out, as one that was made earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expires(Fault):
    """The token of the next page is too old."""
