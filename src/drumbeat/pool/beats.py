"""Runs the beats (observe, decide, act) of a pool's checker, which recovers jobs and starts workers, and of its reaper, which
only recovers jobs. Only the process that holds the pool's lease runs beats."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput, SpawnCause
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.refusal import refusal_text
from drumbeat.pool.act import PoolActor
from drumbeat.pool.decide import MAKES_ROOM, decide, decide_recovery
from drumbeat.pool.model import Action, PoolView, SpawnJobWorker
from drumbeat.pool.observe import observe
from drumbeat.pool.plugins import NO_PLUGINS, PoolPlugins
from drumbeat.pool.schedules.tick_pusher import TickPusher
from drumbeat.runtime.beat import BeatReport, ControlLoop, encode
from drumbeat.runtime.lease import Leadership
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

ONE_BEAT = timedelta(seconds=15)  #: how long a beat holds the pool's lease; a killed checker blocks others this long
MAX_WAIT = timedelta(seconds=10)  #: how long a check waits for another checker to finish
_RETRY_EVERY = timedelta(milliseconds=20)
_UNTIL_ROOM = 2  #: most extra beats to replace a silent worker: one ends it, one starts another


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatContext:
    """The store, spawner and clock that a beat uses, and the name it holds the lease under."""

    store: Store
    spawner: Spawner
    clock: Clock
    owner: str  #: unique to this process and beat
    plugins: Callable[[], PoolPlugins] = lambda: NO_PLUGINS  #: middleware and large values, for jobs of schedules


def pool_loop(
    beating: BeatContext,
    pool_id: PoolId,
    every: timedelta,
    lease: timedelta,
    *,
    only_recover: bool = False,
    lost_after: timedelta | None = None,
    before: Callable[[], Awaitable[object]] | None = None,
    after: Callable[[], Awaitable[object]] | None = None,
) -> ControlLoop[PoolView, Action]:
    """Return a control loop for a pool. Several processes can run such a loop, but only the one with the pool's lease acts.
    Each beat also pushes the jobs of the pool's schedules that are due.

    ``every``: time between beats. ``lease``: time until the lease expires. ``only_recover``: start no workers. ``before`` is
    called in each beat before it observes the pool. The loop's ``run`` calls ``after`` after each beat that held the lease.
    """
    store, spawner = beating.store, beating.spawner
    ticks = TickPusher(store, beating.clock, beating.owner, beating.plugins)

    async def observed(gap: timedelta) -> PoolView:
        if before is not None:
            await before()
        return await observe(store, spawner, pool_id, gap, lost_after=lost_after, on_pool=ticks.try_to_push_due)

    return ControlLoop(
        store=store,
        pool_id=pool_id,
        leadership=Leadership(store, pool_id, beating.owner, lease, beating.clock),
        clock=beating.clock,
        every=every,
        observe=observed,
        decide=decide_recovery if only_recover else decide,
        act=PoolActor(store, spawner, pool_id).act,
        encode_view=_recorded,
        make_summary=with_starts,
        after=after,
    )


def _recorded(view: PoolView) -> Mapping[str, Any] | None:
    """Return the observed state of the pool as JSON, to be stored with the beat; None if a fleet stores it instead."""
    return None if view.is_scaled else encode(view)


def with_starts(summary: Mapping[str, Any], actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a beat's summary. If worker starts failed, add how many succeeded, how many were tried, and the first error."""
    starts = [action for action in actions if action["type"] == SpawnJobWorker.TYPE]
    failed = [action for action in starts if "error" in action]
    if not failed:
        return summary
    why = refusal_text(str(failed[0]["error"]))
    return {**summary, "spawned": len(starts) - len(failed), "wanted": len(starts), "not_started": why}


def is_full(action: Mapping[str, Any]) -> bool:
    """Whether an action of a beat failed because its engine has no free slot for a worker now."""
    return action.get("cause") == SpawnCause.NO_CAPACITY


async def beat_once(loop: ControlLoop[PoolView, Action], clock: Clock, max_wait: timedelta = MAX_WAIT) -> BeatReport:
    """Run one beat, then release the pool's lease. If another process holds the lease for ``max_wait``, no beat is run and
    the report has ``led=False``.

    If the pool is at max_workers and the beat ends silent workers, up to two more beats follow at once and start their
    replacements, because the next trigger might be a long time away.
    """
    deadline = clock.elapsed() + max_wait
    try:
        while True:
            report = await loop.beat()
            if report.led or report.error is not None or clock.elapsed() >= deadline:
                break
            await clock.sleep(_RETRY_EVERY)
        for _ in range(_UNTIL_ROOM):
            if not report.summary.get(MAKES_ROOM):
                break
            report = _merged(report, await loop.beat())
        return report
    finally:
        await loop.resign()


def _merged(first: BeatReport, then: BeatReport) -> BeatReport:
    """Merge the reports of two beats: actions and durations of both, every other field of the second."""
    return replace(then, actions=(*first.actions, *then.actions), duration=first.duration + then.duration)


async def jobs_pool(store: Store, pool_id: PoolId) -> PoolRow:
    """Return the row of a pool of jobs. Raises NotFound; InvalidInput for a pool of another kind, such as a benchmark."""
    pool = await store.pools.get(pool_id)
    if pool.kind is not PoolKind.JOBS:
        raise InvalidInput(f"expected a pool of jobs, got {pool_id!r}, which is a {pool.kind} pool")
    return pool


def beat_report(report: BeatReport) -> Mapping[str, Any]:
    """Return a beat's report as JSON, as the answer to the trigger that caused the beat. The observed state is left out."""
    return {
        "led": report.led,
        "beat": report.n,
        "summary": dict(report.summary),
        "actions": [dict(action) for action in report.actions],
        "why_not": report.why_not if report.led or report.error else "another checker is running",
        "error": report.error,
        "ok": report.error is None and _went_well(report),
        "seconds": report.duration.total_seconds(),
    }


def _went_well(report: BeatReport) -> bool:
    """Whether no action failed. While the pool has workers, a start that a full engine refused does not count as failed."""
    failed = [action for action in report.actions if "error" in action]
    works = bool(report.summary.get("workers") or report.summary.get("spawned"))
    return all(works and is_full(action) for action in failed)
