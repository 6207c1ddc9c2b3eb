"""What a fleet's controller sees, and since when it has been looking."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.beat import NewBeat
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy, FleetView, ListedInstance, Spending
from drumbeat.fleet.observe import observe
from drumbeat.runtime.beat import encode
from drumbeat.spawn.fake import FakeSpawner, ListFails, StartDelayed
from drumbeat.spawn.interface import Order
from drumbeat.store.interface import PoolChange
from drumbeat.store.memory import MemoryStore
from fleet.given import LIMITS, POOL, seconds

NO_GAP = timedelta()


class Watched:
    """A pool, and a controller's eyes on it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.spawner = FakeSpawner(self.clock)

    async def look(self, gap: timedelta = NO_GAP) -> FleetView:
        return await observe(self.store, self.spawner, POOL, gap)

    async def beat(self, gap: timedelta = NO_GAP) -> FleetView:
        """Look, and keep what was seen as a beat does."""
        seen = await self.look(gap)
        await self.store.beats.append(POOL, NewBeat(owner="a", epoch=1, view=encode(seen)))
        return seen

    async def fail(self) -> None:
        """A beat that saw nothing."""
        await self.store.beats.append(POOL, NewBeat(owner="a", epoch=1, view=None, error="observe: no answer"))

    async def passes(self, number: float) -> None:
        await self.clock.advance(seconds(number))


@pytest.fixture
async def watched() -> Watched:
    watched = Watched()
    await watched.store.pools.create(pool(POOL, PoolKind.FLEET, **FleetPolicy(workers=2, target=3).to_json()))
    return watched


async def test_a_view_holds_rows_instances_policy_and_time(watched: Watched) -> None:
    row = Worker(pool_id=POOL, worker_id=WorkerId("worker-0"), slot=0)
    await watched.store.workers.add([row])
    await watched.spawner.spawn(Order(pool_id=POOL, worker_id=WorkerId("worker-0"), slot=0, group_count=1))
    await watched.passes(5)

    seen = await watched.look()

    assert (seen.pool_id, seen.now, seen.thresholds) == (POOL, watched.clock.now(), LIMITS)
    assert seen.policy == FleetPolicy(workers=2, target=3)
    assert seen.workers == tuple(await watched.store.workers.list(POOL))
    assert seen.instances == (ListedInstance(worker_id=WorkerId("worker-0"), running=True),)


@pytest.mark.parametrize("unique", [True, False])
async def test_where_two_may_have_one_name_an_instance_its_row_does_not_know_of_is_told(
    watched: Watched, unique: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSpawner, "traits", replace(watched.spawner.traits, unique_names=unique))
    name = WorkerId("worker-0")
    await watched.store.workers.add([Worker(pool_id=POOL, worker_id=name, slot=0)])
    made = await watched.spawner.spawn(Order(pool_id=POOL, worker_id=name, slot=0, group_count=1))

    assert (await watched.look()).unnoted == ({} if unique else {name: made.ref})


async def test_a_pending_instance_counts_as_running_and_one_that_is_over_shows_its_code(watched: Watched) -> None:
    watched.spawner.faults.append(StartDelayed(by=seconds(60), worker_id=WorkerId("slow")))
    for name in ("slow", "dead"):
        await watched.spawner.spawn(Order(pool_id=POOL, worker_id=WorkerId(name), slot=0, group_count=1))
    watched.spawner.end(POOL, WorkerId("dead"), exit_code=4)

    assert (await watched.look()).instances == (
        ListedInstance(worker_id=WorkerId("slow"), running=True),
        ListedInstance(worker_id=WorkerId("dead"), running=False, exit_code=4),
    )


async def test_the_pause_is_in_the_view(watched: Watched) -> None:
    until = watched.clock.now() + seconds(60)
    assert (await watched.look()).paused_until is None

    await watched.store.pools.change(POOL, PoolChange(paused_until=until))

    assert (await watched.look()).paused_until == until


async def test_a_provider_that_does_not_answer_is_not_an_empty_one(watched: Watched) -> None:
    watched.spawner.faults.append(ListFails())

    assert (await watched.look()).instances_partial
    assert not (await watched.look()).instances_partial


async def test_a_pool_that_is_not_there_cannot_be_seen(watched: Watched) -> None:
    with pytest.raises(NotFound):
        await observe(watched.store, watched.spawner, PoolId("nobody-made"), NO_GAP)


async def test_the_pool_of_a_run_is_its_orchestrators_to_watch(watched: Watched) -> None:
    await watched.store.pools.create(pool("run-1", PoolKind.BENCH, LIMITS))

    with pytest.raises(InvalidInput, match="got the benchmark run"):
        await observe(watched.store, watched.spawner, PoolId("run-1"), seconds(0))


async def test_the_highest_name_is_known_though_its_row_is_gone(watched: Watched) -> None:
    await watched.store.workers.add([Worker(pool_id=POOL, worker_id=WorkerId("worker-7"), slot=0)])
    await watched.beat()
    row = await watched.store.workers.get(POOL, WorkerId("worker-7"))
    await watched.store.workers.move(row, WorkerStatus.TERMINATED, "no longer needed")
    await watched.store.workers.mark_reaped(POOL, row.worker_id)
    await watched.passes(100 * 24 * 3600)
    await watched.store.upkeep.prune(timedelta(days=1))

    seen = await watched.look()

    assert (seen.workers, seen.last_number) == ((), 7)


LATER = "2100-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "row",
    [
        {"ready_at": "2026-01-01T00:00:00Z", "reaped_at": "2026-01-01T00:00:00Z", "worker_id": "w"},
        {"ready_at": "2026-01-01T00:00:00Z", "reaped_at": "2026-01-01T00:00:00Z"},
        {"ready_at": "soon", "reaped_at": "2026-01-01T00:00:00Z", "worker_id": "w"},
    ],
    ids=["fields are missing", "no name", "no time"],
)
async def test_workers_of_the_last_beat_that_cannot_be_read_are_left_out(
    watched: Watched, row: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    kept = encode(await watched.look())
    await watched.store.beats.append(POOL, NewBeat(owner="a", epoch=1, view={**kept, "workers": [row]}))

    seen = await watched.look()

    assert "w" not in {worker.worker_id for worker in seen.workers}
    assert "failed to read the workers of the last beat" in caplog.text


@pytest.mark.parametrize(
    ("change", "is_added_up_again"),
    [
        (lambda settled: settled, False),
        (lambda settled: None, True),
        (lambda settled: {"spent": 1}, True),
        (lambda settled: settled | {"at": LATER}, True),
        (lambda settled: settled | {"rates": settled["rates"] | {"price": 1.5}}, True),
        (lambda settled: settled | {"rates": settled["rates"] | {"granule": "PT60S"}}, True),
        (lambda settled: settled | {"rates": settled["rates"] | {"unpriced": 1.5}}, True),
    ],
    ids=["as it is", "an earlier version's beat", "unreadable", "the clock went back", "price", "granule", "unpriced"],
)
async def test_money_is_added_up_again_if_what_the_last_beat_settled_does_not_hold(
    watched: Watched, change: Callable[[Any], Any], is_added_up_again: bool
) -> None:
    policy = FleetPolicy(workers=0, price_per_hour=3600.0, billing_granule=seconds(10))
    await watched.store.pools.change(POOL, PoolChange(policy=policy.to_json()))
    await watched.store.workers.add([Worker(pool_id=POOL, worker_id=WorkerId("worker-0"), slot=0)])
    row = await watched.store.workers.get(POOL, WorkerId("worker-0"))
    await watched.store.workers.move(row, WorkerStatus.TERMINATED, "no longer needed")
    await watched.store.workers.mark_reaped(POOL, row.worker_id)
    await watched.passes(2 * 3600)
    seen = await watched.look()
    assert seen.settled is not None
    kept = encode(seen)
    await watched.store.beats.append(POOL, NewBeat(owner="a", epoch=1, view={**kept, "settled": change(kept["settled"])}))
    await watched.passes(60)
    read: list[int] = []
    listing = watched.store.workers.list

    async def listed(pool_id: PoolId, **which: Any) -> Sequence[Worker]:
        found = await listing(pool_id, **which)
        read.append(len(found))
        return found

    watched.store.workers.list = listed  # type: ignore[method-assign]
    again = await watched.look()

    assert (again.spent, again.settled and again.settled.spent) == (Spending(hour=0, day=10, month=10),) * 2
    assert read == [int(is_added_up_again)]


async def test_the_first_look_begins_now(watched: Watched) -> None:
    assert (await watched.look()).looking_since == watched.clock.now()


async def test_looking_goes_on_from_beat_to_beat(watched: Watched) -> None:
    began = (await watched.beat()).looking_since
    for _ in range(20):
        await watched.passes(30)
        await watched.beat()
    seen = await watched.look()

    assert seen.looking_since == began
    assert seen.now - began == seconds(600)


@pytest.mark.parametrize(
    ("passed", "gap", "goes_on"),
    [
        (LIMITS.stale_after, NO_GAP, True),
        (LIMITS.stale_after + seconds(1), NO_GAP, False),
        (seconds(1), LIMITS.stale_after, True),
        (seconds(1), LIMITS.stale_after + seconds(1), False),
    ],
    ids=["a beat just in time", "nobody beat for too long", "cut off for a moment", "cut off itself for too long"],
)
async def test_whoever_was_cut_off_starts_looking_afresh(
    watched: Watched, passed: timedelta, gap: timedelta, goes_on: bool
) -> None:
    began = (await watched.beat()).looking_since
    await watched.clock.advance(passed)

    since = (await watched.look(gap)).looking_since

    assert since == (began if goes_on else watched.clock.now())


async def test_another_controllers_beats_are_looks_too(watched: Watched) -> None:
    began = (await watched.beat()).looking_since
    await watched.passes(10)

    successor = await observe(watched.store, FakeSpawner(watched.clock), POOL, NO_GAP)

    assert successor.looking_since == began


async def test_a_beat_that_saw_nothing_does_not_end_a_look(watched: Watched) -> None:
    began = (await watched.beat()).looking_since
    for _ in range(3):
        await watched.passes(15)
        await watched.fail()

    assert (await watched.look()).looking_since == began


async def test_beats_that_saw_nothing_for_too_long_do(watched: Watched) -> None:
    await watched.beat()
    for _ in range(5):
        await watched.passes(15)
        await watched.fail()

    assert (await watched.look()).looking_since == watched.clock.now()
