"""Leases, in memory."""

from dataclasses import replace
from datetime import timedelta

from drumbeat.core.errors import Fenced
from drumbeat.core.lease import Lease
from drumbeat.store.memory.state import MemoryTable, StoredLease, operation


class MemoryLeases(MemoryTable):
    @operation
    def acquire(self, name: str, owner: str, ttl: timedelta) -> Lease | None:
        now = self.state.now()
        kept = self.state.leases.get(name)
        if kept and not kept.released and kept.lease.expires_at > now:
            return None
        epoch = kept.lease.epoch + 1 if kept else 1
        lease = Lease(name=name, owner=owner, epoch=epoch, expires_at=now + ttl)
        self.state.leases[name] = StoredLease(lease=lease)
        return lease

    @operation
    def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        kept = self.state.leases.get(lease.name)
        if kept is None or kept.released or not _same_hands(kept.lease, lease):
            raise Fenced(
                f"lease {lease.name} of {lease.owner}, epoch {lease.epoch}, was released or taken by another; "
                f"stop acting and acquire it anew"
            )
        renewed = replace(kept.lease, expires_at=self.state.now() + ttl)
        self.state.leases[lease.name] = StoredLease(lease=renewed)
        return renewed

    @operation
    def release(self, lease: Lease) -> None:
        kept = self.state.leases.get(lease.name)
        if kept and not kept.released and _same_hands(kept.lease, lease):
            let_go = replace(kept.lease, expires_at=self.state.now())
            self.state.leases[lease.name] = StoredLease(lease=let_go, released=True)

    @operation
    def find(self, name: str) -> Lease | None:
        kept = self.state.leases.get(name)
        return kept.lease if kept else None


def _same_hands(one: Lease, other: Lease) -> bool:
    return (one.owner, one.epoch) == (other.owner, other.epoch)
