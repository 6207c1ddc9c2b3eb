"""Leases: which controller may act for a pool now, and the epoch that fences out all earlier ones."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The lease and epoch that a controller's write carries; it is refused once the lease has a newer epoch."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One row of ``leases``. The epoch only rises, by one whenever the owner changes."""

    name: str
    owner: str
    epoch: int
    expires_at: datetime  #: on the store's clock

    @property
    def fence(self) -> Fence:
        return Fence(name=self.name, epoch=self.epoch)
