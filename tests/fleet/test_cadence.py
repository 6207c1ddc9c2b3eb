"""How far apart beats are is seen, and judged by: who is silent is given up, and no ceiling is passed, at any cadence."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import ManualClock
from drumbeat.core.job import NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import FleetPolicy, FleetView, Plan, PolicyName
from drumbeat.fleet.model.view import usual_interval
from drumbeat.fleet.observe import observe
from drumbeat.runtime.beat import BeatReport, encode
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import ClaimRequest, Heartbeat, JoinRequest
from drumbeat.store.memory import MemoryStore
from fleet.given import queued, ready_worker, seconds

POOL = PoolId("p")
USUAL = seconds(30)
ACTIVE = WorkerStatus.ACTIVE


class Cron:
    """Beats as from cron: each by a process of its own, so far apart as they come."""

    def __init__(self, policy: FleetPolicy) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.spawner = FakeSpawner(self.clock)
        self.plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), self.store, self.clock)
        self.policy = policy

    async def begin(self, jobs: int) -> "Cron":
        await self.store.pools.create(pool(POOL, PoolKind.JOBS, **self.policy.to_json()))
        await self.store.queue.push(POOL, [NewJob(payload=n) for n in range(jobs)])
        return self

    async def beat(self, every: timedelta = USUAL) -> BeatReport:
        loop = self.plane.fleets.loop(POOL, self.spawner, every)
        report = await loop.beat()
        await loop.resign()
        return report

    async def beats(self, *apart: float) -> None:
        for span in apart:
            await self.beat()
            await self.clock.advance(seconds(span))

    async def look(self) -> FleetView:
        return await observe(self.store, self.spawner, POOL, timedelta())

    async def ended(self) -> list[Worker]:
        return [each for each in await self.store.workers.list(POOL) if not each.is_live]


ONE = FleetPolicy(policy=PolicyName.QUEUE_COVER, min_workers=0, max_workers=1, spawning_timeout=seconds(120))


@pytest.mark.parametrize(
    "apart",
    [[30.0] * 5, [60.2, 59.8, 60.3, 60.1], [61.0] * 4, [90.0] * 4, [300.0] * 4, [10.0, 3600.0] * 4],
    ids=["as usual", "jitter about a minute", "just over a minute", "90 s", "5 min", "in pairs, an hour apart"],
)
async def test_one_that_never_joins_is_given_up_however_far_apart_beats_are(apart: list[float]) -> None:
    cron = await Cron(ONE).begin(1)

    await cron.beats(*apart)
    await cron.beat()

    assert [each.status for each in await cron.ended()][:1] == [WorkerStatus.LOST]


async def test_after_one_outage_everybody_gets_a_fresh_start() -> None:
    cron = await Cron(ONE).begin(1)
    await cron.beats(30, 30, 30, 600)
    seen = await cron.look()

    assert seen.looking_since == seen.now
    assert seen.intervals == (USUAL, USUAL, USUAL, seconds(600))
    assert seen.cadence == USUAL


@pytest.mark.parametrize(
    ("intervals", "usual"),
    [([], 0), ([600], 600), ([36_000], 3600), ([30, 36_000], 30), ([600, 600], 600), ([10, 600, 10, 600], 600)],
    ids=["none yet", "one", "one that is an outage", "an outage", "two alike", "in pairs"],
)
def test_how_far_apart_beats_usually_are(intervals: list[int], usual: int) -> None:
    assert usual_interval([seconds(each) for each in intervals]) == seconds(usual)


def test_a_view_of_before_can_still_be_read_and_goes_by_its_policy() -> None:
    seen = dict(encode(queued(ready_worker(0), ready=3, stuck_timeout=seconds(300), policy="lag_aware")))
    kept = {name: value for name, value in seen.items() if name not in ("plan", "every", "intervals")}
    kept["queue"] = {name: value for name, value in seen["queue"].items() if name != "blocked"}
    kept["state"] = {name: value for name, value in seen["state"].items() if name != "claimable_since"}

    old = msgspec.convert(kept, FleetView)

    assert (old.cadence, old.queue and old.queue.ready, old.plan) == (USUAL, 3, Plan())
    assert decide(old).summary["wanted"] >= 1


async def tended(cron: Cron) -> None:
    """The workers join, claim, beat, and leave as soon as they hear of it."""
    for each in await cron.store.workers.list(POOL, live=True):
        me, move = each.worker_id, cron.store.membership.move
        if each.status is WorkerStatus.SPAWNING:
            await join(cron, me, each.slot)
        orders = await cron.store.membership.beat(Heartbeat(pool_id=POOL, worker_id=me, instance=me, read_to=0))
        if orders.drain_deadline:
            await move(POOL, me, me, WorkerStatus.DRAINING, "asked")
            await move(POOL, me, me, WorkerStatus.TERMINATED, "left")


async def join(cron: Cron, me: WorkerId, slot: int) -> None:
    joining = JoinRequest(pool_id=POOL, worker_id=me, slot=slot, instance=me, host="h", pid=1)
    await cron.store.membership.join(joining)
    for status in (WorkerStatus.WAITING, ACTIVE):
        await cron.store.membership.move(POOL, me, me, status, "up")
    await cron.store.queue.claim(ClaimRequest(pool_id=POOL, holder=joining.holder, lease=timedelta(days=1)))


PRICED = FleetPolicy(
    policy=PolicyName.QUEUE_COVER,
    min_workers=0,
    max_workers=5,
    price_per_hour=6,
    max_per_day=6,
    graceful_shutdown_timeout=seconds(10),
)


@pytest.mark.parametrize("told", [lambda span: span, lambda _: USUAL], ids=["fleet run --every", "cron"])
@pytest.mark.parametrize("span", [30, 300, 600])
async def test_no_ceiling_is_passed_however_far_apart_beats_are(span: int, told: Callable[[timedelta], timedelta]) -> None:
    cron, most = await Cron(PRICED).begin(0), 0.0
    await cron.beat(told(seconds(span)))
    await cron.clock.advance(seconds(span))
    await cron.store.queue.push(POOL, [NewJob(payload=n) for n in range(50)])
    for _ in range(3600 // span):
        await cron.beat(told(seconds(span)))
        for _ in range(span // 10):
            await cron.clock.advance(seconds(10))
            await tended(cron)
        most = max(most, (await cron.plane.fleet(POOL).spend(cron.spawner)).spent.day)

    assert 3 < most <= 6.01
