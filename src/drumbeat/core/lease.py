"""Leases: who may act for a pool now, and the number that fences out everyone before."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """What a controller's write carries; refused once the lease has a newer epoch."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One row of ``leases``. The epoch only ever rises, by one at each change of hands."""

    name: str
    owner: str
    epoch: int
    expires_at: datetime  #: on the store's clock

    @property
    def fence(self) -> Fence:
        return Fence(name=self.name, epoch=self.epoch)
