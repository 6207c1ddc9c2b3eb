"""A real fleet for fault tests: real worker processes, and a controller in the test's own process."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bystanders import add_bystanders, bystanders
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.event import EventType
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy
from drumbeat.settings import Settings
from e2e.processes import eventually

POOL = PoolId("fleet")
BENCH = PRESETS[PoolKind.BENCH]


@dataclass(frozen=True, slots=True)
class Fleet:
    plane: ControlPlane

    async def workers(self) -> Sequence[Worker]:
        return await self.plane.store.workers.list(POOL)

    async def all_hold(self, target: int) -> bool:
        workers = await self.workers()
        return all(worker.status is WorkerStatus.ACTIVE and worker.active == target for worker in workers)

    async def told(self) -> Sequence[Mapping[str, object]]:
        """Every move of a worker to an end it did not choose."""
        moves: list[Mapping[str, object]] = []
        read_to = 0
        while events := await self.plane.store.events.read(POOL, read_to):
            read_to = events[-1].sequence_id
            moves += [event.payload for event in events if event.type == EventType.WORKER_MOVED]
        return [move for move in moves if move["to"] in (WorkerStatus.LOST, WorkerStatus.ERROR)]

    async def samples_missing(self, worker: Worker) -> list[int]:
        """The numbers of samples that a worker made and the store does not have."""
        samples = await self.plane.store.samples.list(POOL, worker_id=worker.worker_id)
        numbers = [sample.n for sample in samples]
        return sorted(set(range(min(numbers), max(numbers) + 1)) - set(numbers))

    async def set_target(self, target: int, workers: int) -> None:
        await self.plane.fleets.set_policy(POOL, FleetPolicy(workers=workers, target=target))


@asynccontextmanager
async def fleet(
    url: str, folder: Path, *, workers: int, thresholds: Thresholds = BENCH, controlled: bool = True
) -> AsyncIterator[Fleet]:
    """Workers that all hold 1, under a controller that beats each second (or, not controlled, under none any more).

    Whatever befalls them, two pools beside them, whose workers have their ids, are left as they were.
    """
    settings = Settings(store=url, state_dir=folder / "state")
    async with open_control_plane(settings) as plane, plane.local_spawner() as spawner:
        await add_bystanders(plane.store)
        before = await bystanders(plane.store)
        await plane.fleets.create(POOL, FleetPolicy(workers=workers, target=1), thresholds)
        loop = plane.fleets.loop(POOL, spawner, timedelta(seconds=1))
        running = Fleet(plane)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run(stop))
            try:
                await eventually(lambda: _all_here(running, workers), f"{workers} workers hold 1")
                yield running
                assert await bystanders(plane.store) == before
            finally:
                stop.set()


async def _all_here(running: Fleet, workers: int) -> bool:
    return len(await running.workers()) == workers and await running.all_hold(1)


def of(workers: Sequence[Worker], worker_id: WorkerId) -> Worker:
    return next(worker for worker in workers if worker.worker_id == worker_id)
