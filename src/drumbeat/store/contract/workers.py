"""Tests of a controller's reads and writes about workers."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.errors import AlreadyExists, Fenced, IllegalMove, NotFound, StaleWrite
from drumbeat.core.event import EventType, Scope
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.worker import TERMINAL, Worker, WorkerId, WorkerStatus
from drumbeat.store.contract.counting import EndedWorkersContract
from drumbeat.store.contract.directions import DrainContract, NoteContract, ReapContract, TargetsContract
from drumbeat.store.contract.given import (
    AWKWARD,
    MINUTE,
    SECOND,
    W1,
    W2,
    W3,
    Elapse,
    Given,
    active,
    added,
    event_types,
    heartbeat,
    joined,
    lost,
    moved,
    moves,
    new_pool,
    outdated,
    worker_row,
)
from drumbeat.store.interface import Store, WorkerChange


class AddContract(Given):
    async def test_a_row_exists_before_its_process(self, store: Store, pool: PoolRow) -> None:
        before = await store.now()
        fields: dict[str, Any] = {"provider": "local", "provider_ref": "pod-1", "capabilities": ("gpu", "ssd"), "target": 5}
        fields["meta"] = AWKWARD
        await store.workers.add([worker_row(pool, W1, 3, **fields)])

        row = await store.workers.get(pool.pool_id, W1)

        assert row.created_at is not None
        assert before <= row.created_at <= await store.now()
        assert row == worker_row(pool, W1, 3, **fields, created_at=row.created_at)

    async def test_a_new_row_has_no_heartbeat_even_if_one_is_given(self, store: Store, pool: PoolRow) -> None:
        fields: dict[str, Any] = {"status": WorkerStatus.ACTIVE, "instance": "i9", "heartbeat_count": 9}
        await store.workers.add([worker_row(pool, W1, heartbeat_at=await store.now(), **fields)])

        row = await store.workers.get(pool.pool_id, W1)

        assert (row.status, row.instance, row.heartbeat_at, row.heartbeat_count) == (WorkerStatus.SPAWNING, None, None, 0)

    async def test_each_new_row_writes_an_event(self, store: Store, pool: PoolRow) -> None:
        await added(store, pool, W1, W2)

        events = await store.events.read(pool.pool_id, 0)

        assert [(event.type, event.scope) for event in events] == [(EventType.WORKER_MOVED, Scope.RUN)] * 2
        asked = {"from": None, "to": "spawning", "reason": "asked for"}
        assert [event.payload for event in events] == [
            {"worker_id": "w1", "worker_group_id": 0, **asked},
            {"worker_id": "w2", "worker_group_id": 1, **asked},
        ]

    async def test_a_name_is_given_once(self, store: Store, pool: PoolRow) -> None:
        first = await added(store, pool, W1)

        with pytest.raises(AlreadyExists, match="w1"):
            await store.workers.add([worker_row(pool, W2), worker_row(pool, W1, slot=7)])

        assert await store.workers.list(pool.pool_id) == [first]
        assert len(await event_types(store, pool.pool_id)) == 1

    async def test_a_name_is_not_given_twice_at_once(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(AlreadyExists):
            await store.workers.add([worker_row(pool, W1), worker_row(pool, W1)])

        assert await store.workers.list(pool.pool_id) == []

    async def test_only_one_of_several_concurrent_adds_of_a_worker_succeeds(self, store: Store, pool: PoolRow) -> None:
        adding = (store.workers.add([worker_row(pool, W1)]) for _ in range(8))

        answers = await asyncio.gather(*adding, return_exceptions=True)

        assert sum(answer is None for answer in answers) == 1
        assert len(await event_types(store, pool.pool_id)) == 1

    async def test_the_name_of_an_ended_worker_is_not_given_again(self, store: Store, pool: PoolRow) -> None:
        ended = await lost(store, pool)

        with pytest.raises(AlreadyExists):
            await store.workers.add([worker_row(pool, W1)])

        assert await store.workers.get(pool.pool_id, W1) == ended

    async def test_one_name_in_two_pools_is_two_workers(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        await active(store, pool, W1)
        await added(store, other, W1)

        assert (await store.workers.get(pool.pool_id, W1)).status is WorkerStatus.ACTIVE
        assert (await store.workers.get(other.pool_id, W1)).status is WorkerStatus.SPAWNING

    async def test_adding_no_workers_writes_nothing(self, store: Store, pool: PoolRow) -> None:
        await store.workers.add([])

        assert await event_types(store, pool.pool_id) == []

    async def test_a_worker_needs_a_pool(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(NotFound):
            await store.workers.add([worker_row(pool, W1), worker_row(new_pool(), W2)])

        assert await store.workers.list(pool.pool_id) == []

    async def test_the_holder_of_the_lease_may_add(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        await store.workers.add([worker_row(pool)], fence=lease.fence)

        assert len(await store.workers.list(pool.pool_id)) == 1

    async def test_an_outdated_controller_adds_nobody(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        with pytest.raises(Fenced):
            await store.workers.add([worker_row(pool)], fence=await outdated(store, lease))

        assert await store.workers.list(pool.pool_id) == []
        assert await event_types(store, pool.pool_id) == []


class WorkerListContract(Given):
    async def test_an_unknown_worker_is_not_got(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(NotFound, match="w1"):
            await store.workers.get(pool.pool_id, W1)
        with pytest.raises(NotFound):
            await store.workers.get(PoolId("pool-nobody-made"), W1)

    async def test_workers_are_listed_by_slot_then_age(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        for name, slot in [("c", 1), ("b", 0), ("a", 1), ("d", 0)]:
            await store.workers.add([worker_row(pool, WorkerId(name), slot)])
            await elapse(SECOND)

        assert [worker.worker_id for worker in await store.workers.list(pool.pool_id)] == ["b", "d", "c", "a"]

    async def test_only_the_live_are_listed_if_asked(self, store: Store, pool: PoolRow) -> None:
        await lost(store, pool, W1)
        await moved(store, await active(store, pool, W2), WorkerStatus.DRAINING)
        await added(store, pool, W3)

        assert {worker.worker_id for worker in await store.workers.list(pool.pool_id)} == {W1, W2, W3}
        assert {worker.worker_id for worker in await store.workers.list(pool.pool_id, live=True)} == {W2, W3}

    async def test_a_pool_nobody_made_has_no_workers(self, store: Store, pool: PoolRow) -> None:
        await joined(store, pool)

        assert await store.workers.list(PoolId("pool-nobody-made")) == []


class MoveContract(Given):
    async def test_a_move_is_stored_and_writes_an_event(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        before = await store.now()

        after = await store.workers.move(
            worker, WorkerStatus.LOST, "silent for 61 s", WorkerChange(exit_code=-9, error="killed")
        )

        assert after.ended_at is not None
        assert before <= after.ended_at <= await store.now()
        ended: dict[str, Any] = {"status": WorkerStatus.LOST, "exit_code": -9, "error": "killed", "ended_at": after.ended_at}
        assert after == await store.workers.get(pool.pool_id, W1) == replace(worker, **ended)
        assert (await moves(store, pool.pool_id))[-1] == {
            "worker_id": "w1",
            "worker_group_id": 0,
            "from": "active",
            "to": "lost",
            "reason": "silent for 61 s",
            "exit_code": -9,
            "error": "killed",
        }

    async def test_unchanged_fields_are_neither_overwritten_nor_in_the_event(self, store: Store, pool: PoolRow) -> None:
        await store.workers.add([worker_row(pool, provider_ref="pod-1", meta={"zone": "a"})])
        worker = await store.workers.get(pool.pool_id, W1)

        after = await store.workers.move(worker, WorkerStatus.ERROR, "it said so")

        assert (after.provider_ref, after.meta, after.exit_code, after.error) == ("pod-1", {"zone": "a"}, None, None)
        assert (await moves(store, pool.pool_id))[-1].keys() == {"worker_id", "worker_group_id", "from", "to", "reason"}

    async def test_reference_and_notes_may_change_with_a_move(self, store: Store, pool: PoolRow) -> None:
        worker = await added(store, pool)

        after = await store.workers.move(worker, WorkerStatus.STARTING, "up", WorkerChange(provider_ref="pod-2", meta=AWKWARD))

        assert (after.provider_ref, after.meta) == ("pod-2", AWKWARD)
        assert await store.workers.get(pool.pool_id, W1) == after

    async def test_notes_join_those_that_are_there(self, store: Store, pool: PoolRow) -> None:
        await store.workers.add([worker_row(pool, meta={"zone": "a", "tries": 1, **AWKWARD})])
        worker = await store.workers.get(pool.pool_id, W1)

        worker = await store.workers.move(
            worker, WorkerStatus.STARTING, "up", WorkerChange(meta={"tries": 2, "node": {"n": []}})
        )
        worker = await store.workers.move(worker, WorkerStatus.WAITING, "ready", WorkerChange(meta={}))
        after = await store.workers.move(worker, WorkerStatus.LOST, "silent", WorkerChange(meta={"tries": 3}))

        assert after.meta == {**AWKWARD, "zone": "a", "tries": 3, "node": {"n": []}}
        assert await store.workers.get(pool.pool_id, W1) == after

    async def test_the_move_to_waiting_is_stamped_as_ready(self, store: Store, pool: PoolRow) -> None:
        worker = await joined(store, pool)
        before = await store.now()

        after = await store.workers.move(worker, WorkerStatus.WAITING, "ready")

        assert worker.ready_at is None
        assert after.ready_at is not None
        assert before <= after.ready_at <= await store.now()
        assert after.ended_at is None

    async def test_a_later_move_leaves_the_stamp_of_an_earlier_one(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        worker = await moved(store, await joined(store, pool), WorkerStatus.WAITING)
        await elapse(5 * MINUTE)

        after = await store.workers.move(worker, WorkerStatus.LOST, "silent")

        assert after.ready_at is not None
        assert after.ended_at is not None
        assert after.ended_at - after.ready_at >= 5 * MINUTE

    async def test_a_move_leaves_what_an_earlier_one_said(self, store: Store, pool: PoolRow) -> None:
        worker = await joined(store, pool)
        change = WorkerChange(exit_code=3, error="out of disk")
        draining = await store.workers.move(worker, WorkerStatus.DRAINING, "ill", change)

        after = await store.workers.move(draining, WorkerStatus.LOST, "silent")

        assert (after.exit_code, after.error) == (3, "out of disk")

    @pytest.mark.parametrize("end", sorted(TERMINAL))
    async def test_an_ended_worker_never_moves_again(self, store: Store, pool: PoolRow, end: WorkerStatus) -> None:
        ended = await store.workers.move(await active(store, pool), end, "over")

        for to in WorkerStatus:
            with pytest.raises(IllegalMove, match="w1"):
                await store.workers.move(ended, to, "once more")

        assert await store.workers.get(pool.pool_id, W1) == ended

    async def test_an_illegal_move_changes_nothing(self, store: Store, pool: PoolRow) -> None:
        worker = await added(store, pool)

        with pytest.raises(IllegalMove, match="spawning"):
            await store.workers.move(worker, WorkerStatus.ACTIVE, "in haste", WorkerChange(error="spoiled"))

        assert await store.workers.get(pool.pool_id, W1) == worker
        assert len(await event_types(store, pool.pool_id)) == 1

    async def test_a_worker_that_has_beaten_since_is_not_moved(self, store: Store, pool: PoolRow) -> None:
        before = await active(store, pool)
        await store.membership.beat(heartbeat(before))
        events = await event_types(store, pool.pool_id)

        with pytest.raises(StaleWrite, match="w1"):
            await store.workers.move(before, WorkerStatus.LOST, "silent")

        assert (await store.workers.get(pool.pool_id, W1)).status is WorkerStatus.ACTIVE
        assert await event_types(store, pool.pool_id) == events

    async def test_a_worker_that_has_moved_since_is_not_moved(self, store: Store, pool: PoolRow) -> None:
        before = await active(store, pool)
        draining = await moved(store, before, WorkerStatus.DRAINING)

        with pytest.raises(StaleWrite):
            await store.workers.move(before, WorkerStatus.LOST, "silent")

        assert await store.workers.get(pool.pool_id, W1) == draining

    async def test_a_stale_and_illegal_move_is_reported_as_stale(self, store: Store, pool: PoolRow) -> None:
        before = await active(store, pool)
        await store.workers.move(before, WorkerStatus.LOST, "silent")

        with pytest.raises(StaleWrite):
            await store.workers.move(before, WorkerStatus.WAITING, "back")

    async def test_of_many_moves_of_one_worker_one_wins(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        ends = sorted(TERMINAL) * 4

        answers = await asyncio.gather(
            *(store.workers.move(worker, to, f"try {n}") for n, to in enumerate(ends)), return_exceptions=True
        )

        [winner] = [answer for answer in answers if isinstance(answer, Worker)]
        assert sum(isinstance(answer, StaleWrite) for answer in answers) == len(ends) - 1
        assert await store.workers.get(pool.pool_id, W1) == winner
        assert [move["to"] for move in await moves(store, pool.pool_id)][3:] == [winner.status]

    async def test_an_unknown_worker_is_not_moved(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(NotFound):
            await store.workers.move(worker_row(pool), WorkerStatus.LOST, "silent")

    async def test_the_holder_of_the_lease_may_move(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        after = await store.workers.move(await added(store, pool), WorkerStatus.LOST, "never came", fence=lease.fence)

        assert after.status is WorkerStatus.LOST

    async def test_an_outdated_controller_moves_nobody(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        worker = await added(store, pool)

        with pytest.raises(Fenced):
            await store.workers.move(worker, WorkerStatus.LOST, "silent", fence=await outdated(store, lease))

        assert await store.workers.get(pool.pool_id, W1) == worker
        assert len(await event_types(store, pool.pool_id)) == 1


class WorkersContract(
    AddContract,
    WorkerListContract,
    MoveContract,
    TargetsContract,
    DrainContract,
    NoteContract,
    ReapContract,
    EndedWorkersContract,
):
    """All tests of a controller's reads and writes about workers."""
