"""A decision: the actions to take and why, or why there are none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar


class ActionWithReason(Protocol):
    """An action to take: a frozen dataclass with the subject of the action and the reason for it."""

    @property
    def reason(self) -> str: ...


A = TypeVar("A", bound=ActionWithReason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[A]):
    """The actions to take. If there are no actions, ``why_not`` says why."""

    actions: Sequence[A] = ()
    why_not: str | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)  #: short facts, stored with the beat and shown in lists of beats


def action_type(action: object) -> str:
    """Return the name under which an action is recorded: ``TYPE`` of its class or, if there is none, the name of the class."""
    return getattr(action, "TYPE", None) or type(action).__name__
