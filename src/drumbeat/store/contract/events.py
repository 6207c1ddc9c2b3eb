"""Tests of events: the numbered instructions and records in a pool's log."""

import asyncio
from typing import Any

import pytest

from drumbeat.core.errors import Fenced, NotFound
from drumbeat.core.event import Event, NewEvent, Scope, set_phase, start, stop
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.store.contract.given import AWKWARD, W2, Given, added, event_types, new_pool, outdated, taken
from drumbeat.store.interface import BATCH, Store


def numbered(many: int) -> list[NewEvent]:
    return [NewEvent(type="COUNT", payload={"n": n}) for n in range(1, many + 1)]


async def read_to_the_end(store: Store, pool_id: PoolId, limit: int = BATCH) -> list[Event]:
    """Return every event of the pool, read in batches as a worker reads them."""
    read: list[Event] = []
    while batch := await store.events.read(pool_id, read[-1].sequence_id if read else 0, limit):
        read.extend(batch)
    return read


class EventsContract(Given):
    async def test_events_are_numbered_from_one_in_their_order(self, store: Store, pool: PoolRow) -> None:
        stored = [
            *await store.events.append(pool.pool_id, [start(2), set_phase("WARMUP")]),
            *await store.events.append(pool.pool_id, [stop("enough")]),
        ]

        assert [(event.sequence_id, event.type) for event in stored] == [(1, "START"), (2, "SET_PHASE"), (3, "STOP")]
        assert await store.events.read(pool.pool_id, 0) == stored

    async def test_events_are_stamped_by_the_store(self, store: Store, pool: PoolRow) -> None:
        before = await store.now()
        [event] = await store.events.append(pool.pool_id, [start(1)])

        assert before <= event.created_at <= await store.now()
        assert event.pool_id == pool.pool_id

    @pytest.mark.parametrize("payload", [{}, AWKWARD, {"text": "x" * 100_000}], ids=["empty", "awkward", "large"])
    async def test_a_payload_comes_back_as_it_was(self, store: Store, pool: PoolRow, payload: dict[str, Any]) -> None:
        await store.events.append(pool.pool_id, [NewEvent(type="ANYTHING", payload=payload)])

        [event] = await store.events.read(pool.pool_id, 0)

        assert event.payload == payload

    async def test_what_the_caller_changes_later_is_not_changed_in_the_store(self, store: Store, pool: PoolRow) -> None:
        payload = {"list": [1]}
        await store.events.append(pool.pool_id, [NewEvent(type="ANYTHING", payload=payload)])

        payload["list"].append(2)

        [event] = await store.events.read(pool.pool_id, 0)
        assert event.payload == {"list": [1]}

    async def test_events_of_every_scope_are_brought(self, store: Store, pool: PoolRow) -> None:
        scoped = [
            NewEvent(type="ANYTHING"),
            NewEvent(type="ANYTHING", scope=Scope.WORKER_GROUP, slot=3),
            NewEvent(type="ANYTHING", scope=Scope.WORKER, worker_id=W2),
        ]
        await store.events.append(pool.pool_id, scoped)

        read = await store.events.read(pool.pool_id, 0)

        assert [(event.scope, event.slot, event.worker_id) for event in read] == [
            (Scope.RUN, None, None),
            (Scope.WORKER_GROUP, 3, None),
            (Scope.WORKER, None, W2),
        ]

    async def test_an_event_of_a_type_nobody_knows_is_kept(self, store: Store, pool: PoolRow) -> None:
        await store.events.append(pool.pool_id, [NewEvent(type="FROM_THE_FUTURE")])

        assert await event_types(store, pool.pool_id) == [(1, "FROM_THE_FUTURE")]

    async def test_reading_goes_on_after_what_was_read(self, store: Store, pool: PoolRow) -> None:
        await store.events.append(pool.pool_id, numbered(5))

        assert [event.sequence_id for event in await store.events.read(pool.pool_id, 3)] == [4, 5]
        assert await store.events.read(pool.pool_id, 5) == []
        assert await store.events.read(pool.pool_id, 99) == []

    async def test_reading_brings_no_more_than_asked_for(self, store: Store, pool: PoolRow) -> None:
        await store.events.append(pool.pool_id, numbered(5))

        assert [event.sequence_id for event in await store.events.read(pool.pool_id, 1, limit=2)] == [2, 3]

    async def test_many_events_come_in_batches_of_a_hundred(self, store: Store, pool: PoolRow) -> None:
        await store.events.append(pool.pool_id, numbered(250))

        batches = [await store.events.read(pool.pool_id, after) for after in (0, 100, 200, 250)]

        assert [len(batch) for batch in batches] == [100, 100, 50, 0]
        assert [event.payload["n"] for batch in batches for event in batch] == list(range(1, 251))

    async def test_each_pool_has_its_own_numbers(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        await store.events.append(pool.pool_id, [start(1), start(2)])
        await store.events.append(other.pool_id, [stop("no")])

        assert await event_types(store, pool.pool_id) == [(1, "START"), (2, "START")]
        assert await event_types(store, other.pool_id) == [(1, "STOP")]

    async def test_events_and_moves_share_one_sequence(self, store: Store, pool: PoolRow) -> None:
        await store.events.append(pool.pool_id, [start(1)])
        await added(store, pool)
        await store.events.append(pool.pool_id, [stop("enough")])

        assert await event_types(store, pool.pool_id) == [(1, "START"), (2, "WORKER_MOVED"), (3, "STOP")]

    async def test_events_written_at_once_leave_no_gap(self, store: Store, pool: PoolRow) -> None:
        answers = await asyncio.gather(*(store.events.append(pool.pool_id, numbered(3)) for _ in range(40)))

        read = await read_to_the_end(store, pool.pool_id)

        assert [event.sequence_id for event in read] == list(range(1, 121))
        assert sorted(event.sequence_id for answer in answers for event in answer) == list(range(1, 121))

    async def test_events_written_together_stay_together(self, store: Store, pool: PoolRow) -> None:
        await asyncio.gather(*(store.events.append(pool.pool_id, numbered(3)) for _ in range(20)))

        assert [event.payload["n"] for event in await read_to_the_end(store, pool.pool_id)] == [1, 2, 3] * 20

    async def test_reading_while_others_write_misses_no_event(self, store: Store, pool: PoolRow) -> None:
        async def write() -> None:
            for event in numbered(20):
                await store.events.append(pool.pool_id, [event])

        async def follow() -> list[int]:
            numbers: list[int] = []
            while len(numbers) < 80:
                numbers.extend(event.sequence_id for event in await store.events.read(pool.pool_id, len(numbers), 7))
                await asyncio.sleep(0)
            return numbers

        *_, one, other = await asyncio.gather(*(write() for _ in range(4)), follow(), follow())

        assert one == other == list(range(1, 81))

    async def test_appending_no_events_adds_nothing(self, store: Store, pool: PoolRow) -> None:
        assert await store.events.append(pool.pool_id, []) == []
        assert await event_types(store, pool.pool_id) == []

    async def test_events_need_a_pool(self, store: Store) -> None:
        with pytest.raises(NotFound, match="pool-nobody-made"):
            await store.events.append(PoolId("pool-nobody-made"), [start(1)])

        assert await store.events.read(PoolId("pool-nobody-made"), 0) == []

    async def test_the_holder_of_the_lease_may_write_events(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        await store.events.append(pool.pool_id, [start(1)], fence=lease.fence)

        assert await event_types(store, pool.pool_id) == [(1, "START")]

    async def test_an_outdated_controller_writes_no_event(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        with pytest.raises(Fenced):
            await store.events.append(pool.pool_id, [start(1)], fence=await outdated(store, lease))

        await store.events.append(pool.pool_id, [stop("enough")])
        assert await event_types(store, pool.pool_id) == [(1, "STOP")]

    async def test_of_two_controllers_only_the_newer_writes(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        await store.leases.release(lease)
        newer = await taken(store, pool.pool_id, owner="b")

        fences = [lease.fence, newer.fence] * 10
        answers = await asyncio.gather(
            *(store.events.append(pool.pool_id, [start(fence.epoch)], fence=fence) for fence in fences),
            return_exceptions=True,
        )

        assert sum(isinstance(answer, Fenced) for answer in answers) == 10
        assert [event.payload["expected_workers"] for event in await read_to_the_end(store, pool.pool_id)] == [newer.epoch] * 10
