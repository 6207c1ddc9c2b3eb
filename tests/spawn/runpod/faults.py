"""What can go wrong at the simulated RunPod, on command."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Befalls the next calls of its operation (or of any), for any pod or for one whose name ends with ``about``."""

    operation: str | None = None
    about: str | None = None
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
    detail: str = "on command"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None  #: something else than a problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays(Fault):
    """It takes its time."""

    by: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates(Fault):
    """One creation makes two pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivesLate(Fault):
    """A pod is made, and lists show it only later."""

    by: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Omits(Fault):
    """A list leaves pods out: those whose names end so, or all."""

    names: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invents(Fault):
    """A list shows pods that are not there."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepsOnDelete(Fault):
    """A deletion is confirmed, and the pod stays."""
