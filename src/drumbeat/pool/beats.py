"""The checker and the reaper: a pool's beats, once per trigger or again and again, always under the pool's lease."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.pool.act import PoolActor
from drumbeat.pool.decide import MAKES_ROOM, decide, decide_recovery
from drumbeat.pool.model import Action, PoolView
from drumbeat.pool.observe import observe
from drumbeat.runtime.beat import BeatReport, ControlLoop, encode
from drumbeat.runtime.lease import Leadership
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

ONE_BEAT = timedelta(seconds=15)  #: how long the lease of a beat lasts unless renewed: so long a killed checker blocks others
PATIENCE = timedelta(seconds=10)  #: how long another checker's beat is waited for
_LOOK_AGAIN = timedelta(milliseconds=20)
_UNTIL_ROOM = 2  #: beats from giving a worker up to starting another: one ends it, one starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Beating:
    """What every beat of a process is made with."""

    store: Store
    spawner: Spawner
    clock: Clock
    owner: str  #: unique to this process and beat


def pool_loop(
    beating: Beating,
    pool_id: PoolId,
    every: timedelta,
    lease: timedelta,
    *,
    only_recover: bool = False,
    lost_after: timedelta | None = None,
    before: Callable[[], Awaitable[object]] | None = None,
    after: Callable[[], Awaitable[object]] | None = None,
) -> ControlLoop[PoolView, Action]:
    """One controller of a pool. Any number may run: the one that holds the lease acts. It does ``before`` before it looks, and
    ``after`` after each beat of its run."""
    store, spawner = beating.store, beating.spawner

    async def look(gap: timedelta) -> PoolView:
        if before is not None:
            await before()
        return await observe(store, spawner, pool_id, gap, lost_after=lost_after)

    return ControlLoop(
        store=store,
        pool_id=pool_id,
        leadership=Leadership(store, pool_id, beating.owner, lease, beating.clock),
        clock=beating.clock,
        every=every,
        observe=look,
        decide=decide_recovery if only_recover else decide,
        act=PoolActor(store, spawner, pool_id).act,
        keep=_kept,
        after=after,
    )


def _kept(view: PoolView) -> Mapping[str, Any] | None:
    """Of a fleet's pool nothing: its beats hold what the fleet saw, and whoever reads them goes by that alone."""
    return None if view.is_scaled else encode(view)


async def beat_once(loop: ControlLoop[PoolView, Action], clock: Clock, patience: timedelta = PATIENCE) -> BeatReport:
    """One beat, after those of others; then the lease is let go. Not led: another checker is at it for longer than that.

    Workers that are given up count for the cap until they are ended: where only they are in the way, the beats that end them
    and start others follow at once. Whoever was sent by a trigger may not come again for long.
    """
    deadline = clock.elapsed() + patience
    try:
        while True:
            report = await loop.beat()
            if report.led or report.error is not None or clock.elapsed() >= deadline:
                break
            await clock.sleep(_LOOK_AGAIN)
        for _ in range(_UNTIL_ROOM):
            if not report.summary.get(MAKES_ROOM):
                break
            report = _joined(report, await loop.beat())
        return report
    finally:
        await loop.resign()


def _joined(first: BeatReport, then: BeatReport) -> BeatReport:
    """Two beats as one: what both did, and how the second left things."""
    return replace(then, actions=(*first.actions, *then.actions), duration=first.duration + then.duration)


async def jobs_pool(store: Store, pool_id: PoolId) -> PoolRow:
    """A pool that holds jobs. Raises NotFound, InvalidInput for one of another kind."""
    pool = await store.pools.get(pool_id)
    if pool.kind is not PoolKind.JOBS:
        raise InvalidInput(f"expected a pool of jobs, got {pool_id!r}, which is a {pool.kind} pool")
    return pool


def beat_report(report: BeatReport) -> Mapping[str, Any]:
    """A beat in a few words, for whoever pulled the trigger: all but what it saw."""
    return {
        "led": report.led,
        "beat": report.n,
        "summary": dict(report.summary),
        "actions": [dict(action) for action in report.actions],
        "why_not": report.why_not if report.led or report.error else "another checker is at it",
        "error": report.error,
        "seconds": report.duration.total_seconds(),
    }
