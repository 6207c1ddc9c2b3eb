"""Jobs that come due while nobody works: who watches for them, and when workers are started."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import IfFailed, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.pool.checker import Checker
from drumbeat.pool.due_jobs import HELD, DueJobWatcher, is_watched, when_due
from drumbeat.store.interface import PoolChange
from pool.seen import POOL, name, seconds
from pool.stage import Stage


class Watcher:
    """Watches the stage's pool, and counts the wakes; each is a check."""

    def __init__(self, stage: Stage, owner: str = "watcher") -> None:
        self.stage = stage
        self.woken: list[PoolId] = []
        self.watch = DueJobWatcher(stage.store, stage.clock, owner, self._wake)

    async def _wake(self, pool_id: PoolId) -> None:
        self.woken.append(pool_id)
        await self.stage.checker.check(pool_id)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["asyncio.Task[None]"]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.watch.watch(POOL))
            await self.stage.clock.advance(seconds(0), settle=300)
            yield task
            task.cancel()


async def test_a_pool_is_woken_when_its_jobs_come_due_and_left_when_none_are_pending() -> None:
    stage = await Stage().open()
    await stage.push(2, delay=seconds(300))
    watcher = Watcher(stage)

    async with watcher.watching() as task:
        await stage.clock.advance(seconds(299), settle=300)
        early = list(watcher.woken)
        await stage.clock.advance(seconds(2), settle=300)
        started = await stage.spawned()
        for slot, worker_id in enumerate(started):
            await stage.join(worker_id, slot)
            job = await stage.claim(worker_id)
            assert job is not None
            await stage.finish(job)
        await stage.clock.advance(seconds(30), settle=300)

    assert (early, watcher.woken, started) == ([], [POOL], [name(0), name(1)])
    assert (task.cancelled(), await is_watched(stage.store, POOL)) == (False, False)


async def test_one_process_watches_a_pool_and_another_takes_over_from_one_that_died() -> None:
    stage = await Stage().open()
    await stage.push(1, delay=seconds(3600))
    first, second = Watcher(stage, "first"), Watcher(stage, "second")

    async with first.watching():
        await second.watch.watch(POOL)
        watched = await is_watched(stage.store, POOL)
    await stage.store.leases.acquire("due/pool/papers", "one that is killed", HELD)
    await second.watch.watch(POOL)
    await stage.clock.advance(HELD + seconds(1), settle=300)
    async with second.watching():
        await stage.clock.advance(seconds(3600), settle=300)

    assert (watched, first.woken, set(second.woken)) == (True, [], {POOL})


async def test_a_worker_that_is_busy_for_long_keeps_nobody_from_starting_more() -> None:
    stage = await Stage().open(max_workers=2)
    await stage.push(1)
    await stage.join(name(0))
    assert await stage.claim(name(0)) is not None
    await stage.push(1, delay=seconds(10))
    watcher = Watcher(stage)

    async with watcher.watching():
        await stage.clock.advance(seconds(9), settle=300)
        early = list(watcher.woken)
        await stage.clock.advance(seconds(2), settle=300)
        await stage.beat(name(0))

    assert (early, watcher.woken, await stage.spawned()) == ([], [POOL], [name(1)])


@pytest.mark.parametrize(
    "policy",
    [{"handlers": {"other": "m:f"}}, {"policy": "fixed"}, {}],
    ids=["no handler", "a fleet's", "nothing is pending"],
)
async def test_a_pool_that_no_check_could_help_is_not_watched(policy: dict[str, object]) -> None:
    stage = await Stage().open(**policy)
    if policy:
        await stage.push(1, delay=seconds(5))
    watcher = Watcher(stage)

    async with watcher.watching() as task:
        await stage.clock.advance(seconds(1), settle=300)
        assert task.done()

    assert (await when_due(stage.store, POOL)).wait is None


async def test_a_job_that_waits_for_one_of_another_pool_is_noticed_when_it_is_ready() -> None:
    stage = await Stage().open()
    other = PoolId("other")
    await stage.store.pools.create(pool(other, PoolKind.JOBS))
    [parent] = await stage.store.queue.push(other, [NewJob(payload=1)])
    await stage.push(1, after=(parent,), if_failed=IfFailed.RUN)
    watcher = Watcher(stage)

    async with watcher.watching():
        await stage.clock.advance(seconds(60), settle=300)
        early = list(watcher.woken)
        await stage.store.jobs.cancel([parent])
        await stage.clock.advance(seconds(6), settle=300)

    assert (early, watcher.woken[:1]) == ([], [POOL])


async def test_a_paused_pool_is_woken_after_its_pause() -> None:
    stage = await Stage().open()
    await stage.push(1, delay=seconds(5))
    await stage.store.pools.change(POOL, PoolChange(paused_until=stage.clock.now() + seconds(100)))
    watcher = Watcher(stage)

    async with watcher.watching():
        await stage.clock.advance(seconds(99), settle=300)
        early = list(watcher.woken)
        await stage.clock.advance(seconds(2), settle=300)

    assert (early, watcher.woken) == ([], [POOL])


async def test_a_store_that_is_away_for_a_while_ends_no_watch() -> None:
    stage = await Stage().open()
    await stage.push(1, delay=seconds(60))
    watcher = Watcher(stage)

    async with watcher.watching():
        stage.store.fail_next(3)
        await stage.clock.advance(seconds(61), settle=300)

    assert watcher.woken == [POOL]


async def test_of_the_processes_in_one_place_one_looks_and_it_watches_every_pool_with_pending_jobs() -> None:
    stage = await Stage().open()
    await stage.push(1, delay=seconds(60))
    first, second = Watcher(stage, "first"), Watcher(stage, "second")

    async def pools() -> list[PoolId]:
        return [POOL, PoolId("gone")]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.watch.keep(pools, "here")) for each in (first, second)]
        await stage.clock.advance(seconds(80), settle=300)
        for task in tasks:
            task.cancel()

    assert (set(first.woken), second.woken) == ({POOL}, [])


async def test_who_is_cancelled_lets_another_watch_at_once() -> None:
    stage = await Stage().open()
    await stage.push(1, delay=seconds(60))

    async def pools() -> list[PoolId]:
        return [POOL]

    for owner in ("first", "second"):
        watcher = Watcher(stage, owner)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(watcher.watch.keep(pools, "here"))
            await stage.clock.advance(seconds(1), settle=300)
            watched = await is_watched(stage.store, POOL)
            task.cancel()
        assert (watched, await is_watched(stage.store, POOL)) == (True, False), owner


async def test_a_check_or_a_worker_that_leaves_has_somebody_watch_for_what_comes_due() -> None:
    stage = await Stage().open()
    asked: list[PoolId] = []

    async def ask(pool_id: PoolId) -> None:
        asked.append(pool_id)
        if len(asked) > 1:
            raise StoreUnavailable("gone")

    checker = Checker(stage.store, stage.clock, lambda: "check", lambda engine: stage.spawner, ask)
    await checker.check(POOL)
    nothing_pending = list(asked)
    await stage.push(1, delay=seconds(60))
    await checker.check(POOL)
    await checker.after_exit(POOL, jobs_done=0)
    async with Watcher(stage).watching():
        await checker.after_exit(POOL, jobs_done=3)

    assert (nothing_pending, asked) == ([], [POOL, POOL])


async def test_what_comes_due_is_watched_for_while_others_are_ready_that_nobody_may_claim() -> None:
    stage = await Stage().open()
    await stage.push(1)
    asked: list[PoolId] = []

    async def ask(pool_id: PoolId) -> None:
        asked.append(pool_id)

    checker = Checker(stage.store, stage.clock, lambda: "check", lambda engine: stage.spawner, ask)
    await checker.after_exit(POOL, jobs_done=0)
    only_ready = list(asked)
    await stage.push(1, delay=seconds(60))
    await checker.after_exit(POOL, jobs_done=0)

    assert (only_ready, asked) == ([], [POOL])


async def test_jobs_that_wait_for_others_are_watched_for_while_others_are_ready() -> None:
    stage = await Stage().open()
    [parent] = await stage.store.queue.push(POOL, [NewJob(payload=1)])
    asked: list[PoolId] = []

    async def ask(pool_id: PoolId) -> None:
        asked.append(pool_id)

    checker = Checker(stage.store, stage.clock, lambda: "check", lambda engine: stage.spawner, ask)
    await checker.check(POOL)
    only_ready = list(asked)
    await stage.push(1, after=(parent,))
    await checker.check(POOL)

    assert (only_ready, asked) == ([], [POOL])


async def test_a_pool_is_woken_at_once_for_a_job_that_comes_due_beside_those_that_stay_ready() -> None:
    stage = await Stage().open()
    await stage.push(1)
    watcher = Watcher(stage)
    when: list[float] = []

    async def wake(pool_id: PoolId) -> None:
        when.append(stage.clock.elapsed() / seconds(1) - began)

    watcher.watch = DueJobWatcher(stage.store, stage.clock, "watcher", wake)
    began = stage.clock.elapsed() / seconds(1)
    async with watcher.watching():
        await stage.clock.advance(seconds(600), settle=300)
        await stage.push(1, delay=seconds(60))
        first = len(when)
        await stage.clock.advance(seconds(61), settle=300)

    assert when[:4] == [0, 2, 6, 14]
    assert 660 <= when[first] <= 661
