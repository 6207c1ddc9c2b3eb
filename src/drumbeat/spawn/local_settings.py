"""Settings of an engine of the kind ``local``, which runs workers as processes of this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drumbeat.core.errors import InvalidSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """How many workers are allowed to run on this machine at the same time, and what they cost."""

    slots: int | None = None  #: most workers at once, of all pools of the store; none: no limit
    price_per_hour: float = 0.0  #: what a worker costs per hour, for spending limits
    environment: Mapping[str, str] = field(default_factory=dict)  #: variables set for the workers; no secrets
    variables: Sequence[str] = ()  #: variables with credentials of engines that the workers get too, such as RUNPOD_API_KEY

    def __post_init__(self) -> None:
        if self.slots is not None and self.slots < 1:
            raise InvalidSettings(f"expected slots to be 1 or more, got {self.slots}")
        if not 0 <= self.price_per_hour < float("inf"):
            raise InvalidSettings(f"expected price_per_hour to be 0 or more, got {self.price_per_hour}")
