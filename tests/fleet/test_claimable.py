"""A fleet is sized, and its workers are judged, by what they could claim: not by a full group, a pause, or others' jobs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.job import NewJob, RateLimit
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.worker import Holder, WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide, decide_step
from drumbeat.fleet.model import Fail, FleetPolicy, FleetState, FleetView, Plan, PolicyName, QueueView
from drumbeat.fleet.observe import observe, plan_in
from drumbeat.fleet.queue import QueueReader
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import ClaimRequest, JoinRequest, PoolChange, WorkerChange
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
NO_VIDEO = {"paused_type:video": "2026-01-01T00:00:00+00:00"}
NO_IMAGE = {"paused_type:image": "2026-01-01T00:00:00+00:00"}


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
        (NO_VIDEO, [{"type": "image"}, {"type": "video"}], 20, 20),
        (NO_VIDEO, [{"type": "video"}], 0, 20),
        ({"handlers": {"image": "app:draw", "video": "app:film"}} | NO_VIDEO, [{"type": "image"}, {"type": "video"}], 20, 20),
        (IMAGES | NO_IMAGE, [{"type": "image"}, {"type": "video"}], 0, 40),
    ],
    ids=[
        "any",
        "a group",
        "no capability",
        "a capability",
        "some types",
        "no type",
        "later",
        "every type",
        "a type is paused",
        "all are paused",
        "a handled type is paused",
        "every handled type is paused",
    ],
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


@pytest.mark.parametrize("policy", [PolicyName.LAG_AWARE, PolicyName.QUEUE_RATIO, PolicyName.QUEUE_COVER])
async def test_paused_jobs_neither_start_workers_nor_fail_those_that_do_not_claim_them(policy: PolicyName) -> None:
    stage = await Stage().begin(**IMAGES | NO_IMAGE)
    await stage.store.pools.change(POOL, PoolChange(policy={"policy": policy.value}))
    await stage.push(20, type="image")
    await stage.push(20, type="image", delay=seconds(60))

    found = await stage.look()
    seen = replace(queued(*PAIR, state=LONG), policy=found.policy, plan=found.plan, queue=found.queue)

    assert found.queue is not None
    assert (found.queue.ready, found.queue.blocked, found.queue.due, found.queue.types) == (0, 20, (), {})
    assert not [each for each in decide(seen).actions if isinstance(each, Fail)]
    assert decide_step(replace(seen, workers=(), instances=())).verdict.desired == 0


SLO = {"wait_slo_seconds": 600, "min_workers": 0, "max_workers": 50}
RATE = RateLimit(count=1, per=seconds(7200))


@pytest.mark.parametrize(
    ("plan", "before", "old", "wanted"),
    [
        ({}, {}, [], False),
        ({}, {}, [{}], True),
        ({}, {}, [{"capability": "h100"}], False),
        ({}, {}, [{"capability": "h100"}, {}], True),
        ({}, {"group": "g", "group_limit": 1}, [{"group": "g", "group_limit": 1}], False),
        ({}, {"group": "g", "group_limit": 1}, [{"group": "g", "group_limit": 1}, {"group": "h", "group_limit": 1}], True),
        ({}, {"group": "g", "group_rate": RATE}, [{"group": "g", "group_rate": RATE}], False),
        ({}, {}, [{"group": "g", "group_rate": RATE}, {"group": "g", "group_rate": RATE}], True),
        (IMAGES, {"type": "image"}, [{"type": "video"}], False),
        (IMAGES, {"type": "image"}, [{"type": "video"}, {"type": "image"}], True),
        (NO_VIDEO, {}, [{"type": "video"}], False),
        (NO_VIDEO, {}, [{"type": "video"}, {"type": "image"}], True),
        ({}, {}, [{"capability": "h100"}, {"delay": seconds(3600)}], False),
    ],
    ids=[
        "none is old",
        "an old one",
        "no capability",
        "one behind it",
        "a full group",
        "another group",
        "a rate",
        "within its rate",
        "no handler",
        "a handler",
        "paused",
        "not paused",
        "came due now",
    ],
)
async def test_only_jobs_that_could_be_claimed_exceed_the_longest_wait(
    plan: Mapping[str, Any], before: Mapping[str, Any], old: list[Mapping[str, Any]], wanted: bool
) -> None:
    stage = await Stage().begin(**plan)
    await stage.store.pools.change(POOL, PoolChange(policy=SLO))
    await stage.push(1, **before)
    await stage.store.queue.claim(
        ClaimRequest(pool_id=POOL, holder=Holder(pool_id=POOL, worker_id=WorkerId("w")), lease=seconds(9000), limit=1)
    )
    for fields in old:
        await stage.push(1, **fields)
    await stage.clock.advance(seconds(3600))
    await stage.push(20, type="image" if "handlers" in plan else "")

    wishes = [each.rule for each in decide_step(await stage.look()).verdict.wishes]

    assert ("wait" in wishes) == wanted


@pytest.mark.parametrize(("since", "wanted"), [(700, True), (30, False), (None, False)])
async def test_behind_many_blocked_jobs_the_wait_is_the_time_since_when_jobs_could_be_claimed(
    since: float | None, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drumbeat.fleet.queue.PAGE", 5)
    stage = await Stage().begin()
    await stage.store.pools.change(POOL, PoolChange(policy=SLO))
    await stage.push(5, capability="h100")
    await stage.clock.advance(seconds(3600))
    await stage.push(1)
    state = FleetState(claimable_since=None if since is None else stage.clock.now() - seconds(since))

    seen = await QueueReader(stage.store, replace(await stage.look(), state=state), None).read()

    assert ("wait" in [each.rule for each in decide_step(seen).verdict.wishes]) == wanted


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
