"""Tests of a controller's writes about its workers: targets, drain requests, instances, and instances confirmed gone."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from drumbeat.core.errors import Fenced, NotFound, StaleWrite
from drumbeat.core.event import EventType, Scope, WorkerTarget
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.contract.given import (
    MINUTE,
    W1,
    W2,
    W3,
    Elapse,
    Given,
    active,
    added,
    event_types,
    joined,
    lost,
    outdated,
    worker_row,
)
from drumbeat.store.interface import Store


class TargetsContract(Given):
    async def test_targets_are_set_together_with_their_events(self, store: Store, pool: PoolRow) -> None:
        await added(store, pool, W1, W2)
        first = WorkerTarget(connections=20, reason="step 2", ramp=timedelta(seconds=2.5), step_id="s2")

        events = await store.workers.set_targets(pool.pool_id, {W2: first, W1: WorkerTarget(connections=5, reason="back off")})

        assert events == (await store.events.read(pool.pool_id, 0))[2:]
        assert [(event.type, event.scope, event.worker_id, event.payload) for event in events] == [
            (
                EventType.SET_WORKER_TARGET,
                Scope.WORKER,
                W2,
                {"target_connections": 20, "reason": "step 2", "ramp_seconds": 2.5, "step_id": "s2"},
            ),
            (EventType.SET_WORKER_TARGET, Scope.WORKER, W1, {"target_connections": 5, "reason": "back off"}),
        ]
        rows = await store.workers.list(pool.pool_id)
        assert [(row.worker_id, row.target, row.target_seq) for row in rows] == [(W1, 5, 4), (W2, 20, 3)]

    async def test_a_later_target_replaces_an_earlier_one(self, store: Store, pool: PoolRow) -> None:
        await added(store, pool)
        for connections in (5, 0):
            await store.workers.set_targets(pool.pool_id, {W1: WorkerTarget(connections=connections, reason="so")})

        row = await store.workers.get(pool.pool_id, W1)

        assert (row.target, row.target_seq) == (0, 3)

    async def test_row_and_event_agree_when_targets_are_set_at_once(self, store: Store, pool: PoolRow) -> None:
        await added(store, pool)
        setting = (store.workers.set_targets(pool.pool_id, {W1: WorkerTarget(connections=n, reason="so")}) for n in range(12))

        await asyncio.gather(*setting)

        row = await store.workers.get(pool.pool_id, W1)
        last = (await store.events.read(pool.pool_id, 0))[-1]
        assert (row.target, row.target_seq) == (last.payload["target_connections"], 13)

    @pytest.mark.parametrize("other", ["ended", "unknown"])
    async def test_a_target_for_a_worker_that_is_not_live_sets_no_target(self, store: Store, pool: PoolRow, other: str) -> None:
        worker = await added(store, pool, W1)
        if other == "ended":
            await lost(store, pool, W2)
        events = await event_types(store, pool.pool_id)

        with pytest.raises(NotFound, match="w2"):
            await store.workers.set_targets(pool.pool_id, dict.fromkeys((W1, W2), WorkerTarget(connections=5, reason="so")))

        assert await store.workers.get(pool.pool_id, W1) == worker
        assert await event_types(store, pool.pool_id) == events

    async def test_setting_no_targets_writes_nothing(self, store: Store, pool: PoolRow) -> None:
        assert await store.workers.set_targets(pool.pool_id, {}) == []

    async def test_the_holder_of_the_lease_may_set_targets(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        await added(store, pool)

        await store.workers.set_targets(pool.pool_id, {W1: WorkerTarget(connections=5, reason="so")}, fence=lease.fence)

        assert (await store.workers.get(pool.pool_id, W1)).target == 5

    async def test_an_outdated_controller_sets_no_target(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        worker = await added(store, pool)
        fence = await outdated(store, lease)

        with pytest.raises(Fenced):
            await store.workers.set_targets(pool.pool_id, {W1: WorkerTarget(connections=5, reason="so")}, fence=fence)

        assert await store.workers.get(pool.pool_id, W1) == worker
        assert len(await event_types(store, pool.pool_id)) == 1


class DrainContract(Given):
    async def test_workers_reaped_before_a_time_can_be_left_out(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        for worker_id in (W1, W2):
            await lost(store, pool, worker_id)
        await store.workers.mark_reaped(pool.pool_id, W1)
        await elapse(10 * MINUTE)
        await lost(store, pool, W3)
        await store.workers.mark_reaped(pool.pool_id, W3)
        await active(store, pool, WorkerId("w4"))
        since = await store.now() - MINUTE

        found = await store.workers.list(pool.pool_id, gone_since=since)

        assert {worker.worker_id for worker in found} == {W2, W3, "w4"}
        assert len(await store.workers.list(pool.pool_id)) == 4
        assert [row.worker_id for row in await store.workers.list(pool.pool_id, live=True, gone_since=since)] == ["w4"]

    async def test_a_worker_asked_to_drain_gets_a_deadline_and_an_event(self, store: Store, pool: PoolRow) -> None:
        await added(store, pool, W1, W2)
        before = await store.now()

        assert await store.workers.ask_to_drain(pool.pool_id, [W2], "scale down", MINUTE) == [W2]

        left, asked = await store.workers.list(pool.pool_id)
        assert left.drain_deadline is None
        assert asked.drain_deadline is not None
        assert before + MINUTE <= asked.drain_deadline <= await store.now() + MINUTE
        event = (await store.events.read(pool.pool_id, 0))[-1]
        assert (event.type, event.scope, event.worker_id) == (EventType.STOP, Scope.WORKER, W2)
        assert event.payload == {"reason": "scale down", "drain_timeout_seconds": 60.0}

    async def test_asking_does_not_move_the_worker(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        await store.workers.ask_to_drain(pool.pool_id, [W1], "scale down", MINUTE)

        row = await store.workers.get(pool.pool_id, W1)

        assert replace(row, drain_deadline=None) == worker

    async def test_asking_again_changes_nothing(self, store: Store, pool: PoolRow) -> None:
        await added(store, pool)
        await store.workers.ask_to_drain(pool.pool_id, [W1], "scale down", MINUTE)
        asked, events = await store.workers.get(pool.pool_id, W1), await event_types(store, pool.pool_id)

        assert await store.workers.ask_to_drain(pool.pool_id, [W1], "again", 5 * MINUTE) == []

        assert await store.workers.get(pool.pool_id, W1) == asked
        assert await event_types(store, pool.pool_id) == events

    async def test_concurrent_drain_requests_count_once(self, store: Store, pool: PoolRow) -> None:
        await added(store, pool)

        asking = (store.workers.ask_to_drain(pool.pool_id, [W1, W1], "scale down", MINUTE) for _ in range(8))
        answers = await asyncio.gather(*asking)

        assert sorted(map(list, answers)) == [[]] * 7 + [[W1]]
        assert [event for _, event in await event_types(store, pool.pool_id)].count("STOP") == 1

    async def test_ended_and_unknown_workers_are_passed_over(self, store: Store, pool: PoolRow) -> None:
        ended = await lost(store, pool, W1)
        await joined(store, pool, W2)

        asked = await store.workers.ask_to_drain(pool.pool_id, [W1, W3, W2], "all must go", MINUTE)

        assert asked == [W2]
        assert await store.workers.get(pool.pool_id, W1) == ended

    async def test_the_holder_of_the_lease_may_ask_to_drain(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        await added(store, pool)

        assert await store.workers.ask_to_drain(pool.pool_id, [W1], "so", MINUTE, fence=lease.fence) == [W1]

    async def test_an_outdated_controller_asks_nobody_to_drain(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        worker = await added(store, pool)

        with pytest.raises(Fenced):
            await store.workers.ask_to_drain(pool.pool_id, [W1], "so", MINUTE, fence=await outdated(store, lease))

        assert await store.workers.get(pool.pool_id, W1) == worker
        assert len(await event_types(store, pool.pool_id)) == 1


class NoteContract(Given):
    async def test_what_a_provider_says_of_a_worker_joins_its_notes(self, store: Store, pool: PoolRow) -> None:
        await store.workers.add([worker_row(pool, meta={"price_per_hour": 2.0, "contract": "v1"})])
        joined_since = await active(store, pool, W2)

        await store.workers.note_instance(pool.pool_id, W1, "pod-7", {"price_per_hour": 0.44, "gpu": "L4"})
        await store.workers.note_instance(pool.pool_id, W2, "pod-8", {})

        row = await store.workers.get(pool.pool_id, W1)
        assert (row.provider_ref, row.meta) == ("pod-7", {"price_per_hour": 0.44, "contract": "v1", "gpu": "L4"})
        assert await store.workers.get(pool.pool_id, W2) == replace(joined_since, provider_ref="pod-8")

    async def test_what_was_noted_of_a_worker_is_replaced_as_a_whole_and_cleared_by_none(
        self, store: Store, pool: PoolRow
    ) -> None:
        await store.workers.add([worker_row(pool)])
        for noted in ({"reason": "full", "wait": 5}, None, {"reason": "down"}):
            await store.workers.note_instance(pool.pool_id, W1, "", {"refused": noted, "times": 1})

            row = await store.workers.get(pool.pool_id, W1)
            assert (row.meta.get("refused"), row.meta["times"]) == (noted, 1)

    async def test_nothing_is_noted_of_an_unknown_worker(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(NotFound):
            await store.workers.note_instance(pool.pool_id, W1, "pod-7", {})

    async def test_an_outdated_controller_notes_nothing(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        before = await active(store, pool)

        with pytest.raises(Fenced):
            await store.workers.note_instance(pool.pool_id, W1, "pod-7", {}, fence=await outdated(store, lease))

        assert await store.workers.get(pool.pool_id, W1) == before


class ReapContract(Given):
    async def test_an_ended_worker_is_marked_reaped(self, store: Store, pool: PoolRow) -> None:
        await lost(store, pool)
        before = await store.now()

        await store.workers.mark_reaped(pool.pool_id, W1)

        row = await store.workers.get(pool.pool_id, W1)
        assert row.status is WorkerStatus.LOST
        assert row.reaped_at is not None
        assert before <= row.reaped_at <= await store.now()

    async def test_marking_again_keeps_the_first_time(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await lost(store, pool)
        await store.workers.mark_reaped(pool.pool_id, W1)
        await elapse(5 * MINUTE)

        await store.workers.mark_reaped(pool.pool_id, W1)

        row = await store.workers.get(pool.pool_id, W1)
        assert row.reaped_at is not None
        assert await store.now() - row.reaped_at >= 5 * MINUTE

    async def test_a_live_worker_is_not_marked_reaped(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)

        with pytest.raises(StaleWrite, match="w1"):
            await store.workers.mark_reaped(pool.pool_id, W1)

        assert await store.workers.get(pool.pool_id, W1) == worker

    async def test_an_unknown_worker_is_not_marked_reaped(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(NotFound):
            await store.workers.mark_reaped(pool.pool_id, W1)

    async def test_an_outdated_controller_marks_nobody_reaped(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        ended = await lost(store, pool)

        with pytest.raises(Fenced):
            await store.workers.mark_reaped(pool.pool_id, W1, fence=await outdated(store, lease))

        assert await store.workers.get(pool.pool_id, W1) == ended
