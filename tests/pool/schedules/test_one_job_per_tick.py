"""One job for each tick on every store: with many processes at once, with kills in between, after jobs were deleted."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.pool.schedules.model import PROGRESS
from drumbeat.pool.schedules.tick_pusher import TickPusher
from drumbeat.store import open_store
from drumbeat.store.interface import Store
from drumbeat.store.memory import MemoryStore
from pool.schedules.given import MAIL, Planned
from servers.redis import RedisServer, Unavailable

POOLS = [PoolId(name) for name in ("mail", "print", "clean")]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    try:
        with RedisServer() as server:
            yield server
    except Unavailable as exc:
        pytest.skip(f"Redis is not available: {exc}")


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each kind."""
    if request.param == "memory":
        opened: Any = MemoryStore(ManualClock())
    else:
        opened = open_store(url_of(request, tmp_path), create=True)
    async with opened as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind that other processes can use."""
    return url_of(request, tmp_path)


def url_of(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder}/drumbeat.db"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis")
        return server.new_database()
    new_database: Callable[[], str] = request.getfixturevalue("new_database")
    return new_database()


class Killed(BaseException):
    """The process ends here, without a chance to clean up."""


class Breaking:
    """A table of a store whose n-th call of one method never happens, or is the last thing that a process does."""

    def __init__(self, inner: Any, method: str, n: int, *, before: bool, error: BaseException) -> None:
        self._inner, self._method, self._left, self._before, self._error = inner, method, n, before, error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != self._method:
            return found

        async def call(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and self._before:
                raise self._error
            answer = await found(*given, **named)
            if self._left == 0:
                raise self._error
            return answer

        return call


async def test_many_processes_push_one_job_for_each_tick_of_three_pools(any_store: Store) -> None:
    plans = [Planned(any_store, pool_id) for pool_id in POOLS]
    for plan in plans:
        await plan.schedules.add("hourly", {"of": plan.pool.pool_id}, cron="0 * * * *", missed="all")

    for hour in ("01", "02", "04"):
        for plan in plans:
            plan.go_to(f"2026-01-01 {hour}:00")
        await asyncio.gather(*(plan.look(f"process-{n}") for plan in plans for n in range(4)))

    for plan in plans:
        assert await plan.ticks() == ["01T0100", "01T0200", "01T0300", "01T0400"]
        assert {job.payload["of"] for job in await plan.jobs()} == {plan.pool.pool_id}


@pytest.mark.parametrize(
    ("table", "method", "n", "before"),
    [
        ("pools", "change", 1, True),
        ("pools", "change", 1, False),
        ("queue", "push", 1, True),
        ("queue", "push", 1, False),
        ("pools", "change", 2, True),
        ("pools", "change", 2, False),
    ],
    ids=["before all", "once noted", "before the push", "once pushed", "before it is confirmed", "once confirmed"],
)
async def test_a_process_that_dies_at_any_step_costs_no_tick_and_doubles_none(
    any_store: Store, table: str, method: str, n: int, before: bool
) -> None:
    plan = Planned(any_store)
    await plan.schedules.add("hourly", cron="0 * * * *")
    plan.go_to("2026-01-01 01:00")
    setattr(plan.store, table, Breaking(getattr(any_store, table), method, n, before=before, error=Killed()))
    plan.store.leases = Breaking(any_store.leases, "release", 1, before=True, error=Killed())

    with pytest.raises(Killed):
        await plan.look("killed")

    delattr(plan.store, table)
    del plan.store.leases
    lease = await any_store.leases.find(f"schedules/{MAIL}")
    assert lease is not None
    await any_store.leases.release(lease)  # it would expire
    assert await plan.look_at("2026-01-01 01:01") == ["01T0100"]
    assert await plan.look_at("2026-01-01 02:00") == ["01T0100", "01T0200"]


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_tick_does_not_come_again_after_its_job_was_deleted(any_store: Store, confirmed: bool) -> None:
    """Not even if the process that pushed it died before it could say so."""
    plan = Planned(any_store)
    await plan.schedules.add("hourly", cron="0 * * * *", missed="once")
    plan.go_to("2026-01-01 01:00")
    if confirmed:
        await plan.look()
    else:
        plan.store.pools = Breaking(any_store.pools, "change", 2, before=True, error=StoreUnavailable("gone"))
        with pytest.raises(StoreUnavailable):
            await plan.look()
        del plan.store.pools
    job = await plan.pool.claim()
    assert job is not None
    await plan.pool.complete(job)
    assert await any_store.jobs.prune(timedelta(seconds=-1), [JobStatus.DONE]) == 1

    found = await plan.look_at("2026-01-09 00:30")

    assert found == ["09T0000"]
    assert (await plan.pool.get()).policy[PROGRESS + "hourly"]["unconfirmed"] == []


async def test_a_process_that_lost_its_lease_while_it_pushed_changes_nothing(any_store: Store) -> None:
    plan = Planned(any_store)
    await plan.schedules.add("hourly", cron="0 * * * *", missed="all")
    plan.go_to("2026-01-01 01:00")
    slow = Planned(any_store)
    slow.go_to("2026-01-01 01:00")
    stopped, go_on = asyncio.Event(), asyncio.Event()

    class Stopping:
        async def push(self, *given: Any) -> Any:
            stopped.set()
            await go_on.wait()
            return await any_store.queue.push(*given)

    slow.store.queue = Stopping()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(slow.look("slow"))
        await stopped.wait()
        lease = await any_store.leases.find(f"schedules/{MAIL}")
        assert lease is not None
        await any_store.leases.release(lease)  # it would expire
        assert await plan.look_at("2026-01-01 02:00") == ["01T0100", "01T0200"]
        go_on.set()
        await task

    assert (await plan.pool.get()).policy[PROGRESS + "hourly"]["last"] == "2026-01-01T02:00:00+00:00"
    assert await plan.look_at("2026-01-01 03:00") == ["01T0100", "01T0200", "01T0300"]


async def test_a_process_that_was_stopped_for_long_pushes_nothing(store: MemoryStore) -> None:
    """Its lease may have expired; the process that took over might have pushed, and the job might be done and deleted."""
    plan = Planned(store)
    await plan.schedules.add("hourly", cron="0 * * * *")
    plan.go_to("2026-01-01 01:00")

    class Slow:
        async def change(self, *given: Any, **named: Any) -> Any:
            await plan.clock.advance(timedelta(seconds=11))
            return await store.pools.change(*given, **named)

        def __getattr__(self, name: str) -> Any:
            return getattr(store.pools, name)

    plan.store.pools = Slow()
    await plan.look("slow")
    assert await plan.ticks() == []

    del plan.store.pools
    assert await plan.look_at("2026-01-01 01:01") == ["01T0100"]


async def test_a_schedule_that_cannot_be_read_does_not_stop_the_others(store: MemoryStore) -> None:
    from drumbeat.store.interface import PoolChange

    plan = Planned(store)
    await plan.schedules.add("good", cron="0 * * * *")
    await plan.store.pools.change(MAIL, PoolChange(policy={"schedule/bad": {"cron": "x"}}))

    assert await plan.look_at("2026-01-01 01:00") == ["01T0100"]


async def test_a_look_says_how_long_to_wait_and_that_somebody_looks(store: MemoryStore) -> None:
    plan = Planned(store)
    await plan.schedules.add("s", cron="0 * * * *")
    assert "no process has looked after the schedules of mail yet" in str((await plan.schedules.get("s")).problem)
    plan.store.time = await store.now()

    wait = await plan.look()

    assert wait is not None
    assert timedelta() < wait <= timedelta(hours=1)
    assert (await plan.schedules.list())[0].problem is None
    plan.store.time += timedelta(hours=2)
    assert "no process has looked after the schedules of mail for 2 h" in str((await plan.schedules.get("s")).problem)
    assert "\n".join((await plan.schedules.get("s")).lines).count("drumbeat pool work mail") == 1


LOOKER = """
import asyncio, os, signal, sys
from drumbeat.core.clock import SystemClock
from drumbeat.pool.schedules.tick_pusher import TickPusher
from drumbeat.store import open_store

async def main(url, dies_at):
    async with open_store(url) as store:
        if dies_at:
            real = store.queue.push
            async def push(*given):
                await real(*given)
                os.kill(os.getpid(), signal.SIGKILL)
            store.queue.push = push
        pool = await store.pools.get("mail")
        print("ready", flush=True)
        sys.stdin.readline()
        await TickPusher(store, SystemClock(), f"process-{os.getpid()}").push_due(pool)

asyncio.run(main(*sys.argv[1:]))
"""


def start_looker(url: str, dies_at: str) -> "subprocess.Popen[str]":
    started = subprocess.Popen(
        [sys.executable, "-c", LOOKER, url, dies_at], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def finish(process: "subprocess.Popen[str]") -> int:
    process.communicate("\n", timeout=60)
    return process.returncode


async def test_after_kill_9_between_push_and_note_other_processes_push_the_tick_once(shared_url: str) -> None:
    async with open_store(shared_url, create=True) as store:
        plan = Planned(store)
        real = await store.now()
        plan.store.time = real - timedelta(hours=1)
        await plan.schedules.add("s", every=timedelta(minutes=59))

        killed, *others = await asyncio.gather(*(asyncio.to_thread(start_looker, shared_url, end) for end in ("after", "", "")))
        assert finish(killed) == -signal.SIGKILL
        lease = await store.leases.find(f"schedules/{MAIL}")
        assert lease is not None
        await store.leases.release(lease)  # it would expire
        assert await asyncio.gather(*(asyncio.to_thread(finish, each) for each in others)) == [0, 0]

        assert len(await plan.jobs()) == 1
        plan.store.time = await store.now()
        await TickPusher(plan.store, plan.clock, "last").push_due(await store.pools.get(MAIL))
        assert len(await plan.jobs()) == 1
        assert (await plan.pool.get()).policy[PROGRESS + "s"]["unconfirmed"] == []
