"""The fleet's desk: a plan changes nothing, people's hands work, and what was decided can be read back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.beat import CHECK, Beat, NewBeat
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput, NotFound, SpawnError, StaleWrite
from drumbeat.core.job import AttemptOutcome, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.fleet.observe import observe
from drumbeat.fleet.service import FleetService
from drumbeat.runtime.beat import encode, encode_action
from drumbeat.spawn.fake import FakeSpawner, TerminateRefused
from drumbeat.spawn.interface import Instance, Order
from drumbeat.store.contract.given import heartbeat, joined, moved
from drumbeat.store.interface import ClaimRequest
from drumbeat.store.memory import MemoryStore
from drumbeat.store.memory.beats import MemoryBeats
from fleet.given import seconds

POOL = PoolId("p")


class OnlyLists(FakeSpawner):
    """Raises on any call that would change something."""

    async def spawn(self, order: Order) -> Instance:
        raise AssertionError("a plan started a worker")

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        raise AssertionError("a plan drained a worker")

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        raise AssertionError("a plan ended a worker")

    async def expand_volume(self, volume: str, to_gb: int, seen_gb: float) -> int:
        raise AssertionError("a plan bought disk")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> MemoryStore:
    made = MemoryStore(clock)
    policy = FleetPolicy(policy=PolicyName.LAG_AWARE, min_workers=0, price_per_hour=3600.0, max_per_day=1e6)
    await made.pools.create(pool(POOL, PoolKind.JOBS, **policy.to_json()))
    return made


def desk(store: MemoryStore, name: str = POOL) -> FleetService:
    return FleetService(store, PoolId(name), encode_action)


async def rows(store: MemoryStore) -> Sequence[Any]:
    return [
        await store.pools.list(),
        await store.workers.list(POOL),
        await store.jobs.list(POOL),
        await store.events.read(POOL, 0, 100),
        await store.beats.list(POOL),
    ]


async def active(store: MemoryStore, name: str) -> None:
    home = await store.pools.get(POOL)
    await moved(store, await joined(store, home, WorkerId(name), 0), WorkerStatus.WAITING, WorkerStatus.ACTIVE)


async def test_a_plan_tells_what_a_beat_would_do_and_changes_nothing(store: MemoryStore) -> None:
    await store.queue.push(POOL, [NewJob(payload=n) for n in range(3)])
    before = await rows(store)

    found = await desk(store).plan(OnlyLists(ManualClock()))

    assert found.actions[0].startswith("Spawn worker-0: ")
    assert await rows(store) == before


async def test_a_plan_buys_no_disk(store: MemoryStore) -> None:
    await active(store, "a")
    full = {"disk": {"volume": "vol1", "path": "/workspace", "total_gb": 100.0, "free_gb": 1.0}}
    await store.membership.beat(heartbeat(await store.workers.get(POOL, WorkerId("a")), gpu=full))

    found = await desk(store).plan(OnlyLists(ManualClock(), volumes={"vol1": 100}))

    assert "ExpandVolume a: vol1: 1 of 100 GB free, 99 % used; expanding to 150 GB" in found.actions


async def test_a_killed_workers_jobs_go_back(store: MemoryStore) -> None:
    await active(store, "a")
    [job_id] = await store.queue.push(POOL, [NewJob(payload=1)])
    holder = (await store.workers.get(POOL, WorkerId("a"))).holder
    await store.queue.claim(ClaimRequest(pool_id=POOL, holder=holder, lease=seconds(600), limit=1))
    spawner = FakeSpawner(ManualClock())

    closed = await desk(store).kill("a", spawner)

    assert closed.status is WorkerStatus.TERMINATED
    job = await store.jobs.get(job_id)
    assert (job.status, job.attempts, job.crashes) == (JobStatus.PENDING, 0, 0)
    [attempt] = await store.jobs.attempts(job_id)
    assert (attempt.outcome, attempt.error) == (AttemptOutcome.RELEASED, "its worker was killed by hand")
    assert [call.verb for call in spawner.calls] == ["terminate"]
    with pytest.raises(InvalidInput, match="expected a live worker, got a, which is terminated"):
        await desk(store).kill("a", spawner)


async def test_a_kill_that_its_engine_refused_can_be_repeated_until_it_is_complete(store: MemoryStore) -> None:
    await active(store, "a")
    [job_id] = await store.queue.push(POOL, [NewJob(payload=1)])
    holder = (await store.workers.get(POOL, WorkerId("a"))).holder
    await store.queue.claim(ClaimRequest(pool_id=POOL, holder=holder, lease=seconds(600), limit=1))
    spawner = FakeSpawner(ManualClock(), [TerminateRefused()])
    with pytest.raises(SpawnError):
        await desk(store).kill("a", spawner)

    closed = await desk(store).kill("a", spawner)

    assert (closed.status, closed.meta.get("killing")) == (WorkerStatus.TERMINATED, None)
    assert [call.verb for call in spawner.calls] == ["terminate", "terminate"]
    assert [event.payload["reason"] for event in await store.events.read(POOL, 0, 100)][-1] == "killed by hand"
    assert (await store.jobs.get(job_id)).status is JobStatus.PENDING
    with pytest.raises(InvalidInput, match="expected a live worker, got a, which is terminated"):
        await desk(store).kill("a", spawner)


async def test_a_worker_that_ended_otherwise_is_not_killed(store: MemoryStore) -> None:
    await active(store, "a")
    row = await store.workers.get(POOL, WorkerId("a"))
    await store.workers.move(row, WorkerStatus.LOST, "it went silent")
    spawner = FakeSpawner(ManualClock())

    with pytest.raises(InvalidInput, match="expected a live worker, got a, which is lost"):
        await desk(store).kill("a", spawner)

    assert spawner.calls == []


@pytest.mark.parametrize("beats", [3, 100], ids=["a few heartbeats", "more than it is tried"])
async def test_a_heartbeat_does_not_save_a_worker_that_is_killed(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, beats: int
) -> None:
    await active(store, "a")
    read, left = store.workers.get, iter(range(beats))

    async def read_before_a_heartbeat(pool_id: PoolId, worker_id: WorkerId) -> Worker:
        row = await read(pool_id, worker_id)
        if row.is_live and next(left, None) is not None:
            await store.membership.beat(heartbeat(row))
        return row

    monkeypatch.setattr(store.workers, "get", read_before_a_heartbeat)
    killing = desk(store).kill("a", FakeSpawner(ManualClock()))

    if beats > 3:
        with pytest.raises(StaleWrite):
            await killing
    else:
        assert (await killing).status is WorkerStatus.TERMINATED


async def test_nobody_is_killed_by_another_provider_than_its_own(store: MemoryStore) -> None:
    await store.workers.add([Worker(pool_id=POOL, worker_id=WorkerId("a"), slot=0, provider="runpod")])
    spawner = FakeSpawner(ManualClock())

    with pytest.raises(SpawnError, match="--engine runpod"):
        await desk(store).kill("a", spawner)

    assert (await store.workers.get(POOL, WorkerId("a"))).is_live
    assert spawner.asked("terminate") == []


async def test_draining_by_hand_asks_once_and_only_who_is_there(store: MemoryStore) -> None:
    await active(store, "a")

    assert await desk(store).drain([]) == ["a"]
    assert await desk(store).drain(["a"]) == []
    with pytest.raises(NotFound, match="no live worker b in pool p"):
        await desk(store).drain(["b"])


async def test_spending_is_told_with_what_it_may_be(store: MemoryStore) -> None:
    await active(store, "a")

    found = await desk(store).spend(FakeSpawner(ManualClock()))

    assert (found.price_per_hour, found.burn_per_hour, found.max_per_day) == (3600.0, 3600.0, 1e6)
    assert found.spent.hour == pytest.approx(1.0), "one second is paid for at least"


async def test_without_beats_there_is_nothing_to_explain(store: MemoryStore) -> None:
    with pytest.raises(NotFound, match="no recorded beat of p; run one with: drumbeat fleet beat p"):
        await desk(store).explain()
    with pytest.raises(NotFound):
        await desk(store, "q").explain()
    assert (await desk(store).replay(seconds(60), {})).beats == 0


async def test_the_policy_is_the_pools(store: MemoryStore) -> None:
    assert (await desk(store).policy()).policy is PolicyName.LAG_AWARE
    assert replace(await desk(store).policy(), min_workers=1).min_workers == 1


async def test_draining_by_hand_within_no_time_is_within_no_time(store: MemoryStore) -> None:
    await active(store, "worker-0")

    await desk(store).drain([], seconds(0))

    assert (await store.workers.get(POOL, WorkerId("worker-0"))).drain_deadline == await store.now()


class Counting(MemoryBeats):
    """Counts how many views were read, and at once."""

    read = 0
    most = 0

    async def list(self, pool_id: PoolId, **which: Any) -> Sequence[Beat]:
        found = await super().list(pool_id, **which)
        Counting.read, Counting.most = Counting.read + len(found), max(Counting.most, len(found))
        return found


@pytest.fixture
def counted(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> type[Counting]:
    monkeypatch.setattr(store.beats, "__class__", Counting)
    Counting.read = Counting.most = 0
    return Counting


async def beats(store: MemoryStore, clock: ManualClock, count: int) -> None:
    seen = encode(await observe(store, FakeSpawner(clock), POOL, seconds(0)))
    for n in range(count):
        did = [{"type": "Spawn", "worker_id": f"w{n}", "reason": "so"}] if n % 10 == 0 else []
        await store.beats.append(POOL, NewBeat(owner="a", epoch=1, view={**seen, "last_number": n}, actions=did))
        await clock.advance(seconds(1))


async def test_a_beat_of_long_ago_is_explained_without_reading_the_others(
    clock: ManualClock, store: MemoryStore, counted: type[Counting]
) -> None:
    begun = await store.now()
    await beats(store, clock, 200)

    explained = await desk(store).explain(begun + seconds(20.5))

    assert explained.actions == ("Spawn w20: so",)
    assert counted.read == 0


async def test_deeds_are_read_without_what_was_seen(clock: ManualClock, store: MemoryStore, counted: type[Counting]) -> None:
    await beats(store, clock, 200)

    found = await desk(store).beats_with_actions(3)

    assert ([beat.n for beat in found], {beat.view is None for beat in found}) == ([171, 181, 191], {True})
    assert [beat.n for beat in await desk(store).beats_with_actions(50, since=seconds(30.5))] == [171, 181, 191]
    assert counted.read == 0


async def test_a_long_record_is_replayed_a_page_at_a_time(
    clock: ManualClock, store: MemoryStore, counted: type[Counting]
) -> None:
    await beats(store, clock, 200)

    replayed = await desk(store).replay(seconds(9999), {})

    assert (replayed.beats, replayed.same, len(replayed.differences), replayed.spawns_before) == (200, 180, 20, 20)
    assert counted.read == 200
    assert counted.most <= 50


@pytest.mark.parametrize(
    ("price", "ago", "is_read"),
    [
        pytest.param(3600.0, timedelta(days=40), False, id="what was paid for last month is not read again"),
        pytest.param(3600.0, timedelta(minutes=50), True, id="what is not settled is"),
        pytest.param(3600.0, timedelta(hours=30), False, id="what is settled is not"),
        pytest.param(None, timedelta(hours=20), False, id="nor who costs nothing"),
    ],
)
async def test_workers_gone_long_ago_are_not_read_and_their_names_not_used_again(
    clock: ManualClock, price: float | None, ago: timedelta, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, spawner = MemoryStore(clock), FakeSpawner(clock)
    await clock.advance(timedelta(days=9))
    policy = FleetPolicy(policy=PolicyName.QUEUE_COVER, min_workers=0, price_per_hour=price)
    await made.pools.create(pool(POOL, PoolKind.JOBS, **policy.to_json()))
    await active(made, "worker-7")
    first = await observe(made, spawner, POOL, seconds(0))
    await made.workers.move(await made.workers.get(POOL, WorkerId("worker-7")), WorkerStatus.LOST, "silent")
    await made.workers.mark_reaped(POOL, WorkerId("worker-7"))
    await made.beats.append(POOL, NewBeat(owner="a", epoch=1, view=encode(first)))
    await clock.advance(ago)
    second = await observe(made, spawner, POOL, seconds(0))
    assert [each.worker_id for each in second.workers] == ["worker-7"], "it tells how long a start takes"
    await made.beats.append(POOL, NewBeat(owner="b", epoch=2, view=encode(second)))
    await clock.advance(seconds(60))
    read: list[WorkerId] = []
    listing = made.workers.list

    async def listed(pool_id: PoolId, **which: Any) -> Sequence[Worker]:
        found = await listing(pool_id, **which)
        read.extend(each.worker_id for each in found)
        return found

    monkeypatch.setattr(made.workers, "list", listed)
    seen = await observe(made, spawner, POOL, seconds(0))

    assert (seen.last_number, read) == (7, ["worker-7"] if is_read else [])
    assert [each.worker_id for each in seen.workers] == ["worker-7"]


async def test_of_two_beats_at_one_moment_the_later_is_the_last(store: MemoryStore) -> None:
    """A store's clock may show whole milliseconds; here it stands still."""
    failed = await store.beats.append(POOL, NewBeat(owner="a", epoch=1, view=None, error="observe: no answer"))
    checks = [NewBeat(owner="a", epoch=1, view=None, summary={"kind": CHECK})] * 2
    assert {(await store.beats.append(POOL, each)).at for each in checks} == {failed.at}

    assert await desk(store).last_beat() == failed
