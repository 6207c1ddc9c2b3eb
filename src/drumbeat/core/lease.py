"""Leases: only the controller that owns a pool's lease acts. A new owner gets a higher epoch; earlier owners cannot write."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

STORE_ID: Final = "store/id"  #: name of a special lease: its ``owner`` is the store's id; a copy of the store does not get it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The lease and epoch that a controller sends with a write. Once the lease has a newer epoch, the write is refused."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A stored lease: one row of ``leases``. The epoch rises by one whenever an owner acquires the lease."""

    name: str
    owner: str
    epoch: int
    expires_at: datetime  #: on the store's clock

    @property
    def fence(self) -> Fence:
        return Fence(name=self.name, epoch=self.epoch)
