"""Leases in Redis: locks that expire unless their owner renews them."""

from dataclasses import replace
from datetime import timedelta

from drumbeat.core.lease import Lease
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.rows import instant, to_us


class RedisLeases:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def acquire(self, name: str, owner: str, ttl: timedelta) -> Lease | None:
        taken = await self._database.run("lease_acquire", name, owner, to_us(ttl))
        if taken is None:
            return None
        epoch, expires_at = taken
        return Lease(name=name, owner=owner, epoch=epoch, expires_at=instant(expires_at))

    async def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        expires_at = await self._database.run("lease_renew", lease.name, lease.owner, lease.epoch, to_us(ttl))
        return replace(lease, expires_at=instant(expires_at))

    async def release(self, lease: Lease) -> None:
        await self._database.run("lease_release", lease.name, lease.owner, lease.epoch)

    async def find(self, name: str) -> Lease | None:
        owner, epoch, expires_at = await self._database.run("lease_find", name)
        if owner is None:
            return None
        return Lease(name=name, owner=owner.decode(), epoch=int(epoch), expires_at=instant(expires_at))
