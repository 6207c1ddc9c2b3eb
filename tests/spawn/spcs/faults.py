"""What can go wrong at the simulated Snowflake, on command."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Befalls the next statements of its operation, such as ``EXECUTE JOB SERVICE``, or of any.

    ``sign in`` is an operation too, and so is ``connection``: any request of a statement over HTTP.
    """

    operation: str | None = None
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Loses(Fault):
    """The connection breaks before the answer."""

    done: bool = True  #: whether what was asked is done all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(Fault):
    """It says no, or that something went wrong."""

    errno: int
    message: str = "on command"
    sqlstate: str = ""
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays(Fault):
    """It takes its time."""

    by: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Omits(Fault):
    """A list leaves everything out, as one that was made earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbles(Fault):
    """The answer is not what it should be: its rows have other columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Says(Fault):
    """A service is said to have another status than it has."""

    status: str
