"""The sweep: end instances that no row asks for, in every pool of a store, also in pools that have no controller.

A pool that has no controller any more, or that was deleted, may have left pods or processes behind. A controller that beats a
fleet looks for them now and then, among all that its provider shows. Another pool is touched only under its own lease, so never
beside its own controller; what was done there is a beat of that pool.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.core.beat import CHECK
from drumbeat.core.clock import Clock
from drumbeat.core.decision import Decision
from drumbeat.core.errors import DrumbeatError, SpawnError, StoreUnavailable
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.recovery import EndStray, PoolSnapshot, Reap, lingers, recover
from drumbeat.core.worker import WorkerId
from drumbeat.fleet.model import FleetPolicy
from drumbeat.runtime.beat import BeatReport, ControlLoop
from drumbeat.runtime.lease import Leadership
from drumbeat.runtime.recovery import RecoveryActor
from drumbeat.runtime.snapshot import take_snapshot
from drumbeat.spawn.interface import LAUNCHED, InstanceState, ListsPools, Spawner
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

SWEPT_EVERY = timedelta(minutes=5)  #: and no sooner, however many fleets of a store are beaten from a machine
_ONE_POOL = timedelta(minutes=1)  #: the lease of a pool that is swept


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """What a sweep sees of a pool."""

    now: datetime
    sight: PoolSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One controller's way to sweep the pools beside its own."""

    store: Store
    spawner: Spawner
    clock: Clock
    owner: Callable[[], str]  #: gives a name that no other controller has
    place: str  #: where: a machine's own processes are seen from it alone

    async def if_due(self, own: PoolId) -> Mapping[PoolId, BeatReport]:
        """Sweep all pools but one's own, unless somebody has of late. Never raises for what a store or a provider says."""
        try:
            turn = f"sweep/{self.spawner.traits.name}/{self.place}"
            if await self.store.leases.acquire(turn, self.owner(), SWEPT_EVERY) is not None:
                return await self.all_but(own)
        except DrumbeatError as exc:
            log.warning("pools other than %s could not be swept for forgotten instances: %s", own, exc)
        return {}

    async def all_but(self, own: PoolId) -> Mapping[PoolId, BeatReport]:
        """Sweep every other pool of which the provider shows something; answers with those in which something was done."""
        shown = await self.spawner.pools() if isinstance(self.spawner, ListsPools) else ()
        reports: dict[PoolId, BeatReport] = {}
        for pool_id in sorted({*shown} - {own}):
            report = await self._tried(pool_id)
            if report is not None and report.led:
                reports[pool_id] = report
        return reports

    async def _tried(self, pool_id: PoolId) -> BeatReport | None:
        """Sweep one pool; if its provider fails, the next pool is swept all the same. Raises StoreUnavailable."""
        try:
            return await self._one(pool_id)
        except StoreUnavailable:
            raise
        except DrumbeatError as exc:
            log.warning("failed to sweep pool %s for forgotten instances: %s; the next sweep tries again", pool_id, exc)
            return None

    async def _one(self, pool_id: PoolId) -> BeatReport | None:
        """Sweep one pool. None: there was nothing to do."""
        home = await self.store.pools.find(pool_id)
        if home is None:
            await self._unknown(pool_id)
            return None
        view = await self._look(home)
        forgotten = decide(view).actions
        if not forgotten:
            return None
        if self._is_ours(home, view.sight):
            return await self._pool(home)
        for action in forgotten:
            _warn(action.worker_id, pool_id, "worker")
        return None

    def _is_ours(self, home: PoolRow, sight: PoolSnapshot) -> bool:
        """Whether this store started what is seen. Another store's pool of the same name may have, at a provider both use."""
        traits = self.spawner.traits
        chosen = home.policy.get("provider", FleetPolicy().provider)
        return traits.owns_all or traits.name in {chosen, *(row.provider for row in sight.workers)}

    async def _pool(self, home: PoolRow) -> BeatReport:
        """One beat under the pool's own lease, unless another controller holds it."""
        loop = ControlLoop(
            store=self.store,
            pool_id=home.pool_id,
            leadership=Leadership(self.store, home.pool_id, self.owner(), _ONE_POOL, self.clock),
            clock=self.clock,
            every=_ONE_POOL,
            observe=lambda gap: self._look(home),
            decide=decide,
            act=RecoveryActor(self.store, self.spawner, home.pool_id).recover,
            keep=lambda view: None,
        )
        try:
            return await loop.beat()
        finally:
            await loop.resign()

    async def _look(self, home: PoolRow) -> SweepView:
        sight = await take_snapshot(self.store, self.spawner, home, timedelta(), unreaped_only=True, clock=self.clock)
        return SweepView(now=sight.now, sight=sight)

    async def _unknown(self, pool_id: PoolId) -> None:
        """Instances of a pool that the store does not have. Where they may be another store's they are only told of."""
        if pool_id.startswith(LAUNCHED):
            return
        running = [one for one in await self.spawner.list(pool_id) if one.state is not InstanceState.EXITED]
        for one in running:
            if self.spawner.traits.owns_all:
                log.warning("%s of pool %s runs, and this store has no such pool: it is ended", one.ref, pool_id)
                await self._end(pool_id, one.worker_id)
            else:
                _warn(one.ref, pool_id, "pool")

    async def _end(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        try:
            await self.spawner.terminate(pool_id, worker_id)
        except SpawnError as exc:
            log.warning("failed to end %s of pool %s: %s; the next sweep tries again", worker_id, pool_id, exc)


def _warn(instance: str, pool_id: PoolId, missing: str) -> None:
    log.warning(
        "%s of pool %s runs and may cost, and this store has no such %s; if no other store of yours has it, "
        "end it at the provider",
        instance,
        pool_id,
        missing,
    )


def decide(view: SweepView) -> Decision[EndStray | Reap]:
    """End instances that no live row asks for, but for those of workers that have only just left.

    No worker is judged, and no row is closed.
    """
    running = {seen.worker_id for seen in view.sight.instances if seen.running}
    actions = [
        action
        for action in recover(view.sight).actions
        if isinstance(action, EndStray | Reap) and action.worker_id in running and not lingers(view.sight, action.worker_id)
    ]
    return Decision(
        actions=actions,
        why_not=None if actions else "every instance here has a live row",
        summary={"kind": CHECK, "sweep": len(actions)},
    )
