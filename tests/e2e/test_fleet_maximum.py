"""A fleet never runs more workers at once than its maximum, whoever drains them and however much is queued."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.client import Mode, parse_handlers
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.job import NewJob
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import Action, FleetPolicy, FleetView, PolicyName
from drumbeat.pool.worker.options import WorkPlan
from drumbeat.runtime.beat import ControlLoop
from drumbeat.settings import Settings
from drumbeat.spawn.interface import InstanceState, Spawner
from e2e.processes import PATIENCE

pytestmark = pytest.mark.slow

POOL, MOST = PoolId("p"), 2
LIMITS = replace(PRESETS[PoolKind.JOBS], heartbeat_every=timedelta(seconds=0.3), drain_within=timedelta(seconds=3))
POLICY = FleetPolicy(
    policy=PolicyName.QUEUE_COVER,
    every=timedelta(seconds=0.1),
    min_workers=0,
    max_workers=MOST,
    cooldown_down=timedelta(),
    stabilisation=timedelta(),
    turn_after=timedelta(),
)


@dataclass(slots=True)
class Watched:
    """A fleet whose workers are counted before and after every beat."""

    plane: ControlPlane
    spawner: Spawner
    loop: ControlLoop[FleetView, Action]
    counts: list[tuple[int, int]] = field(default_factory=list)  #: live rows and running processes

    async def until_active(self, besides: Set[WorkerId] = frozenset()) -> None:
        """Beat until as many as may be are at work, besides these."""
        deadline = time.monotonic() + PATIENCE
        rows: Sequence[Worker] = ()
        while time.monotonic() < deadline:
            await self.count()
            await self.loop.beat()
            await asyncio.sleep(0.05)  # the workers need the processor too
            rows = [row for row in await self.plane.store.workers.list(POOL) if row.worker_id not in besides]
            if sum(row.status is WorkerStatus.ACTIVE and row.drain_deadline is None for row in rows) == MOST:
                return
        raise AssertionError(f"expected {MOST} new workers at work within {PATIENCE:g} s, got {rows}")

    async def count(self) -> None:
        live = await self.plane.store.workers.list(POOL, live=True)
        running = [one for one in await self.spawner.list(POOL) if one.state is not InstanceState.EXITED]
        self.counts.append((len(live), len(running)))

    async def started(self) -> Set[WorkerId]:
        return {row.worker_id for row in await self.plane.store.workers.list(POOL)}


@asynccontextmanager
async def fleet(url: str, folder: Path) -> AsyncIterator[Watched]:
    """A pool with more work than its workers ever do, each job longer than they may take to drain."""
    plan = WorkPlan(handlers=parse_handlers(["command:sleep 60"]), mode=Mode.LOOP)
    settings = Settings(store=url, state_dir=folder / "state")
    async with open_control_plane(settings) as plane, plane.local_spawner() as spawner:
        await plane.fleets.scale_pool(POOL, POLICY, plan, LIMITS)
        await plane.store.queue.push(POOL, [NewJob(payload=n, max_crashes=1000) for n in range(20)])
        yield Watched(plane, spawner, plane.fleets.loop(POOL, spawner, POLICY.every))


async def test_who_is_drained_by_hand_counts_until_it_is_gone(any_url: str, tmp_path: Path) -> None:
    async with fleet(any_url, tmp_path) as running:
        await running.until_active()
        for _ in range(2):
            known = await running.started()
            await running.plane.fleet(POOL).drain([])
            await running.until_active(besides=known)

        assert max(running.counts) == (MOST, MOST)
        assert max(processes for _, processes in running.counts) == MOST


async def test_who_is_drained_by_the_policy_counts_until_it_is_gone(any_url: str, tmp_path: Path) -> None:
    async with fleet(any_url, tmp_path) as running:
        await running.until_active()
        for _ in range(2):
            known = await running.started()
            await running.plane.fleets.set_policy(POOL, replace(POLICY, max_workers=0))
            await running.loop.beat()
            await running.plane.fleets.set_policy(POOL, POLICY)
            await running.until_active(besides=known)

        assert max(running.counts) == (MOST, MOST)
        assert max(processes for _, processes in running.counts) == MOST
