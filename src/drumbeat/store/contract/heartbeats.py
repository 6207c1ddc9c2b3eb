"""Tests of a worker's heartbeat and of the store's reply to it."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.event import FACTS, EventType, NewEvent, Scope, WorkerTarget, start, stop
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.run import RunStatus
from drumbeat.core.worker import WorkerStatus
from drumbeat.store.contract.given import (
    AWKWARD,
    MINUTE,
    W1,
    W2,
    Elapse,
    Given,
    active,
    event_types,
    heartbeat,
    joined,
    joining,
    moved,
    new_run,
    sample,
)
from drumbeat.store.interface import BATCH, RunChange, Store


class BeatContract(Given):
    async def test_a_heartbeat_is_stored_unchanged(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        fields: dict[str, Any] = {
            "phase": "WARMUP",
            "applied_target": 20,
            "active": 18,
            "operations": 2**40,
            "errors": 3,
            "error": "too many connections",
            "cpu_percent": 12.5,
            "memory_percent": 40.25,
            "gpu": AWKWARD,
        }
        before = await store.now()

        await store.membership.beat(heartbeat(worker, **fields))

        row = await store.workers.get(pool.pool_id, W1)
        assert row.heartbeat_at is not None
        assert before <= row.heartbeat_at <= await store.now()
        assert row == replace(worker, heartbeat_count=worker.heartbeat_count + 1, heartbeat_at=row.heartbeat_at, **fields)

    async def test_a_heartbeat_ends_a_silence(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        worker = await active(store, pool)
        await elapse(5 * MINUTE)

        await store.membership.beat(heartbeat(worker))

        row = await store.workers.get(pool.pool_id, W1)
        assert row.heartbeat_at is not None
        assert row.started_at is not None
        assert row.heartbeat_at - row.started_at >= 5 * MINUTE

    async def test_the_last_error_stays_until_there_is_another(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        errors = []
        for error in ("first", None, "second"):
            await store.membership.beat(heartbeat(worker, error=error))
            errors.append((await store.workers.get(pool.pool_id, W1)).error)

        assert errors == ["first", "first", "second"]

    @pytest.mark.parametrize(
        "path",
        [
            (),
            (WorkerStatus.WAITING,),
            (WorkerStatus.WAITING, WorkerStatus.ACTIVE),
            (WorkerStatus.WAITING, WorkerStatus.ACTIVE, WorkerStatus.DRAINING),
        ],
        ids=["starting", "waiting", "active", "draining"],
    )
    async def test_a_worker_beats_in_every_live_state(
        self, store: Store, pool: PoolRow, path: tuple[WorkerStatus, ...]
    ) -> None:
        worker = await moved(store, await joined(store, pool), *path)

        reply = await store.membership.beat(heartbeat(worker))

        assert reply.status is worker.status
        assert (await store.workers.get(pool.pool_id, W1)).heartbeat_count == 2

    async def test_every_heartbeat_is_counted(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)

        await asyncio.gather(*(store.membership.beat(heartbeat(worker)) for _ in range(10)))

        assert (await store.workers.get(pool.pool_id, W1)).heartbeat_count == 11

    async def test_a_heartbeat_writes_no_event(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        events = await event_types(store, pool.pool_id)

        await store.membership.beat(heartbeat(worker, sample=sample(1, 10)))

        assert await event_types(store, pool.pool_id) == events

    async def test_a_heartbeat_brings_the_stores_time(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        before = await store.now()

        reply = await store.membership.beat(heartbeat(worker))

        assert before <= reply.now <= await store.now()

    async def test_a_heartbeat_brings_the_events_after_those_read(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        events = await store.events.append(pool.pool_id, [start(1), stop("enough")])

        reply = await store.membership.beat(heartbeat(worker, read_to=events[0].sequence_id))

        assert reply.events == [events[1]]
        assert (await store.membership.beat(heartbeat(worker, read_to=events[1].sequence_id))).events == []

    async def test_a_heartbeat_brings_only_what_is_for_its_worker_and_says_how_far_it_looked(
        self, store: Store, pool: PoolRow
    ) -> None:
        worker = await active(store, pool)
        new = [
            NewEvent(type=EventType.STOP, scope=Scope.WORKER, worker_id=W2),
            NewEvent(type=EventType.SET_PHASE, payload={"phase": "WARMUP"}),
            NewEvent(type=EventType.STOP, scope=Scope.WORKER_GROUP, slot=9),
            NewEvent(type=EventType.STOP, scope=Scope.WORKER, worker_id=W1),
            NewEvent(type=EventType.STOP, scope=Scope.WORKER_GROUP, slot=0),
            *(NewEvent(type=fact) for fact in sorted(FACTS)),
        ]
        events = await store.events.append(pool.pool_id, new)

        reply = await store.membership.beat(heartbeat(worker))

        assert reply.events == [events[1], events[3], events[4]]
        assert (reply.read_to, reply.more) == (events[-1].sequence_id, False)

    async def test_events_beyond_one_batch_come_with_the_next_heartbeat(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        mixed = [NewEvent(type="COUNT", scope=Scope.WORKER, worker_id=W1 if n % 2 else W2) for n in range(300)]
        events = await store.events.append(pool.pool_id, mixed)

        first = await store.membership.beat(heartbeat(worker))
        second = await store.membership.beat(heartbeat(worker, first.read_to))

        assert (len(first.events), first.more) == (BATCH, True)
        assert (len(second.events), second.more, second.read_to) == (50, False, events[-1].sequence_id)
        assert [*first.events, *second.events] == [event for event in events if event.worker_id == W1]

    async def test_a_heartbeat_brings_one_batch_at_most(self, store: Store, pool: PoolRow) -> None:
        worker = await joined(store, pool)
        await store.events.append(pool.pool_id, [NewEvent(type="COUNT") for _ in range(250)])

        batches = [(await store.membership.beat(heartbeat(worker, read_to))).events for read_to in (1, 101, 201, 251)]

        assert [len(batch) for batch in batches] == [BATCH, BATCH, 50, 0]
        assert [event.sequence_id for batch in batches for event in batch] == list(range(2, 252))

    async def test_a_heartbeat_brings_target_and_drain_deadline(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        plain = await store.membership.beat(heartbeat(worker))
        [event] = await store.workers.set_targets(pool.pool_id, {W1: WorkerTarget(connections=12, reason="so")})
        await store.workers.ask_to_drain(pool.pool_id, [W1], "so", MINUTE)

        reply = await store.membership.beat(heartbeat(worker))

        assert (plain.target, plain.target_seq, plain.drain_deadline) == (0, 0, None)
        assert (reply.target, reply.target_seq) == (12, event.sequence_id)
        assert reply.drain_deadline == (await store.workers.get(pool.pool_id, W1)).drain_deadline is not None

    async def test_a_heartbeat_brings_the_runs_status_and_phase(self, store: Store) -> None:
        run = await new_run(store)
        worker = await store.membership.join(joining(PoolId(run.run_id)))
        before = await store.membership.beat(heartbeat(worker))
        await store.runs.update(run, RunChange(status=RunStatus.STARTING, phase="WARMUP"))

        after = await store.membership.beat(heartbeat(worker))

        assert (before.run_status, before.run_phase) == (RunStatus.PREPARED, None)
        assert (after.run_status, after.run_phase) == (RunStatus.STARTING, "WARMUP")

    async def test_a_pool_that_is_no_runs_has_no_run_status(self, store: Store, pool: PoolRow) -> None:
        reply = await store.membership.beat(heartbeat(await joined(store, pool)))

        assert (reply.run_status, reply.run_phase) == (None, None)

    async def test_a_heartbeat_brings_the_end_of_the_controllers_lease(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        worker = await joined(store, pool)
        reply = await store.membership.beat(heartbeat(worker))
        assert reply.controller_until == lease.expires_at

        renewed = await store.leases.renew(lease, timedelta(hours=3))
        reply = await store.membership.beat(heartbeat(worker))
        assert reply.controller_until == renewed.expires_at

    async def test_a_lease_that_ran_out_is_brought_with_its_past_end(
        self, store: Store, pool: PoolRow, lease: Lease, elapse: Elapse
    ) -> None:
        worker = await joined(store, pool)
        await elapse(timedelta(hours=2))

        reply = await store.membership.beat(heartbeat(worker))

        assert reply.controller_until is not None
        assert timedelta(minutes=59) < reply.now - reply.controller_until < timedelta(minutes=61)

    async def test_a_pool_that_never_had_a_controller_has_no_lease_to_end(self, store: Store, pool: PoolRow) -> None:
        reply = await store.membership.beat(heartbeat(await joined(store, pool)))

        assert reply.controller_until is None

    async def test_a_sample_comes_with_the_heartbeat(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)

        await store.membership.beat(heartbeat(worker, sample=sample(1, 10, 20)))

        [stored] = await store.samples.list(pool.pool_id)
        assert (stored.worker_id, stored.n, stored.operations, stored.latency.count) == (W1, 1, 2, 2)

    async def test_a_repeated_heartbeats_sample_counts_once(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        for _ in range(2):
            await store.membership.beat(heartbeat(worker, sample=sample(1, 10, 20)))
        await store.membership.beat(heartbeat(worker, sample=sample(2, 30)))

        assert [(stored.n, stored.operations) for stored in await store.samples.list(pool.pool_id)] == [(1, 2), (2, 1)]
