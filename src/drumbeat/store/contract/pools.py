"""Tests of pools: named sets of workers."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from drumbeat.core.beat import NewBeat
from drumbeat.core.errors import AlreadyExists, Fenced, NotFound, Refused, StaleWrite
from drumbeat.core.event import start
from drumbeat.core.job import UNFINISHED
from drumbeat.core.lease import Lease
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, PoolRow
from drumbeat.core.worker import WorkerStatus
from drumbeat.store.contract.given import (
    AWKWARD,
    SECOND,
    Elapse,
    Given,
    added,
    event_types,
    heartbeat,
    joined,
    moved,
    new_pool,
    new_run,
    outdated,
    sample,
    unique,
)
from drumbeat.store.contract.given_jobs import claimed, failed, holder, pushed, verdict
from drumbeat.store.interface import PoolChange, Store


class PoolsContract(Given):
    async def test_a_pool_comes_back_as_it_was_made(self, store: Store) -> None:
        thresholds = replace(PRESETS[PoolKind.FLEET], drain_within=timedelta(seconds=7, milliseconds=250))
        made = await store.pools.create(replace(new_pool(PoolKind.FLEET, **AWKWARD), thresholds=thresholds))

        found = await store.pools.get(made.pool_id)

        assert found == made
        assert (found.kind, found.thresholds, found.policy) == (PoolKind.FLEET, thresholds, AWKWARD)

    async def test_a_new_pool_is_stamped_by_the_store(self, store: Store) -> None:
        before = await store.now()
        made = await store.pools.create(new_pool())

        assert made.created_at is not None
        assert before <= made.created_at <= await store.now()

    async def test_a_pool_is_made_once(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(AlreadyExists, match=pool.pool_id):
            await store.pools.create(replace(pool, kind=PoolKind.BENCH))

        assert (await store.pools.get(pool.pool_id)).kind is PoolKind.JOBS

    async def test_only_one_of_several_concurrent_creations_of_a_pool_succeeds(self, store: Store) -> None:
        pool = new_pool()

        answers = await asyncio.gather(*(store.pools.create(pool) for _ in range(8)), return_exceptions=True)

        assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyExists"] * 7 + ["PoolRow"]

    async def test_an_unknown_pool_is_not_got_and_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound, match="pool-nobody-made"):
            await store.pools.get(PoolId("pool-nobody-made"))

        assert await store.pools.find(PoolId("pool-nobody-made")) is None

    async def test_a_pool_can_be_found(self, store: Store, pool: PoolRow) -> None:
        assert await store.pools.find(pool.pool_id) == pool

    async def test_pools_are_listed_oldest_first(self, store: Store, elapse: Elapse) -> None:
        made = []
        for _ in range(3):
            made.append((await store.pools.create(new_pool())).pool_id)
            await elapse(SECOND)

        assert [pool.pool_id for pool in await store.pools.list() if pool.pool_id in made] == made

    async def test_pools_can_be_listed_by_kind(self, store: Store) -> None:
        made = {kind: (await store.pools.create(new_pool(kind))).pool_id for kind in PoolKind}

        listed = {pool.pool_id: pool.kind for pool in await store.pools.list(PoolKind.JOBS)}

        assert set(listed.values()) == {PoolKind.JOBS}
        assert listed.keys() & set(made.values()) == {made[PoolKind.JOBS]}

    async def test_a_change_touches_only_what_it_names(self, store: Store, pool: PoolRow) -> None:
        pause = (await store.now()).replace(microsecond=0) + timedelta(hours=1)
        given = PoolChange(policy={"max": 3, "empty": [], "none": None}, dropped=tuple(pool.policy), paused_until=pause)
        saved = await store.pools.change(pool.pool_id, given)
        jobs = PRESETS[PoolKind.JOBS]

        capped = await store.pools.change(pool.pool_id, PoolChange(policy={"max": 4, "new": {}}))
        slow = await store.pools.change(pool.pool_id, PoolChange(thresholds=jobs))
        resumed = await store.pools.change(pool.pool_id, PoolChange(resumed=True))

        policy = {"max": 4, "empty": [], "none": None, "new": {}}
        assert capped == replace(saved, policy=policy)
        assert slow == replace(saved, policy=policy, thresholds=jobs)
        assert resumed == replace(saved, policy=policy, thresholds=jobs, paused_until=None)
        assert await store.pools.get(pool.pool_id) == resumed
        assert (await store.pools.change(pool.pool_id, PoolChange(paused_until=pause))).paused_until == pause

    async def test_a_change_may_drop_names_of_the_policy(self, store: Store, pool: PoolRow) -> None:
        given = PoolChange(policy={"max": 3, "old": 1, "kept": [1]}, dropped=tuple(pool.policy))
        await store.pools.change(pool.pool_id, given)

        changed = await store.pools.change(pool.pool_id, PoolChange(policy={"max": 4}, dropped=("old", "max", "unknown")))
        dropped = await store.pools.change(pool.pool_id, PoolChange(dropped=["max"]))

        assert (changed.policy, dropped.policy) == ({"max": 4, "kept": [1]}, {"kept": [1]})

    async def test_a_pause_until_a_time_that_is_too_late_for_a_datetime_in_utc_is_read(
        self, store: Store, pool: PoolRow
    ) -> None:
        too_late = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12)))

        await store.pools.change(pool.pool_id, PoolChange(paused_until=too_late))

        paused = (await store.pools.get(pool.pool_id)).paused_until
        assert paused is not None
        assert paused.year == 9999

    async def test_changes_at_once_never_undo_each_other(self, store: Store, pool: PoolRow) -> None:
        pause = (await store.now()).replace(microsecond=0) + timedelta(hours=1)
        changes = [PoolChange(policy={f"key {n}": n}) for n in range(12)]
        changes.insert(6, PoolChange(paused_until=pause))
        changes.insert(9, PoolChange(thresholds=PRESETS[PoolKind.JOBS]))

        await asyncio.gather(*(store.pools.change(pool.pool_id, change) for change in changes))

        found = await store.pools.get(pool.pool_id)
        assert found.policy == {**pool.policy, **{f"key {n}": n for n in range(12)}}
        assert (found.paused_until, found.thresholds) == (pause, PRESETS[PoolKind.JOBS])

    async def test_a_change_is_refused_if_the_policy_is_not_as_expected(self, store: Store, pool: PoolRow) -> None:
        was = {"s": {"a": [1, 2.5, None]}, "t": 1}
        found = await store.pools.change(pool.pool_id, PoolChange(policy=was))
        pause = (await store.now()).replace(microsecond=0) + timedelta(hours=1)

        for expected in ({"s": {"a": [1, 2.5]}}, {"s": None}, {"t": 1, "new": 1}):
            with pytest.raises(StaleWrite, match=pool.pool_id):
                await store.pools.change(pool.pool_id, PoolChange(policy={"s": 0}, dropped=["t"], expected=expected))
            with pytest.raises(StaleWrite, match=pool.pool_id):
                await store.pools.change(pool.pool_id, PoolChange(paused_until=pause, expected=expected))
        assert await store.pools.get(pool.pool_id) == found

        changed = await store.pools.change(pool.pool_id, PoolChange(policy={"s": 0}, expected={**was, "new": None}))

        assert changed.policy == {**pool.policy, "s": 0, "t": 1}

    async def test_changes_at_once_that_expect_what_they_read_are_all_kept(self, store: Store, pool: PoolRow) -> None:
        async def count() -> int:
            tries = 0
            while True:
                tries += 1
                was = (await store.pools.get(pool.pool_id)).policy.get("n")
                try:
                    await store.pools.change(pool.pool_id, PoolChange(policy={"n": (was or 0) + 1}, expected={"n": was}))
                    return tries
                except StaleWrite:
                    await asyncio.sleep(0)

        await asyncio.gather(*(count() for _ in range(6)))

        assert (await store.pools.get(pool.pool_id)).policy["n"] == 6

    async def test_an_unknown_pool_is_not_changed(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.pools.change(PoolId(unique("never-made")), PoolChange(policy={"max": 5}))

    async def test_an_outdated_controller_changes_no_pool(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        with pytest.raises(Fenced):
            await store.pools.change(pool.pool_id, PoolChange(policy={"max": 5}), fence=await outdated(store, lease))

        assert await store.pools.get(pool.pool_id) == pool

    async def test_the_holder_of_the_lease_may_change_a_pool(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        await store.pools.change(pool.pool_id, PoolChange(policy={"max": 5}), fence=lease.fence)

        assert (await store.pools.get(pool.pool_id)).policy == {**pool.policy, "max": 5}

    async def test_a_pool_with_live_workers_is_not_deleted(self, store: Store, pool: PoolRow) -> None:
        worker = await added(store, pool)

        with pytest.raises(Refused, match=pool.pool_id):
            await store.pools.delete(pool.pool_id)

        assert await store.workers.list(pool.pool_id) == [worker]
        assert len(await store.events.read(pool.pool_id, 0)) == 1

    async def test_all_that_belongs_to_a_pool_goes_with_it(self, store: Store) -> None:
        run = await new_run(store)
        pool = await store.pools.get(PoolId(run.run_id))
        worker = await joined(store, pool)
        await store.membership.beat(heartbeat(worker, sample=sample(1, 10)))
        await moved(store, worker, WorkerStatus.TERMINATED)
        await store.beats.append(pool.pool_id, NewBeat(owner="a", epoch=1, view=None))
        await store.logs.append(pool.pool_id, [NewLog(level="INFO", logger="x", message="said")])

        await store.pools.delete(pool.pool_id)

        assert await store.pools.find(pool.pool_id) is None
        assert await store.workers.list(pool.pool_id) == []
        assert await store.events.read(pool.pool_id, 0) == []
        assert await store.samples.list(pool.pool_id) == []
        assert await store.beats.last(pool.pool_id) is None
        assert await store.logs.list(pool.pool_id) == []
        with pytest.raises(NotFound):
            await store.runs.get(run.run_id)

    async def test_deleting_touches_no_other_pool(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        worker = await added(store, other)

        await store.pools.delete(pool.pool_id)

        assert await store.pools.get(other.pool_id) == other
        assert await store.workers.list(other.pool_id) == [worker]

    async def test_deleting_again_is_harmless(self, store: Store, pool: PoolRow) -> None:
        await store.pools.delete(pool.pool_id)
        await store.pools.delete(pool.pool_id)
        await store.pools.delete(PoolId(unique("never-made")))

        assert await store.pools.find(pool.pool_id) is None

    @pytest.mark.parametrize("state", ["ready", "delayed", "waiting", "claimed"])
    async def test_a_pool_is_deleted_with_its_unfinished_jobs_only_if_told_so(self, store: Store, state: str) -> None:
        pool, other = await store.pools.create(new_pool()), await store.pools.create(new_pool())
        after = await pushed(store, other, "parent") if state == "waiting" else []
        [job_id] = await pushed(store, pool, 1, after=after, delay=timedelta(hours=1 if state == "delayed" else 0))
        if state == "claimed":
            await claimed(store, pool)

        with pytest.raises(Refused, match=f"pool '{pool.pool_id}' has unfinished jobs"):
            await store.pools.delete(pool.pool_id, unfinished=False)
        assert (await store.jobs.get(job_id)).status in UNFINISHED
        await store.pools.delete(pool.pool_id)

        with pytest.raises(NotFound):
            await store.jobs.get(job_id)

    async def test_a_pool_whose_jobs_have_all_ended_is_deleted(self, store: Store, pool: PoolRow) -> None:
        done, poisoned, cancelled = await pushed(store, pool, 1, 2, 3)
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool))])
        await failed(store, pool, fatal=True)
        await store.jobs.cancel([cancelled])

        await store.pools.delete(pool.pool_id, unfinished=False)

        for job_id in (done, poisoned, cancelled):
            with pytest.raises(NotFound):
                await store.jobs.get(job_id)

    async def test_a_push_during_the_deletion_of_its_pool_leaves_no_job_without_a_pool(self, store: Store) -> None:
        for _ in range(8):
            pool = await store.pools.create(new_pool())
            pushes = (pushed(store, pool, 1), pushed(store, pool, 2, 3), pushed(store, pool, 4, unique_key="k"))

            *found, _ = await asyncio.gather(
                *pushes, store.pools.delete(pool.pool_id, unfinished=False), return_exceptions=True
            )

            ids = [job_id for each in found if isinstance(each, list) for job_id in each]
            assert all(isinstance(each, list | NotFound) for each in found)
            if await store.pools.find(pool.pool_id) is not None:
                assert [job.job_id for job in await store.jobs.list(pool.pool_id)] == sorted(ids)
            else:
                assert ids == []

    async def test_a_recreated_pool_numbers_its_events_from_one(self, store: Store, pool: PoolRow) -> None:
        await store.events.append(pool.pool_id, [start(1), start(2)])
        await store.pools.delete(pool.pool_id)
        await store.pools.create(pool)

        await store.events.append(pool.pool_id, [start(3)])

        assert await event_types(store, pool.pool_id) == [(1, "START")]
