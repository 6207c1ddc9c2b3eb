"""Tests of a worker's writes about itself: join, heartbeat, move to another status."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.errors import IllegalMove, NotFound, WorkerGone
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.worker import ExitCode, Worker, WorkerStatus
from drumbeat.store.contract.given import (
    AWKWARD,
    W1,
    Given,
    active,
    added,
    event_types,
    heartbeat,
    joined,
    joining,
    lost,
    moved,
    moves,
    sample,
    worker_row,
)
from drumbeat.store.contract.heartbeats import BeatContract
from drumbeat.store.interface import Store, WorkerChange


class JoinContract(Given):
    async def test_a_process_takes_the_row_that_waits_for_it(self, store: Store, pool: PoolRow) -> None:
        waiting = await added(store, pool)
        before = await store.now()

        worker = await store.membership.join(joining(pool.pool_id, host="host-7", pid=77))

        assert worker == await store.workers.get(pool.pool_id, W1)
        assert (worker.status, worker.instance, worker.host, worker.pid) == (WorkerStatus.STARTING, "i1", "host-7", 77)
        assert (worker.heartbeat_count, worker.created_at) == (1, waiting.created_at)
        assert worker.started_at is not None
        assert worker.heartbeat_at is not None
        assert before <= worker.started_at <= await store.now()
        assert before <= worker.heartbeat_at <= await store.now()

    async def test_taking_a_row_writes_an_event(self, store: Store, pool: PoolRow) -> None:
        await added(store, pool)
        await joined(store, pool)

        assert (await moves(store, pool.pool_id))[1:] == [
            {"worker_id": "w1", "worker_group_id": 0, "from": "spawning", "to": "starting", "reason": "joined"}
        ]

    async def test_a_process_nobody_asked_for_makes_its_row(self, store: Store, pool: PoolRow) -> None:
        fields: dict[str, Any] = {"slot": 4, "provider": "by hand", "provider_ref": "tty1", "capabilities": ("gpu",)}

        worker = await store.membership.join(joining(pool.pool_id, **fields))

        assert worker == await store.workers.get(pool.pool_id, W1)
        assert (worker.status, worker.instance, worker.slot, worker.heartbeat_count) == (WorkerStatus.STARTING, "i1", 4, 1)
        assert (worker.provider, worker.provider_ref, worker.capabilities) == ("by hand", "tty1", ("gpu",))
        assert worker.created_at is not None
        assert [(move["worker_group_id"], move["to"], move["reason"]) for move in await moves(store, pool.pool_id)] == [
            (4, "starting", "joined")
        ]

    @pytest.mark.parametrize(("given", "stored"), [(None, "pod-1"), ("pod-2", "pod-2")])
    async def test_a_row_keeps_its_reference_unless_another_is_given(
        self, store: Store, pool: PoolRow, given: str | None, stored: str
    ) -> None:
        await store.workers.add([worker_row(pool, provider="cloud", provider_ref="pod-1", meta={"zone": "a"})])

        worker = await store.membership.join(joining(pool.pool_id, provider_ref=given))

        assert (worker.provider_ref, worker.provider, worker.meta) == (stored, "cloud", {"zone": "a"})

    async def test_joining_replaces_slot_and_capabilities(self, store: Store, pool: PoolRow) -> None:
        await store.workers.add([worker_row(pool, slot=0, capabilities=("gpu",))])

        worker = await store.membership.join(joining(pool.pool_id, slot=4, capabilities=("cpu", "ssd")))

        assert (worker.slot, worker.capabilities) == (4, ("cpu", "ssd"))

    async def test_joining_again_as_the_same_process_is_harmless(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        events = await event_types(store, pool.pool_id)

        assert await store.membership.join(joining(pool.pool_id)) == worker

        assert await store.workers.get(pool.pool_id, W1) == worker
        assert await event_types(store, pool.pool_id) == events

    async def test_a_second_process_does_not_join_under_the_name(self, store: Store, pool: PoolRow) -> None:
        worker = await joined(store, pool)

        with pytest.raises(WorkerGone, match="another process"):
            await store.membership.join(joining(pool.pool_id, instance="i2"))

        assert await store.workers.get(pool.pool_id, W1) == worker

    async def test_nobody_joins_under_the_name_of_an_ended_worker(self, store: Store, pool: PoolRow) -> None:
        ended = await lost(store, pool)

        for instance in ("i1", "i2"):
            with pytest.raises(WorkerGone, match="lost"):
                await store.membership.join(joining(pool.pool_id, instance=instance))

        assert await store.workers.get(pool.pool_id, W1) == ended

    async def test_a_process_that_joins_after_its_row_has_ended_is_refused(self, store: Store, pool: PoolRow) -> None:
        await store.workers.move(await added(store, pool), WorkerStatus.LOST, "never came")

        with pytest.raises(WorkerGone, match="lost"):
            await store.membership.join(joining(pool.pool_id))

    @pytest.mark.parametrize("asked_for", [True, False], ids=["a row waits", "no row"])
    async def test_only_one_of_several_processes_that_join_at_once_succeeds(
        self, store: Store, pool: PoolRow, asked_for: bool
    ) -> None:
        if asked_for:
            await added(store, pool)

        answers = await asyncio.gather(
            *(store.membership.join(joining(pool.pool_id, instance=f"i{n}")) for n in range(8)), return_exceptions=True
        )

        [winner] = [answer for answer in answers if isinstance(answer, Worker)]
        assert sum(isinstance(answer, WorkerGone) for answer in answers) == 7
        assert await store.workers.get(pool.pool_id, W1) == winner
        assert [move["to"] for move in await moves(store, pool.pool_id)].count("starting") == 1

    async def test_joining_needs_a_pool(self, store: Store) -> None:
        with pytest.raises(NotFound, match="pool-nobody-made"):
            await store.membership.join(joining(PoolId("pool-nobody-made")))


class MoveOneselfContract(Given):
    async def test_a_worker_moves_itself_and_an_event_is_written(self, store: Store, pool: PoolRow) -> None:
        worker = await joined(store, pool)

        after = await store.membership.move(pool.pool_id, W1, "i1", WorkerStatus.WAITING, "connections are open")

        assert after.ready_at is not None
        assert after == await store.workers.get(pool.pool_id, W1)
        assert after == replace(worker, status=WorkerStatus.WAITING, ready_at=after.ready_at)
        assert (await moves(store, pool.pool_id))[-1] == {
            "worker_id": "w1",
            "worker_group_id": 0,
            "from": "starting",
            "to": "waiting",
            "reason": "connections are open",
        }

    async def test_a_worker_leaves_with_its_exit_code(self, store: Store, pool: PoolRow) -> None:
        await active(store, pool)
        leaving = WorkerChange(exit_code=4, error="out of memory", meta=AWKWARD)

        after = await store.membership.move(pool.pool_id, W1, "i1", WorkerStatus.ERROR, "fatal", leaving)

        assert (after.status, after.exit_code, after.error, after.meta) == (WorkerStatus.ERROR, 4, "out of memory", AWKWARD)
        assert after.ended_at is not None
        last = (await moves(store, pool.pool_id))[-1]
        assert (last["to"], last["exit_code"], last["error"]) == ("error", 4, "out of memory")

    async def test_an_exit_code_of_zero_is_stored_and_is_in_the_event(self, store: Store, pool: PoolRow) -> None:
        await active(store, pool)

        after = await store.membership.move(
            pool.pool_id, W1, "i1", WorkerStatus.TERMINATED, "done", WorkerChange(exit_code=ExitCode.CLEAN)
        )

        assert after.exit_code == 0
        assert (await moves(store, pool.pool_id))[-1]["exit_code"] == 0

    @pytest.mark.parametrize("to", [WorkerStatus.DRAINING, WorkerStatus.TERMINATED])
    async def test_moving_to_the_current_status_changes_nothing(self, store: Store, pool: PoolRow, to: WorkerStatus) -> None:
        there = await moved(store, await active(store, pool), to)
        events = await event_types(store, pool.pool_id)

        assert await store.membership.move(pool.pool_id, W1, "i1", to, "once more") == there

        assert await store.workers.get(pool.pool_id, W1) == there
        assert await event_types(store, pool.pool_id) == events

    async def test_another_process_may_not_move_a_worker_even_to_its_current_status(self, store: Store, pool: PoolRow) -> None:
        await active(store, pool)

        with pytest.raises(WorkerGone):
            await store.membership.move(pool.pool_id, W1, "i2", WorkerStatus.ACTIVE, "me too")

    async def test_a_worker_may_not_skip_a_state(self, store: Store, pool: PoolRow) -> None:
        worker = await joined(store, pool)

        with pytest.raises(IllegalMove, match="starting"):
            await store.membership.move(pool.pool_id, W1, "i1", WorkerStatus.ACTIVE, "in haste")

        assert await store.workers.get(pool.pool_id, W1) == worker
        assert len(await event_types(store, pool.pool_id)) == 1

    async def test_moves_and_heartbeats_at_once_lose_neither(self, store: Store, pool: PoolRow) -> None:
        worker = await moved(store, await joined(store, pool), WorkerStatus.WAITING)
        beats = [store.membership.beat(heartbeat(worker)) for _ in range(5)]

        await asyncio.gather(*beats, store.membership.move(pool.pool_id, W1, "i1", WorkerStatus.ACTIVE, "START"))

        row = await store.workers.get(pool.pool_id, W1)
        assert (row.status, row.heartbeat_count) == (WorkerStatus.ACTIVE, 6)


Write = Callable[[Store, Worker, str], Awaitable[None]]


async def beats_late(store: Store, worker: Worker, instance: str) -> None:
    await store.membership.beat(heartbeat(worker, instance=instance, error="late", sample=sample(9, 10)))


async def moves_late(store: Store, worker: Worker, instance: str) -> None:
    await store.membership.move(worker.pool_id, worker.worker_id, instance, WorkerStatus.DRAINING, "late")


async def measures_late(store: Store, worker: Worker, instance: str) -> None:
    await store.samples.append(worker.pool_id, worker.worker_id, instance, [sample(9, 10)])


every_write = pytest.mark.parametrize("write", [beats_late, moves_late, measures_late])


class GoneContract(Given):
    """Tests of refused writes: only the process that joined may write, and only while the worker's row is live."""

    async def expect_refused(self, store: Store, worker: Worker, write: Write, instance: str, why: str) -> None:
        """Expect that the write is refused with this reason and changes nothing."""
        events = await event_types(store, worker.pool_id)
        with pytest.raises(WorkerGone, match=why):
            await write(store, worker, instance)

        assert await store.workers.list(worker.pool_id) == ([worker] if worker.created_at else [])
        assert await store.samples.list(worker.pool_id) == []
        assert await event_types(store, worker.pool_id) == events

    @every_write
    async def test_late_writes_of_a_lost_worker_are_refused(self, store: Store, pool: PoolRow, write: Write) -> None:
        await self.expect_refused(store, await lost(store, pool), write, "i1", "lost")

    @every_write
    async def test_late_writes_of_a_worker_that_left_are_refused(self, store: Store, pool: PoolRow, write: Write) -> None:
        gone = await moved(store, await active(store, pool), WorkerStatus.TERMINATED)

        await self.expect_refused(store, gone, write, "i1", "terminated")

    @every_write
    async def test_writes_of_another_process_are_refused(self, store: Store, pool: PoolRow, write: Write) -> None:
        await self.expect_refused(store, await active(store, pool), write, "i2", "another process")

    @every_write
    async def test_writes_before_joining_are_refused(self, store: Store, pool: PoolRow, write: Write) -> None:
        await self.expect_refused(store, await added(store, pool), write, "i1", "w1")

    @every_write
    async def test_writes_for_a_worker_that_never_was_are_refused(self, store: Store, pool: PoolRow, write: Write) -> None:
        await self.expect_refused(store, worker_row(pool), write, "i1", "no such worker")

    @every_write
    async def test_writes_to_a_pool_that_is_gone_are_refused(self, store: Store, pool: PoolRow, write: Write) -> None:
        gone = await moved(store, await active(store, pool), WorkerStatus.TERMINATED)
        await store.pools.delete(pool.pool_id)

        await self.expect_refused(store, replace(gone, created_at=None), write, "i1", "no such worker")


class MembershipContract(JoinContract, BeatContract, MoveOneselfContract, GoneContract):
    """All tests of a worker's writes about itself."""
