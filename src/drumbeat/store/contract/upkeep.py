"""Tests of a store's maintenance: migration, check, and pruning (deleting old rows)."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.beat import NewBeat
from drumbeat.core.event import FACTS, EventType, NewEvent, Scope, start, stop
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.retention import Prunable
from drumbeat.core.run import Result, RunStatus
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.contract.connections import connection
from drumbeat.store.contract.executions import execution
from drumbeat.store.contract.given import (
    DAY,
    MINUTE,
    W1,
    W2,
    Elapse,
    Given,
    active,
    event_types,
    heartbeat,
    joined,
    lost,
    moved,
    new_pool,
    new_run,
    sample,
    taken,
    unique,
)
from drumbeat.store.contract.steps import step
from drumbeat.store.contract.templates import template
from drumbeat.store.interface import RunChange, Store

FLEETS = [(PoolKind.JOBS, {"policy": "queue_cover"}), (PoolKind.FLEET, {"workers": 2})]
TABLES = {"pools", "workers", "events", "leases", "beats", "samples", "runs", "logs"}
TABLES |= {"steps", "results", "executions", "templates", "connections", "answers"}


async def fill(store: Store, pool_id: PoolId) -> None:
    """Add to a pool: an ended worker with one sample, two beats and a log line."""
    pool = await store.pools.get(pool_id)
    worker = await active(store, pool)
    await store.membership.beat(heartbeat(worker, sample=sample(1, 10)))
    await moved(store, worker, WorkerStatus.TERMINATED)
    for _ in range(2):
        await store.beats.append(pool_id, NewBeat(owner="a", epoch=1, view={}))
    await store.logs.append(pool_id, [NewLog(level="INFO", logger="a", message="said")])


async def reaped(store: Store, pool: PoolRow, worker_id: WorkerId) -> None:
    """Add a worker that is lost and marked as reaped: its instance is known to be gone."""
    await lost(store, pool, worker_id)
    await store.workers.mark_reaped(pool.pool_id, worker_id)


async def left(store: Store, pool_id: PoolId) -> dict[str, int]:
    return {
        "samples": len(await store.samples.list(pool_id)),
        "logs": len(await store.logs.list(pool_id)),
        "beats": len(await store.beats.list(pool_id)),
        "workers": len(await store.workers.list(pool_id)),
        "events": len(await store.events.read(pool_id, 0)),
    }


class UpkeepContract(Given):
    async def test_an_open_store_is_up_to_date(self, store: Store, pool: PoolRow) -> None:
        answers = await asyncio.gather(*(store.upkeep.migrate() for _ in range(4)))

        assert [list(answer) for answer in answers] == [[]] * 4
        assert await store.pools.get(pool.pool_id) == pool

    async def test_a_check_tells_what_the_store_is(self, store: Store) -> None:
        before = await store.now()
        report = await store.upkeep.check()

        assert report.backend == store.traits.name
        assert report.schema_version == report.latest_version
        assert report.location
        assert report.server
        assert list(report.problems) == []
        assert before <= report.now <= await store.now()

    async def test_a_check_counts_every_tables_rows(self, store: Store) -> None:
        await store.answers.hold(unique("key"), "f", DAY)  # removes answers of other tests that have expired
        before = (await store.upkeep.check()).rows
        run = await new_run(store)
        await fill(store, PoolId(run.run_id))
        await taken(store, run.run_id)
        await store.steps.save([step(run.run_id, n) for n in (1, 2)])
        await store.results.save([Result(run_id=run.run_id)])
        await store.executions.load([execution(run.run_id, n) for n in (1, 2, 3)])
        await store.templates.create(template())
        await store.connections.create(connection())
        await store.answers.hold(unique("key"), "f", DAY)

        after = (await store.upkeep.check()).rows

        assert before.keys() >= TABLES
        assert {table: after[table] - before[table] for table in TABLES} == {
            "pools": 1,
            "runs": 1,
            "leases": 1,
            "workers": 1,
            "events": 4,
            "samples": 1,
            "beats": 2,
            "logs": 1,
            "steps": 2,
            "results": 1,
            "executions": 3,
            "templates": 1,
            "connections": 1,
            "answers": 1,
        }

    async def test_a_check_changes_nothing(self, store: Store, pool: PoolRow) -> None:
        await fill(store, pool.pool_id)
        before = await left(store, pool.pool_id)

        assert (await store.upkeep.check()).rows == (await store.upkeep.check()).rows
        assert await left(store, pool.pool_id) == before

    async def test_pruning_takes_what_is_old_and_counts_it(self, store: Store, elapse: Elapse) -> None:
        await elapse(DAY)
        await store.upkeep.prune(MINUTE)
        run = await new_run(store)
        pool_id = PoolId(run.run_id)
        await fill(store, pool_id)
        await store.runs.update(run, RunChange(status=RunStatus.FAILED, ended=True), [start(1)])
        await elapse(DAY)

        gone = await store.upkeep.prune(timedelta(hours=1))

        assert gone == {"samples": 1, "logs": 1, "beats": 1, "workers": 1, "events": 5, "leases": 0}
        assert await left(store, pool_id) == {"samples": 0, "logs": 0, "beats": 1, "workers": 0, "events": 0}
        assert (await store.runs.get(run.run_id)).status is RunStatus.FAILED

    async def test_pruning_leaves_what_is_young(self, store: Store, elapse: Elapse) -> None:
        run = await new_run(store)
        await fill(store, PoolId(run.run_id))
        await store.runs.update(run, RunChange(status=RunStatus.FAILED, ended=True))
        before = await left(store, PoolId(run.run_id))
        await elapse(30 * MINUTE)

        await store.upkeep.prune(timedelta(hours=1))

        assert await left(store, PoolId(run.run_id)) == before

    async def test_pruning_again_finds_nothing(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await fill(store, pool.pool_id)
        await elapse(DAY)
        await store.upkeep.prune(MINUTE)

        again = await store.upkeep.prune(MINUTE)

        assert again == {"samples": 0, "logs": 0, "beats": 0, "workers": 0, "events": 0, "leases": 0}

    async def test_a_lease_that_never_ends_is_taken_once_and_kept(self, store: Store, elapse: Elapse) -> None:
        """An example is the lease whose owner is the store's id."""
        name, century = f"{unique('lease')}/id", timedelta(days=36_500)

        leases = await asyncio.gather(*(store.leases.acquire(name, f"owner-{n}", century) for n in range(8)))
        await elapse(timedelta(days=400))
        await store.upkeep.prune(DAY)

        [first] = [lease for lease in leases if lease]
        found = await store.leases.find(name)
        assert found is not None
        assert found.owner == first.owner
        assert await store.leases.acquire(name, "late", century) is None

    async def test_pruning_takes_old_one_time_leases_and_no_others(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        occasions = [unique("trigger/push"), unique("after-exit/papers"), unique("webhook/crawler/key")]
        for name in occasions:
            await store.leases.acquire(name, "a", MINUTE)
        released = await store.leases.acquire(pool.pool_id, "a", MINUTE)
        assert released is not None
        await store.leases.release(released)
        await elapse(2 * DAY)
        young = unique("trigger/young")
        await store.leases.acquire(young, "a", MINUTE)

        gone = await store.upkeep.prune(DAY)

        assert gone["leases"] >= len(occasions)  # other tests of this store may have left some, too
        assert [await store.leases.find(name) for name in occasions] == [None] * 3
        assert await store.leases.find(young) is not None
        again = await store.leases.acquire(pool.pool_id, "b", MINUTE)
        assert again is not None
        assert again.epoch == released.epoch + 1

    async def test_one_time_leases_are_pruned_in_steps(self, store: Store, elapse: Elapse) -> None:
        names = [unique(f"webhook/crawler/{n}") for n in range(7)]
        for name in names:
            await store.leases.acquire(name, "a", MINUTE)
        await elapse(2 * DAY)
        again = await store.leases.acquire(names[0], "b", MINUTE)

        steps = [await store.upkeep.prune_leases(DAY, limit=2)]
        while steps[-1].more:
            steps.append(await store.upkeep.prune_leases(DAY, limit=2))

        assert sum(step.rows for step in steps) >= 6
        assert [await store.leases.find(name) for name in names] == [again, *[None] * 6]
        assert (await store.upkeep.prune_leases(DAY)).rows == 0

    async def test_pruning_keeps_live_workers_however_old(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await joined(store, pool, W1)
        await lost(store, pool, W2)
        await elapse(DAY)

        await store.upkeep.prune(MINUTE)

        assert [worker.worker_id for worker in await store.workers.list(pool.pool_id)] == [W1]

    @pytest.mark.parametrize(("kind", "policy"), FLEETS)
    async def test_pruning_keeps_a_fleets_workers_that_count_for_the_running_month(
        self, store: Store, elapse: Elapse, kind: PoolKind, policy: Mapping[str, Any]
    ) -> None:
        pool = await store.pools.create(new_pool(kind, **policy))
        await reaped(store, pool, W1)
        now = await store.now()
        first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        within = (
            min(now - first, (first + 32 * DAY).replace(day=1) - now) / 2
        )  # ``elapse`` makes rows older, or moves the clock
        await elapse(within)
        await store.upkeep.prune(within / 2)
        remaining = [worker.worker_id for worker in await store.workers.list(pool.pool_id)]
        await elapse(40 * DAY)

        await store.upkeep.prune(DAY)

        assert (remaining, await store.workers.list(pool.pool_id)) == ([W1], [])

    @pytest.mark.parametrize(("kind", "policy"), FLEETS)
    async def test_pruning_keeps_a_fleets_workers_whose_instances_were_ended_in_the_running_month(
        self, store: Store, elapse: Elapse, kind: PoolKind, policy: Mapping[str, Any]
    ) -> None:
        pool = await store.pools.create(new_pool(kind, **policy))
        await lost(store, pool, W1)
        await elapse(40 * DAY)
        await store.workers.mark_reaped(pool.pool_id, W1)

        await store.upkeep.prune(DAY)

        assert [worker.worker_id for worker in await store.workers.list(pool.pool_id)] == [W1]

    @pytest.mark.parametrize(("kind", "policy"), FLEETS)
    async def test_pruning_keeps_a_fleets_workers_until_their_instances_are_gone(
        self, store: Store, elapse: Elapse, kind: PoolKind, policy: Mapping[str, Any]
    ) -> None:
        pool = await store.pools.create(new_pool(kind, **policy))
        await lost(store, pool, W1)
        await reaped(store, pool, W2)
        await elapse(40 * DAY)

        await store.upkeep.prune(DAY)

        assert [worker.worker_id for worker in await store.workers.list(pool.pool_id)] == [W1]

    async def test_pruning_takes_ended_workers_of_a_plain_pool_reaped_or_not(self, store: Store, elapse: Elapse) -> None:
        pool = await store.pools.create(new_pool(PoolKind.JOBS, handlers={}))
        await lost(store, pool, W1)
        await reaped(store, pool, W2)
        assert [worker.worker_id for worker in await store.workers.list(pool.pool_id)] == [W1, W2]
        await elapse(2 * MINUTE)

        await store.upkeep.prune(MINUTE)

        assert await store.workers.list(pool.pool_id) == []

    async def test_pruning_keeps_the_last_beat_of_a_pool(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await fill(store, pool.pool_id)
        await elapse(DAY)

        await store.upkeep.prune(MINUTE)

        last = await store.beats.last(pool.pool_id)
        assert last is not None
        assert last.n == 2
        assert (await store.beats.append(pool.pool_id, NewBeat(owner="a", epoch=1, view={}))).n == 3

    async def test_pruning_keeps_the_last_beat_with_a_view(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        for view in ({"n": 1}, {"n": 2}, None, None):
            await store.beats.append(pool.pool_id, NewBeat(owner="a", epoch=1, view=view))
        await elapse(DAY)

        await store.upkeep.prune(MINUTE)

        assert [(beat.n, beat.view) for beat in await store.beats.list(pool.pool_id)] == [(2, {"n": 2}), (4, None)]

    async def test_pruning_keeps_the_events_of_what_has_not_ended(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        run = await new_run(store)
        for pool_id in (pool.pool_id, PoolId(run.run_id)):
            await store.events.append(pool_id, [start(1)])
        await elapse(DAY)

        await store.upkeep.prune(MINUTE)

        assert await event_types(store, pool.pool_id) == [(1, "START")]
        assert await event_types(store, PoolId(run.run_id)) == [(1, "START")]

    async def test_pruning_keeps_what_later_workers_of_a_pool_must_obey(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        to_several = [start(1), NewEvent(type=EventType.SET_PHASE, scope=Scope.WORKER_GROUP, slot=0, payload={"phase": "LOAD"})]
        to_one = [stop("idle", worker_id=W1), *(NewEvent(type=fact) for fact in sorted(FACTS))]
        await store.events.append(pool.pool_id, [*to_several, *to_one])
        await elapse(DAY)
        await store.events.append(pool.pool_id, [stop("idle", worker_id=W2)])

        gone = await store.upkeep.prune_some(pool.pool_id, Prunable.EVENTS, MINUTE)

        late = await joined(store, pool, W1)
        assert gone.rows == len(to_one)
        assert (await event_types(store, pool.pool_id))[:3] == [(1, "START"), (2, "SET_PHASE"), (8, "STOP")]
        assert [event.type for event in (await store.membership.beat(heartbeat(late))).events] == ["START", "SET_PHASE"]

    async def test_pruning_finds_events_behind_many_that_it_keeps(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await store.events.append(pool.pool_id, [start(n) for n in range(600)])
        await store.events.append(pool.pool_id, [stop("idle", worker_id=W1) for _ in range(600)])
        await elapse(DAY)

        await store.upkeep.prune(MINUTE)

        assert (await store.events.read(pool.pool_id, 0, 9999))[-1].sequence_id == 600

    async def test_pruned_events_numbers_are_not_used_again(self, store: Store, elapse: Elapse) -> None:
        run = await new_run(store)
        await store.runs.update(run, RunChange(status=RunStatus.FAILED), [start(1), start(2)])
        await elapse(DAY)
        await store.upkeep.prune(MINUTE)

        await store.events.append(PoolId(run.run_id), [start(3)])

        assert await event_types(store, PoolId(run.run_id)) == [(3, "START")]
