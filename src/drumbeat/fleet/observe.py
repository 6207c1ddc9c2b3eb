"""One look at a pool, with the policy it is to be judged by."""

from datetime import timedelta

from drumbeat.core.pool import PoolId
from drumbeat.fleet.model import FleetPolicy, FleetView
from drumbeat.runtime.sight import look
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store


async def observe(store: Store, spawner: Spawner, pool_id: PoolId, gap: timedelta) -> FleetView:
    """The pool as it is now."""
    pool = await store.pools.get(pool_id)
    sight = await look(store, spawner, pool, gap)
    return FleetView(
        pool_id=pool_id,
        now=sight.now,
        looking_since=sight.looking_since,
        paused_until=pool.paused_until,
        thresholds=pool.thresholds,
        policy=FleetPolicy.from_json(pool.policy),
        workers=sight.workers,
        instances=sight.instances,
    )
