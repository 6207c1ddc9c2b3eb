"""Pools that follow a fleet's policy: made, turned into one, or changed.

A part of the composition root of its own: a pool of jobs that is scaled is the pool's and the fleet's at once.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.composition.plane import ControlPlane, process_name
from drumbeat.core.errors import DrumbeatError, StoreError
from drumbeat.core.pool import Pool, PoolId, PoolKind, Thresholds
from drumbeat.fleet import policy_store
from drumbeat.fleet.model import Action, FleetPolicy, FleetView
from drumbeat.fleet.policy_store import FleetKept
from drumbeat.fleet.settings import load_thresholds
from drumbeat.fleet.sweep import SWEPT_EVERY, Sweep
from drumbeat.fleet.wakeup import PushWaker
from drumbeat.pool.beats import PATIENCE
from drumbeat.pool.worker.options import Mode, WorkPlan, plan_of
from drumbeat.runtime.beat import BeatReport, ControlLoop
from drumbeat.spawn.interface import Spawner
from drumbeat.store import Store

log = logging.getLogger(__name__)

_LOOK_AGAIN = timedelta(milliseconds=100)
_RESIGNS_WITHIN = timedelta(seconds=1)  #: from a single beat to the release of its lease


async def keep_fleet(
    plane: ControlPlane,
    name: str,
    settings: Mapping[str, Any],
    *,
    file: Path | None = None,
    preset: str | None = None,
    handlers: Mapping[str, str] | None = None,
) -> FleetKept:
    home = await plane.store.pools.find(PoolId(name))
    is_new = home is None or not home.is_scaled
    policy = policy_store.wanted_policy(home, os.environ, file, settings)
    turns = home is not None and policy_store.changes_provider(home, policy)
    limits = load_thresholds(policy, file, preset, is_new=is_new or turns)
    made = await _made(plane, name, home, policy, limits, handlers)
    return FleetKept(
        pool=made,
        is_new=is_new,
        changed=() if home is None else policy_store.differences(home.policy, made.policy),
        overruled=policy_store.overruled(made, os.environ),
    )


async def scale_pool(
    plane: ControlPlane, name: str, policy: FleetPolicy, plan: WorkPlan | None = None, thresholds: Thresholds | None = None
) -> Pool:
    policy_store.check_new(plane.store, policy)
    made = await plane.pool(name).create(exist_ok=True)
    await policy_store.check_policy(plane.store, made, policy)
    work = replace(plan or plan_of(made), mode=Mode.LOOP)
    if policy.concurrency > 1:
        work = replace(work, concurrency=policy.concurrency)
    return await policy_store.keep_policy(plane.store, made, policy, thresholds, work.to_json())


async def beat_once(plane: ControlPlane, name: str, **told: Any) -> BeatReport:
    policy = await plane.heed_environment(name, **told)
    async with plane.fleet_spawner(name, policy.provider) as spawner:
        loop = plane.fleet_loop(PoolId(name), spawner, policy.every)
        try:
            report = await _beat_in_turn(plane, PoolId(name), loop)
        finally:
            await loop.resign()
        await _sweep(plane, spawner).if_due(PoolId(name))
    if report.led:
        await plane.tidy()
    return report


async def _beat_in_turn(plane: ControlPlane, pool_id: PoolId, loop: ControlLoop[FleetView, Action]) -> BeatReport:
    """A beat after the one that another process makes now, which may not have seen what this one is sent for.

    Not led: another process is at it for longer than PATIENCE, or keeps beating and will look again by itself.
    """
    deadline = plane.clock.elapsed() + PATIENCE
    while True:
        report = await loop.beat()
        is_over = report.led or report.error is not None or plane.clock.elapsed() >= deadline
        if is_over or await _is_kept_beating(plane.store, pool_id):
            return report
        await plane.clock.sleep(_LOOK_AGAIN)


async def _is_kept_beating(store: Store, pool_id: PoolId) -> bool:
    """Whether the leader kept its lease after a beat, as a daemon does; a process that beats once lets it go."""
    try:
        lease, last, now = await store.leases.find(pool_id), await store.beats.last(pool_id), await store.now()
    except StoreError:
        return False
    if lease is None or last is None or lease.expires_at <= now:
        return False
    return lease.epoch == last.epoch and now - last.at > _RESIGNS_WITHIN


async def beat_each(plane: ControlPlane, names: Sequence[str], **told: Any) -> Mapping[str, Mapping[str, Any]]:
    """One beat of each fleet, as a trigger reports it. A fleet that cannot be beaten is reported with its error."""
    return {name: outcome_of(await _beat_anyway(plane, name, **told)) for name in names}


async def _beat_anyway(plane: ControlPlane, name: str, **told: Any) -> BeatReport:
    try:
        return await beat_once(plane, name, **told)
    except DrumbeatError as exc:
        log.warning("failed to beat the fleet %s: %s; the other fleets are beaten all the same", name, exc)
        return BeatReport(led=False, error=str(exc) or type(exc).__name__)


def _sweep(plane: ControlPlane, spawner: Spawner) -> Sweep:
    return Sweep(store=plane.store, spawner=spawner, clock=plane.clock, owner=process_name, place=socket.gethostname())


async def _keep_sweeping(plane: ControlPlane, name: str) -> None:
    """Look for forgotten instances now and then, with a spawner of its own: the beats are not waited for."""
    while True:
        try:
            async with plane.fleet_spawner(name) as spawner:
                await _sweep(plane, spawner).if_due(PoolId(name))
        except DrumbeatError as exc:
            log.warning("pools other than %s could not be swept for forgotten instances: %s", name, exc)
        await plane.clock.sleep(SWEPT_EVERY)


async def keep_beating(
    plane: ControlPlane,
    name: str,
    spawner: Spawner,
    every: timedelta,
    stop: asyncio.Event,
    on_beat: Callable[[BeatReport], None] | None = None,
    heed: Callable[[FleetPolicy], None] | None = None,
) -> None:
    waker = PushWaker(plane.store, PoolId(name), plane.clock)

    def heard(report: BeatReport) -> None:
        waker.noted(report.view)
        if on_beat is not None:
            on_beat(report)

    async def end() -> None:
        await stop.wait()
        waker.woken.set()

    loop = plane.fleet_loop(PoolId(name), spawner, every, on_beat=heard, heed=heed)
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(each) for each in (waker.watch(), end(), _keep_sweeping(plane, name))]
        await loop.run(stop, waker.woken)
        for task in beside:
            task.cancel()


def outcome_of(report: BeatReport) -> Mapping[str, Any]:
    """A fleet's beat as a trigger reports it: without its view and the state it leaves to the next beat."""
    failed = [f"{deed['type']}: {deed['error']}" for deed in report.actions if "error" in deed]
    trouble = [report.error, report.summary.get("provider_error"), *failed]
    return {
        "led": report.led,
        "beat": report.n,
        "summary": {name: value for name, value in report.summary.items() if name != "state"},
        "actions": [dict(action) for action in report.actions],
        "why_not": report.why_not,
        "error": next((each for each in trouble if each), None),
        "seconds": report.duration.total_seconds(),
    }


async def _made(
    plane: ControlPlane,
    name: str,
    home: Pool | None,
    policy: FleetPolicy,
    limits: Thresholds | None,
    handlers: Mapping[str, str] | None,
) -> Pool:
    if home is not None and home.kind is PoolKind.FLEET:
        policy_store.check_kind(home, policy, has_handlers=handlers is not None)
        return await plane.set_fleet_policy(home.pool_id, policy, limits)
    if home is None and policy.policy == "fixed" and handlers is None:
        return await plane.create_fleet(name, policy, limits)
    plan = replace(plan_of(home) if home else WorkPlan(), concurrency=policy.concurrency)
    return await scale_pool(plane, name, policy, replace(plan, handlers=handlers) if handlers else plan, limits)
