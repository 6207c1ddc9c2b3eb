"""Measure how long a fleet's decision takes, and a whole beat on SQLite and PostgreSQL, with 100 to 10,000 workers.

python benchmarks/fleet_scale.py [--quick]

Half of the workers are busy, and ten jobs are queued for each. Goal: decide() takes at most 20 ms with 10,000 workers and
100,000 queued jobs. A whole beat reads workers and queue, decides, and stores what it saw and decided; the provider is a fake
that lists all workers.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import kit  # noqa: F401  (makes the tests' servers importable)
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.clock import SystemClock
from drumbeat.core.job import JobId, NewJob
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import FleetPolicy, FleetState, FleetView, HeldJob, ListedInstance, PolicyName, QueueView
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.spawn.interface import Order
from drumbeat.store.interface import ClaimRequest, JoinRequest
from kit.report import Report, median, parser, print_table, say
from servers.postgres import PostgresServer

POOL = PoolId("big")
AT_ONCE = 4  #: workers that join in parallel; all take event numbers from one pool
JOBS_EACH = 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = timedelta(days=1)
PATIENT = replace(PRESETS[PoolKind.JOBS], stale_after=LONG, lost_after=LONG * 2, give_up_after=LONG, start_within=LONG)


def policy_for(workers: int) -> FleetPolicy:
    return FleetPolicy(policy=PolicyName.LAG_AWARE, min_workers=0, max_workers=workers, stuck_timeout=LONG)


def name(n: int) -> WorkerId:
    return WorkerId(f"worker-{n}")


def view_of(workers: int, thresholds: Thresholds) -> FleetView:
    """Make the view for a decision: all workers ready, every second one busy, ten jobs queued for each."""
    row = Worker(
        pool_id=POOL, worker_id=name(0), slot=0, status=WorkerStatus.ACTIVE, created_at=NOW, ready_at=NOW, heartbeat_at=NOW
    )
    return FleetView(
        pool_id=POOL,
        now=NOW + timedelta(minutes=1),
        looking_since=NOW,
        paused_until=None,
        thresholds=thresholds,
        policy=policy_for(workers + 100),
        workers=tuple(replace(row, worker_id=name(n), slot=n) for n in range(workers)),
        instances=tuple(ListedInstance(worker_id=name(n), running=True) for n in range(workers)),
        last_number=workers - 1,
        queue=QueueView(ready=workers * JOBS_EACH, claimed=workers // 2, oldest_ready=NOW, types={"": 200}),
        held=tuple(HeldJob(job_id=JobId(f"j{n}"), worker_id=name(n), claimed_at=NOW) for n in range(0, workers, 2)),
        state=FleetState(),
    )


def time_decide(workers: int, times: int) -> float:
    """Return how many milliseconds one decision takes: the median of several."""
    view, took = view_of(workers, PATIENT), []
    for _ in range(times):
        began = time.perf_counter()
        decide(view)
        took.append((time.perf_counter() - began) * 1000)
    return median(took)


async def populate(plane: ControlPlane, spawner: FakeSpawner, workers: int) -> None:
    store = plane.store
    await store.pools.create(pool(POOL, PoolKind.JOBS, PATIENT, **policy_for(workers).to_json()))
    for first in range(0, workers * JOBS_EACH + workers // 2, 1000):
        last = min(first + 1000, workers * JOBS_EACH + workers // 2)
        await store.queue.push(POOL, [NewJob(payload=n) for n in range(first, last)])
    for first in range(0, workers, AT_ONCE):
        await asyncio.gather(*(enlist(plane, spawner, n, workers) for n in range(first, min(first + AT_ONCE, workers))))


async def enlist(plane: ControlPlane, spawner: FakeSpawner, n: int, workers: int) -> None:
    """Add one ready worker; every second one claims a job."""
    store, me, instance = plane.store, name(n), f"i{n}"
    await spawner.spawn(Order(pool_id=POOL, worker_id=me, slot=n, group_count=workers))
    joining = JoinRequest(pool_id=POOL, worker_id=me, slot=n, instance=instance, host="here", pid=n)
    await store.membership.join(joining)
    for status in (WorkerStatus.WAITING, WorkerStatus.ACTIVE):
        await store.membership.move(POOL, me, instance, status, "on its way")
    if n % 2 == 0:
        await store.queue.claim(ClaimRequest(pool_id=POOL, holder=joining.holder, lease=LONG, limit=1))


async def time_beats(url: str, workers: int, times: int, folder: Path) -> float:
    """Return how many milliseconds a whole beat takes: the median of several, without the first, which has no learned state."""
    spawner = FakeSpawner(SystemClock())
    async with open_control_plane(Settings(store=url, state_dir=folder), create=True) as plane:
        await populate(plane, spawner, workers)
        loop = plane.fleets.loop(POOL, spawner, timedelta(seconds=30))
        reports = [await loop.beat() for _ in range(times + 1)]
    failed = [report.error for report in reports if report.error]
    if failed:
        raise RuntimeError(f"a beat at {workers} workers failed: {failed[0]}")
    return median(report.duration.total_seconds() * 1000 for report in reports[1:])


async def whole_beats(counts: Sequence[int], times: int) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {"sqlite": {}, "postgresql": {}}
    with PostgresServer(max_connections=100) as server:
        for count in counts:
            for kind, measured in found.items():
                with tempfile.TemporaryDirectory() as folder:
                    url = f"sqlite:///{folder}/store.db" if kind == "sqlite" else server.new_database()
                    measured[count] = await time_beats(url, count, times, Path(folder))
                say(f"{kind}, {count} workers: {measured[count]:.1f} ms a beat")
    return found


def main() -> None:
    given = parser(__doc__).parse_args()
    times = 3 if given.quick else 7
    counts = (100,) if given.quick else (100, 1000, 10_000)
    decided = {count: time_decide(count, times) for count in (100, 1000, 10_000)}
    beats = asyncio.run(whole_beats(counts, times))
    rows = [[count, decided[count], *(beats[kind].get(count, "–") for kind in beats)] for count in decided]
    print_table(["workers", "decide ms", "sqlite beat ms", "postgresql beat ms"], rows)
    figures = {"decide_ms": decided, "beat_ms": beats}
    report = Report("fleet_scale", ratios={"decide_at_10000_over_20_ms": decided[10_000] / 20}, figures=figures)
    report.note_versions(["asyncpg", "msgspec"])
    report.print()


if __name__ == "__main__":
    main()
