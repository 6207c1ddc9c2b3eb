"""A beat: one pass of a control loop, as it is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.pool import PoolId

CHECK = "check"  #: ``kind`` of a beat that only checked a fleet's pool, for example for lost workers


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBeat:
    """A beat before it is stored: what one pass of a control loop saw, decided and did."""

    owner: str
    epoch: int
    view: Mapping[str, Any] | None  #: what the pass observed; None if observing failed
    actions: Sequence[Mapping[str, Any]] = ()  #: each with its type, its reason and, if it failed, its error
    why_not: str | None = None  #: why the pass took no action
    error: str | None = None  #: the first stage that failed, and how
    duration: timedelta = timedelta()
    summary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether a stage or an action of the beat failed, or the provider gave no list of instances."""
        return self.error is not None or "provider_error" in self.summary or any("error" in each for each in self.actions)

    @property
    def is_check(self) -> bool:
        """Whether the beat only checked a pool, for example for lost workers, and is not a pass of the fleet's autoscaler."""
        return self.summary.get("kind") == CHECK


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat(NewBeat):
    """A stored beat (one pass of a control loop): one row of ``beats``, with its number ``n`` in the pool."""

    pool_id: PoolId
    n: int
    at: datetime
