"""A fleet is sized, and its workers are judged, by what they could claim: not by a full group, a pause, or others' jobs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.job import NewJob
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.worker import Holder, WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide, decide_step
from drumbeat.fleet.model import Fail, FleetPolicy, FleetView, Plan, PolicyName, QueueView
from drumbeat.fleet.observe import observe, plan_in
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import ClaimRequest, JoinRequest, WorkerChange
from drumbeat.store.memory import MemoryStore
from fleet.given import NOW, POOL, idle_for, job, queued, ready_worker, seconds

POLICY = FleetPolicy(policy=PolicyName.LAG_AWARE, min_workers=0)


class Stage:
    """A pool whose workers have a plan."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)

    async def begin(self, **plan: Any) -> "Stage":
        await self.store.pools.create(pool(POOL, PoolKind.JOBS, **POLICY.to_json(), **plan))
        return self

    async def push(self, count: int, **fields: Any) -> None:
        await self.store.queue.push(POOL, [NewJob(payload=n, **fields) for n in range(count)])

    async def look(self) -> FleetView:
        return await observe(self.store, FakeSpawner(self.clock), POOL, seconds(0))

    async def queue(self) -> QueueView:
        seen = (await self.look()).queue
        assert seen is not None
        return seen


IMAGES = {"handlers": {"image": "app:draw"}}


@pytest.mark.parametrize(
    ("plan", "pushed", "ready", "blocked"),
    [
        ({}, [{}], 20, 0),
        ({}, [{"group": "g", "group_limit": 1}], 1, 19),
        ({}, [{"capability": "h100"}], 0, 20),
        ({"capabilities": ["h100"]}, [{"capability": "h100"}], 20, 0),
        (IMAGES, [{"type": "image"}, {"type": "video"}], 20, 20),
        (IMAGES, [{"type": "video"}], 0, 20),
        (IMAGES, [{"type": "image", "delay": seconds(60)}, {"type": "video"}], 0, 20),
        ({"handlers": {"": "app:any", "image": "app:draw"}}, [{"type": "image"}, {"type": "video"}], 40, 0),
    ],
    ids=["any", "a group", "no capability", "a capability", "some types", "no type", "later", "every type"],
)
async def test_only_what_its_workers_could_claim_is_ready(
    plan: Mapping[str, Any], pushed: list[Mapping[str, Any]], ready: int, blocked: int
) -> None:
    stage = await Stage().begin(**plan)
    for fields in pushed:
        await stage.push(20, **fields)

    queue = await stage.queue()

    assert (queue.ready, queue.blocked) == (ready, blocked)


async def test_nobody_is_started_for_what_no_worker_could_claim() -> None:
    stage = await Stage().begin()
    await stage.push(20, capability="h100")

    assert decide_step(await stage.look()).verdict.desired == 0


async def test_jobs_that_come_due_are_foreseen_if_its_workers_could_claim_them() -> None:
    stage = await Stage().begin(**IMAGES)
    for delay in (90, 30):
        await stage.push(1, type="image", delay=seconds(delay))
    await stage.push(1, type="video", delay=seconds(5))
    await stage.push(1, type="image", capability="h100", delay=seconds(5))

    assert (await stage.queue()).due == tuple(stage.clock.now() + seconds(each) for each in (30, 90))


async def test_the_plans_timeout_is_a_jobs_that_names_none() -> None:
    stage = await Stage().begin(timeout=120.0)
    await stage.push(1)
    await stage.push(1, timeout=seconds(5))
    await stage.store.queue.claim(
        ClaimRequest(pool_id=POOL, holder=Holder(pool_id=POOL, worker_id=WorkerId("w")), lease=seconds(60), limit=2)
    )

    assert sorted(each.timeout or seconds(0) for each in (await stage.look()).held) == [seconds(5), seconds(120)]


def test_a_plan_that_cannot_be_read_is_passed_over() -> None:
    assert plan_in({"timeout": "soon", "capabilities": 7}, POOL) == Plan()


async def test_jobs_whose_handler_the_workers_cannot_load_count_as_blocked() -> None:
    stage = await Stage().begin(handlers={"image": "work:image", "gone": "work:gone"})
    await stage.push(2, type="image")
    await stage.push(3, type="gone")
    worker = JoinRequest(pool_id=POOL, worker_id=WorkerId("w"), slot=0, instance="w", host="h", pid=1)
    await stage.store.membership.join(worker)
    meta = {"types": ["image"], "not_loaded": {"gone": "handler 'work:gone': module 'work' has no 'gone'"}}
    await stage.store.membership.move(
        POOL, worker.worker_id, worker.instance, WorkerStatus.WAITING, "ready", WorkerChange(meta=meta)
    )
    await stage.clock.advance(seconds(3600))

    queue = await stage.queue()

    assert (queue.ready, queue.blocked) == (2, 3)


LONG = idle_for(worker_0=700, worker_1=700)
PAIR = (ready_worker(0), ready_worker(1))
WAITS: dict[str, Any] = {"ready": 1, "oldest": 700, "min_workers": 2}


@pytest.mark.parametrize(
    ("seen", "failed"),
    [
        (queued(*PAIR, **WAITS, state=LONG), 2),
        (queued(*PAIR, **WAITS, state=LONG, paused_until=NOW + seconds(60)), 0),
        (queued(*PAIR, **WAITS, state=replace(LONG, claimable_since=NOW - seconds(30))), 0),
        (queued(*PAIR, **WAITS, state=replace(LONG, claimable_since=None)), 0),
        (queued(*PAIR, **WAITS, state=LONG, queue=QueueView(blocked=6, oldest_ready=NOW - seconds(700))), 0),
        (queued(*PAIR, ready_worker(2), **WAITS, state=LONG, held=(job("j", 2),)), 0),
        (queued(*PAIR, ready_worker(2), **(WAITS | {"ready": 2}), state=LONG, held=(job("j", 2),)), 2),
    ],
    ids=["work is left", "paused", "since a moment", "not known", "nothing to claim", "less than idle", "enough for all"],
)
def test_who_takes_none_is_ill_only_while_there_is_something_to_take(seen: FleetView, failed: int) -> None:
    assert sum(isinstance(each, Fail) for each in decide(seen).actions) == failed


@pytest.mark.parametrize(
    ("seen", "since"),
    [
        (queued(ready=1, state=idle_for(worker_0=90)), NOW - seconds(90)),
        (queued(ready=1), NOW),
        (queued(ready=0, state=idle_for(worker_0=90)), None),
        (queued(ready=1, state=idle_for(worker_0=90), paused_until=NOW + seconds(9)), None),
        (queued(state=idle_for(worker_0=90), queue=None), NOW - seconds(90)),
    ],
    ids=["goes on", "begins", "nothing is left", "paused", "could not be read"],
)
def test_since_when_something_could_be_claimed_is_remembered(seen: FleetView, since: object) -> None:
    assert decide_step(seen).state.claimable_since == since
