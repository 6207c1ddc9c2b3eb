"""The sweep: terminate forgotten instances in every pool of a store, including pools without a controller.

A pool that lost its controller or was deleted can leave pods or processes behind. A fleet's controller looks for them from time
to time, among all instances that its provider lists. It acts on another pool only under that pool's lease, so never at the same
time as that pool's controller; its actions there are recorded as a beat of that pool.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.core.beat import CHECK
from drumbeat.core.clock import Clock
from drumbeat.core.decision import Decision
from drumbeat.core.engine import covers
from drumbeat.core.errors import DrumbeatError, SpawnError, StoreUnavailable
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.recovery import EndStray, PoolSnapshot, Reap, may_be_exiting, recover
from drumbeat.core.worker import WorkerId
from drumbeat.fleet.model import FleetPolicy
from drumbeat.runtime.beat import BeatReport, ControlLoop
from drumbeat.runtime.lease import Leadership
from drumbeat.runtime.recovery import RecoveryActor
from drumbeat.runtime.snapshot import take_snapshot
from drumbeat.spawn.interface import LAUNCHED, InstanceState, ListsPools, Spawner
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

SWEPT_EVERY = timedelta(minutes=5)  #: minimum time between two sweeps on one machine, even with many fleets
_LEASE = timedelta(minutes=1)  #: duration of the lease on a pool that is swept


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """What the search for forgotten instances knows about a pool: its workers and the provider's instances."""

    now: datetime
    snapshot: PoolSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Terminates forgotten instances in all pools except the controller's own."""

    store: Store
    spawner: Spawner
    clock: Clock
    owner: Callable[[], str]  #: returns a unique name for a lease owner
    place: str  #: name of this machine; its local processes are visible only here

    async def if_due(self, own: PoolId) -> Mapping[PoolId, BeatReport]:
        """Terminate forgotten instances in all pools but ``own``, unless this was done recently. Errors are only logged."""
        try:
            turn = f"sweep/{self.spawner.traits.name}/{self.place}"
            if await self.store.leases.acquire(turn, self.owner(), SWEPT_EVERY) is not None:
                return await self.all_but(own)
        except DrumbeatError as exc:
            log.warning(
                "pool %s: failed to look for forgotten instances in the store's other pools: %s; trying again later", own, exc
            )
        return {}

    async def all_but(self, own: PoolId) -> Mapping[PoolId, BeatReport]:
        """Terminate forgotten instances of all pools that have instances at the provider, except ``own``. Returns the
        report of each pool's beat."""
        shown = await self.spawner.pools() if isinstance(self.spawner, ListsPools) else ()
        reports: dict[PoolId, BeatReport] = {}
        for pool_id in sorted({*shown} - {own}):
            report = await self._sweep_safely(pool_id)
            if report is not None and report.led:
                reports[pool_id] = report
        return reports

    async def _sweep_safely(self, pool_id: PoolId) -> BeatReport | None:
        """Terminate a pool's forgotten instances. Errors other than StoreUnavailable are logged, not raised."""
        try:
            return await self._sweep_pool(pool_id)
        except StoreUnavailable:
            raise
        except DrumbeatError as exc:
            log.warning("failed to sweep pool %s for forgotten instances: %s; the next sweep tries again", pool_id, exc)
            return None

    async def _sweep_pool(self, pool_id: PoolId) -> BeatReport | None:
        """Terminate a pool's forgotten instances in one beat. Returns the beat's report, or None if no beat was needed."""
        pool = await self.store.pools.find(pool_id)
        if pool is None:
            await self._unknown(pool_id)
            return None
        view = await self._look(pool)
        forgotten = decide(view).actions
        if not forgotten:
            return None
        if self._is_ours(pool, view.snapshot):
            return await self._beat(pool)
        for action in forgotten:
            _warn_stray(action.worker_id, pool_id, "worker")
        return None

    def _is_ours(self, pool: PoolRow, snapshot: PoolSnapshot) -> bool:
        """Whether the pool's instances were started from this store, and not for a pool of the same name in another store."""
        traits = self.spawner.traits
        chosen = {pool.policy.get("provider", FleetPolicy().provider), *(row.provider for row in snapshot.workers)}
        return traits.owns_all or any(each and covers(traits.name, each) for each in chosen)

    async def _beat(self, pool: PoolRow) -> BeatReport:
        """Run one beat that terminates the pool's forgotten instances, unless another controller holds the pool's lease."""
        loop = ControlLoop(
            store=self.store,
            pool_id=pool.pool_id,
            leadership=Leadership(self.store, pool.pool_id, self.owner(), _LEASE, self.clock),
            clock=self.clock,
            every=_LEASE,
            observe=lambda gap: self._look(pool),
            decide=decide,
            act=RecoveryActor(self.store, self.spawner, pool.pool_id).recover,
            encode_view=lambda view: None,
        )
        try:
            return await loop.beat()
        finally:
            await loop.resign()

    async def _look(self, pool: PoolRow) -> SweepView:
        snapshot = await take_snapshot(self.store, self.spawner, pool, timedelta(), unreaped_only=True, clock=self.clock)
        return SweepView(now=snapshot.now, snapshot=snapshot)

    async def _unknown(self, pool_id: PoolId) -> None:
        """Terminate the instances of a pool that this store does not have; only warn if they might belong to another store."""
        if pool_id.startswith(LAUNCHED):
            return
        running = [one for one in await self.spawner.list(pool_id) if one.state is not InstanceState.EXITED]
        for one in running:
            if self.spawner.traits.owns_all:
                log.warning("instance %s of pool %s runs, but this store has no such pool; terminating it", one.ref, pool_id)
                await self._end(pool_id, one.worker_id)
            else:
                _warn_stray(one.ref, pool_id, "pool")

    async def _end(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        try:
            await self.spawner.terminate(pool_id, worker_id)
        except SpawnError as exc:
            log.warning("failed to terminate worker %s of pool %s: %s; the next sweep tries again", worker_id, pool_id, exc)


def _warn_stray(instance: str, pool_id: PoolId, missing: str) -> None:
    log.warning(
        "instance %s of pool %s runs and may cost money, but this store has no such %s; if no other store of yours "
        "has it, terminate it at the provider",
        instance,
        pool_id,
        missing,
    )


def decide(view: SweepView) -> Decision[EndStray | Reap]:
    """Decide to terminate the instances that have no live worker row, except those of workers that have just left."""
    running = {each.worker_id for each in view.snapshot.instances if each.running}
    actions = [
        action
        for action in recover(view.snapshot).actions
        if isinstance(action, EndStray | Reap)
        and action.worker_id in running
        and not may_be_exiting(view.snapshot, action.worker_id)
    ]
    return Decision(
        actions=actions,
        why_not=None if actions else "every instance of this pool belongs to a live worker",
        summary={"kind": CHECK, "sweep": len(actions)},
    )
