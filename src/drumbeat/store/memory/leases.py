"""Leases in memory: locks that expire unless their owner renews them."""

from dataclasses import replace
from datetime import timedelta

from drumbeat.core.errors import Fenced
from drumbeat.core.lease import Lease
from drumbeat.store.memory.state import MemoryTable, StoredLease, operation


class MemoryLeases(MemoryTable):
    @operation
    def acquire(self, name: str, owner: str, ttl: timedelta) -> Lease | None:
        now = self.state.now()
        stored = self.state.leases.get(name)
        if stored and not stored.released and stored.lease.expires_at > now:
            return None
        epoch = stored.lease.epoch + 1 if stored else 1
        lease = Lease(name=name, owner=owner, epoch=epoch, expires_at=now + ttl)
        self.state.leases[name] = StoredLease(lease=lease)
        return lease

    @operation
    def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        stored = self.state.leases.get(lease.name)
        if stored is None or stored.released or not _same_holder(stored.lease, lease):
            raise Fenced(
                f"lease {lease.name} (epoch {lease.epoch}) is no longer held by {lease.owner}: it was released or taken by "
                f"another owner; stop acting, and acquire it again"
            )
        renewed = replace(stored.lease, expires_at=self.state.now() + ttl)
        self.state.leases[lease.name] = StoredLease(lease=renewed)
        return renewed

    @operation
    def release(self, lease: Lease) -> None:
        stored = self.state.leases.get(lease.name)
        if stored and not stored.released and _same_holder(stored.lease, lease):
            released = replace(stored.lease, expires_at=self.state.now())
            self.state.leases[lease.name] = StoredLease(lease=released, released=True)

    @operation
    def find(self, name: str) -> Lease | None:
        stored = self.state.leases.get(name)
        return stored.lease if stored else None


def _same_holder(one: Lease, other: Lease) -> bool:
    return (one.owner, one.epoch) == (other.owner, other.epoch)
