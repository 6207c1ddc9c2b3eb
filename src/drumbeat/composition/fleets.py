"""Creates, configures and runs fleets: pools whose number of workers a policy decides.

Part of the composition root, because a job pool that is scaled needs the packages pool and fleet.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from drumbeat.composition.base import ControlPlaneBase, process_name
from drumbeat.composition.liveness import LivenessFile
from drumbeat.core.engine import DEFAULT_ENGINE, EngineFacts
from drumbeat.core.errors import AlreadyExists, DrumbeatError, StaleWrite, StoreError
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, Thresholds
from drumbeat.fleet import policy_store
from drumbeat.fleet.act import FleetActor
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import Action, FleetPolicy, FleetView
from drumbeat.fleet.observe import observe
from drumbeat.fleet.outcome import with_outcome
from drumbeat.fleet.policy_store import FleetConfigured
from drumbeat.fleet.service import FleetService
from drumbeat.fleet.settings import load_thresholds
from drumbeat.fleet.sweep import SWEPT_EVERY, Sweep
from drumbeat.fleet.wakeup import PushWaker
from drumbeat.pool.beats import MAX_WAIT
from drumbeat.pool.schedules.tick_pusher import TickPusher
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.options import Mode, WorkPlan, plan_of
from drumbeat.runtime.beat import BeatReport, ControlLoop, encode_action
from drumbeat.runtime.lease import Leadership, lease_for
from drumbeat.runtime.prompt_spawner import PromptSpawner
from drumbeat.spawn.interface import Spawner
from drumbeat.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_EVERY = timedelta(milliseconds=100)
_RESIGNS_WITHIN = timedelta(seconds=1)  #: a process that runs a single beat releases its lease within this time


class Fleets:
    """Creates, configures and runs the fleets of one store."""

    def __init__(self, base: ControlPlaneBase) -> None:
        self._base = base
        self._store = base.store

    def service(self, name: str) -> FleetService:
        """Return the service for one pool: the status of its workers, and actions on single workers."""
        return FleetService(self._store, PoolId(name), encode_action)

    async def create(self, name: str, policy: FleetPolicy, thresholds: Thresholds | None = None) -> PoolRow:
        """Create a fleet without a job queue. Raises AlreadyExists, InvalidSettings."""
        return await policy_store.create_fleet(self._store, name, policy, thresholds, self._engine(policy))

    async def set_policy(
        self, pool_id: PoolId, policy: FleetPolicy, thresholds: Thresholds | None = None, *, seen: PoolRow | None = None
    ) -> PoolRow:
        """Replace a fleet's policy; the next beat uses the new one. ``seen``: the fleet's row, as the caller read it.

        Raises NotFound, InvalidSettings, and StaleWrite if the policy has changed since ``seen`` was read."""
        engine = self._engine(policy)
        if seen is not None:
            return await policy_store.set_policy(self._store, seen, policy, thresholds, engine)

        async def replaced() -> PoolRow:
            return await policy_store.set_policy(self._store, await self._store.pools.get(pool_id), policy, thresholds, engine)

        return await _until_written(replaced)

    def _engine(self, policy: FleetPolicy) -> EngineFacts:
        """Return facts about a policy's engines. Raises InvalidSettings like ``_facts``."""
        return self._facts(policy.provider)

    def _facts(self, engines: str) -> EngineFacts:
        """Return facts about engines. Raises InvalidSettings if this process does not know one, or if its workers cannot reach
        the store."""
        if self._store.traits.shared:
            self._base.engines.check_reach(engines)
        return self._base.engines.facts(engines)

    async def configure(
        self,
        name: str,
        settings: Mapping[str, Any],
        *,
        file: Path | None = None,
        preset: str | None = None,
        handlers: Mapping[str, str] | None = None,
    ) -> FleetConfigured:
        """Create or change a fleet. In an existing fleet only the given settings change; a file replaces the whole policy.

        ``handlers`` are added to those of an existing pool, by type. Settings that other processes change at the same time are
        kept. Raises InvalidInput, InvalidSettings, Refused.
        """
        return await _until_written(lambda: self._configure(name, settings, file, preset, handlers))

    async def _configure(
        self,
        name: str,
        settings: Mapping[str, Any],
        file: Path | None,
        preset: str | None,
        handlers: Mapping[str, str] | None,
    ) -> FleetConfigured:
        """Create or change a fleet. Raises StaleWrite if another process changes it meanwhile."""
        old = await self._store.pools.find(PoolId(name))
        is_new = old is None or not old.is_scaled
        policy = policy_store.wanted_policy(old, os.environ, file, settings)
        new_provider = old is not None and policy_store.changes_provider(old, policy)
        is_rented = self._engine(policy).is_rented
        limits = load_thresholds(policy, file, preset, is_new=is_new or new_provider, is_rented=is_rented)
        try:
            pool = await self._make(name, old, policy, limits, handlers)
        except AlreadyExists as exc:
            raise StaleWrite(
                f"fleet {name} was not changed: another process created its pool meanwhile; read it and try again"
            ) from exc
        return FleetConfigured(
            pool=pool,
            is_new=is_new,
            changed=() if old is None else policy_store.changes_of(old, pool),
            overruled=policy_store.overridden_settings(pool, os.environ, self._facts),
        )

    async def _make(
        self,
        name: str,
        old: PoolRow | None,
        policy: FleetPolicy,
        limits: Thresholds | None,
        handlers: Mapping[str, str] | None,
    ) -> PoolRow:
        if old is not None and old.kind is PoolKind.FLEET:
            policy_store.check_kind(old, policy, has_handlers=handlers is not None)
            return await self.set_policy(old.pool_id, policy, limits, seen=old)
        if old is None and policy.policy == "fixed" and handlers is None:
            return await self.create(name, policy, limits)
        plan = replace(plan_of(old) if old else WorkPlan(handlers=handlers or {}), concurrency=policy.concurrency)
        seen = old or await self._new_pool(name, policy)
        scaled = await self._scale_pool(name, policy, plan, limits, seen)
        return await self._pool(name).update(handlers=handlers) if old and handlers else scaled

    async def _new_pool(self, name: str, policy: FleetPolicy) -> PoolRow:
        """Create the job pool of a new fleet. Raises AlreadyExists, InvalidSettings."""
        policy_store.check_new(self._store, policy, self._engine(policy))
        return await self._pool(name).create()

    def _pool(self, name: str) -> Pool:
        return Pool(self._store, self._base.clock, name, process_name())

    async def scale_pool(
        self,
        name: str,
        policy: FleetPolicy,
        plan: WorkPlan | None = None,
        thresholds: Thresholds | None = None,
        *,
        seen: PoolRow | None = None,
    ) -> PoolRow:
        """Let a policy scale a job pool, which is created if missing. Its workers keep running when the queue is empty.

        ``seen``: the pool's row, as the caller read it. Raises InvalidInput if the pool is not a job pool, InvalidSettings,
        and StaleWrite if the policy has changed since ``seen`` was read."""
        if seen is not None:
            return await self._scale_pool(name, policy, plan, thresholds, seen)
        return await _until_written(lambda: self._scale_pool(name, policy, plan, thresholds, None))

    async def _scale_pool(
        self, name: str, policy: FleetPolicy, plan: WorkPlan | None, thresholds: Thresholds | None, seen: PoolRow | None
    ) -> PoolRow:
        """Let a policy scale a job pool. Raises StaleWrite if another process changes it meanwhile."""
        engine = self._engine(policy)
        policy_store.check_new(self._store, policy, engine)
        found = await self._pool(name).create(exist_ok=True)
        pool = seen or found
        await policy_store.check_policy(self._store, pool, policy, engine)
        work = replace(plan or plan_of(pool), mode=Mode.LOOP)
        if policy.concurrency > 1:
            work = replace(work, concurrency=policy.concurrency)
        return await policy_store.write_policy(self._store, pool, policy, thresholds, work.to_json())

    async def effective_policy(self, name: str, **settings: Any) -> FleetPolicy:
        """Return the policy for a beat in this process: the stored one, changed by environment variables, then ``settings``.

        Nothing is written. Raises NotFound, InvalidInput if the pool is not a fleet, InvalidSettings.
        """
        return (await self._effective(name, settings))[1]

    async def _effective(self, name: str, settings: Mapping[str, Any]) -> tuple[PoolRow, FleetPolicy]:
        return await policy_store.effective_policy(self._store, PoolId(name), os.environ, settings, self._facts)

    async def apply_environment(self, name: str, **settings: Any) -> FleetPolicy:
        """Change a fleet's stored policy by environment variables, then by ``settings``, and return the new policy.

        Settings that other processes change at the same time are kept."""

        async def applied() -> FleetPolicy:
            pool, policy = await self._effective(name, settings)
            await policy_store.write_policy(self._store, pool, policy)
            return policy

        return await _until_written(applied)

    @asynccontextmanager
    async def spawner(self, name: str, provider: str | None = None) -> AsyncIterator[Spawner]:
        """Open a spawner for the fleet's workers, at the engine ``provider`` or, if that is None, at the fleet's own engine.

        Raises NotFound, InvalidSettings, MissingExtra.
        """
        chosen = provider or (await self.service(name).policy()).provider
        async with self._base.spawner(chosen) as spawner:
            yield spawner

    def loop(
        self,
        pool_id: PoolId,
        spawner: Spawner,
        every: timedelta,
        lease: timedelta | None = None,
        on_beat: Callable[[BeatReport], None] | None = None,
        on_policy: Callable[[FleetPolicy], None] | None = None,
    ) -> ControlLoop[FleetView, Action]:
        """Build a controller of a fleet. Any number of controllers can run; only the one that holds the fleet's lease acts.

        ``on_policy`` gets the policy before a beat decides; if it raises, the beat ends. ``on_beat`` is called after each beat.
        """
        base = self._base

        async def observed(gap: timedelta) -> FleetView:
            view = await observe(base.store, spawner, pool_id, gap, every=every, clock=base.clock)
            if on_policy is not None:
                on_policy(view.policy)
            return view

        return ControlLoop(
            store=base.store,
            pool_id=pool_id,
            leadership=Leadership(base.store, pool_id, process_name(), lease or lease_for(every), base.clock),
            clock=base.clock,
            every=every,
            observe=observed,
            decide=decide,
            act=FleetActor(base.store, spawner, pool_id).act,
            on_beat=on_beat,
            make_summary=with_outcome,
            after=base.tidy,
        )

    async def beat(self, name: str, **settings: Any) -> BeatReport:
        """Apply environment variables and ``settings`` to the fleet's stored policy, store the result, push the jobs of the
        pool's schedules that are due, then run one beat. Raises like ``effective_policy``."""
        policy = await self.apply_environment(name, **settings)
        await self._ticks().try_to_push_due(await self._store.pools.get(PoolId(name)))
        async with self.spawner(name, policy.provider) as spawner:
            loop = self.loop(PoolId(name), spawner, policy.every)
            try:
                report = await self._beat_in_turn(PoolId(name), loop)
            finally:
                await loop.resign()
            await self._sweep(spawner).if_due(PoolId(name))
        if report.led:
            await self._base.tidy()
        return report

    async def _beat_in_turn(self, pool_id: PoolId, loop: ControlLoop[FleetView, Action]) -> BeatReport:
        """Run a beat. If another process is running one, first wait for its end: that beat might have missed the latest change.

        No beat is run (``led`` is False) if the wait exceeds MAX_WAIT, or if a daemon runs the fleet: its next beat is enough.
        """
        clock = self._base.clock
        deadline = clock.elapsed() + MAX_WAIT
        while True:
            report = await loop.beat()
            is_over = report.led or report.error is not None or clock.elapsed() >= deadline
            if is_over or await _is_kept_beating(self._store, pool_id):
                return report
            await clock.sleep(_RETRY_EVERY)

    async def beat_each(self, names: Sequence[str], **settings: Any) -> Mapping[str, Mapping[str, Any]]:
        """Run one beat of each fleet. If a beat fails, its report contains the error, and the next fleet's beat runs."""
        return {name: outcome_of(await self._try_beat(name, **settings)) for name in names}

    async def _try_beat(self, name: str, **settings: Any) -> BeatReport:
        try:
            return await self.beat(name, **settings)
        except DrumbeatError as exc:
            log.warning("failed to run a beat of the fleet %s: %s; continuing with the other fleets", name, exc)
            return BeatReport(led=False, error=str(exc) or type(exc).__name__)

    async def run(
        self,
        name: str,
        spawner: Spawner,
        every: timedelta,
        stop: asyncio.Event,
        on_beat: Callable[[BeatReport], None] | None = None,
        on_policy: Callable[[FleetPolicy], None] | None = None,
        hurry: asyncio.Event | None = None,
    ) -> str | None:
        """Run the fleet's beats until ``stop`` is set. A job that is pushed to an empty queue causes a beat at once. The jobs
        of the pool's schedules are pushed when they are due.

        Once ``hurry`` is set, beats do not wait for the answers of an engine other than ``local``. Returns why the engine did
        not answer the last call; None if it did."""
        prompt = PromptSpawner(spawner, hurry or asyncio.Event(), self._base.clock)
        is_local = spawner.traits.name == DEFAULT_ENGINE
        waker = PushWaker(self._store, PoolId(name), self._base.clock)
        alive = LivenessFile(self._base.settings.state_dir, PoolId(name), every, self._base.clock)

        def reported(report: BeatReport) -> None:
            alive.renew()
            waker.on_beat(report.view)
            if on_beat is not None:
                on_beat(report)

        async def end() -> None:
            await stop.wait()
            waker.woken.set()

        beating = spawner if is_local else prompt
        loop = self.loop(PoolId(name), beating, every, on_beat=reported, on_policy=on_policy)
        async with asyncio.TaskGroup() as group:
            beside = (waker.watch(), end(), self._keep_sweeping(name), self._ticks().keep(PoolId(name)))
            tasks = [group.create_task(each) for each in beside]
            alive.renew()
            await loop.run(stop, waker.woken)
            alive.remove()
            for task in tasks:
                task.cancel()
        return prompt.silence

    def _ticks(self) -> TickPusher:
        return TickPusher(self._store, self._base.clock, process_name(), lambda: self._base.plugins)

    def _sweep(self, spawner: Spawner) -> Sweep:
        clock = self._base.clock
        return Sweep(store=self._store, spawner=spawner, clock=clock, owner=process_name, place=socket.gethostname())

    async def _keep_sweeping(self, name: str) -> None:
        """At intervals, terminate instances that other pools left behind. Uses its own spawner, so that no beat is delayed."""
        while True:
            try:
                async with self.spawner(name) as spawner:
                    await self._sweep(spawner).if_due(PoolId(name))
            except DrumbeatError as exc:
                log.warning("failed to look for forgotten instances of pools other than %s: %s; retrying later", name, exc)
            await self._base.clock.sleep(SWEPT_EVERY)


async def _until_written(change: Callable[[], Awaitable[T]]) -> T:
    """Call ``change``, which reads a fleet, checks its new policy and writes it. If another process has changed the fleet
    meanwhile (StaleWrite), call it again."""
    while True:
        try:
            return await change()
        except StaleWrite as exc:
            log.info("could not write the changed fleet: %s; trying again", exc)


async def _is_kept_beating(store: Store, pool_id: PoolId) -> bool:
    """Whether a daemon runs the pool's beats. A daemon keeps the lease after a beat; a process for one beat releases it."""
    try:
        lease, last, now = await store.leases.find(pool_id), await store.beats.last(pool_id), await store.now()
    except StoreError:
        return False
    if lease is None or last is None or lease.expires_at <= now:
        return False
    return lease.epoch == last.epoch and now - last.at > _RESIGNS_WITHIN


def outcome_of(report: BeatReport) -> Mapping[str, Any]:
    """Return a beat's report as JSON, as the answer to the trigger that caused the beat. The observed state is left out."""
    failed = [f"{action['type']}: {action['error']}" for action in report.actions if "error" in action]
    errors = [report.error, report.summary.get("provider_error"), *failed]
    error = next((each for each in errors if each), None)
    return {
        "led": report.led,
        "beat": report.n,
        "summary": {name: value for name, value in report.summary.items() if name != "state"},
        "actions": [dict(action) for action in report.actions],
        "why_not": report.why_not,
        "error": error,
        "ok": error is None,
        "seconds": report.duration.total_seconds(),
    }
