"""A decision: the actions to take and why, or why there are none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar


class Reasoned(Protocol):
    """An action: a frozen dataclass that names its subject and its reason."""

    @property
    def reason(self) -> str: ...


A = TypeVar("A", bound=Reasoned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[A]):
    """The actions to take, or why there are none."""

    actions: Sequence[A] = ()
    why_not: str | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)  #: stored with the beat, for lists of beats


def action_type(action: object) -> str:
    """The name under which an action is recorded: its class's ``TYPE``, or the name of its class."""
    return getattr(action, "TYPE", None) or type(action).__name__
