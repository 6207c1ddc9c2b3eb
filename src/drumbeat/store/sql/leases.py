"""SQL table ``leases``: the owner of each lease (for a pool: its controller), and when the lease expires."""

from datetime import timedelta

from drumbeat.core.errors import Fenced
from drumbeat.core.lease import Lease
from drumbeat.store.sql.database import Database
from drumbeat.store.sql.rows import lease_of, to_us


class SqlLeases:
    """Acquires, renews and releases leases. The epoch of a lease only rises, so writes of earlier owners can be refused."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, name: str, owner: str, ttl: timedelta) -> Lease | None:
        rows = await self._database.write("acquire_lease", {"name": name, "owner": owner, "ttl": to_us(ttl)})
        return lease_of(rows[0]) if rows else None

    async def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        rows = await self._database.write("renew_lease", _held(lease) | {"ttl": to_us(ttl)})
        if not rows:
            raise Fenced(f"lease {lease.name} is no longer held by {lease.owner} (epoch {lease.epoch}); acquire it again")
        return lease_of(rows[0])

    async def release(self, lease: Lease) -> None:
        await self._database.write("release_lease", _held(lease))

    async def find(self, name: str) -> Lease | None:
        rows = await self._database.read("find_lease", {"name": name})
        return lease_of(rows[0]) if rows else None


def _held(lease: Lease) -> dict[str, object]:
    return {"name": lease.name, "owner": lease.owner, "epoch": lease.epoch}
