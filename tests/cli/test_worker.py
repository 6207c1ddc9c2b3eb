"""drumbeat worker as a real process: it joins, works and leaves, and its exit code says how."""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cli.given import FAST, PATIENCE, POOL, started
from drumbeat.core import event
from drumbeat.core.errors import StaleWrite
from drumbeat.core.pool import PoolKind, Thresholds, pool
from drumbeat.core.worker import ExitCode, Worker, WorkerId, WorkerStatus
from drumbeat.store import Store, open_store
from servers.postgres import PostgresServer

ME = WorkerId("w1")
ARGUMENTS = ("worker", "--run-id", POOL, "--worker-id", ME, "--worker-group-id", "1", "--worker-group-count", "3")
MOMENT = timedelta(milliseconds=300)


@asynccontextmanager
async def home(url: str, limits: Thresholds = FAST, kind: PoolKind = PoolKind.FLEET) -> AsyncIterator[Store]:
    """A store with one pool, in which nobody has been told to start."""
    async with open_store(url, create=True) as store:
        await store.pools.create(pool(POOL, kind, limits))
        yield store


@contextmanager
def worker(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    with started(*ARGUMENTS, cwd=folder, DRUMBEAT_STORE=url) as process:
        yield process


async def until(wish: Callable[[], Awaitable[bool]], what: str) -> None:
    """Return once the wish is true; fails after a while."""
    deadline = time.monotonic() + PATIENCE
    while not await wish():
        assert time.monotonic() < deadline, f"expected within {PATIENCE:.0f} s: {what}"
        await asyncio.sleep(0.02)


async def becomes(store: Store, status: WorkerStatus) -> Worker:
    """The worker's row, once it is in this state."""

    async def wish() -> bool:
        return any(row.worker_id == ME and row.status is status for row in await store.workers.list(POOL))

    await until(wish, f"a worker that is {status}")
    return await store.workers.get(POOL, ME)


async def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it said."""
    _, errors = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    return process.returncode, errors


async def test_a_worker_joins_and_waits_for_start(url: str, tmp_path: Path) -> None:
    async with home(url) as store:
        with worker(url, tmp_path) as process:
            row = await becomes(store, WorkerStatus.WAITING)

            assert (row.worker_id, row.slot, row.pid) == (ME, 1, process.pid)
            assert row.host


async def test_a_started_worker_is_active_and_beats(url: str, tmp_path: Path) -> None:
    async with home(url) as store:
        await store.events.append(POOL, [event.start(1)])
        with worker(url, tmp_path):
            first = await becomes(store, WorkerStatus.ACTIVE)

            async def beats() -> bool:
                row = await store.workers.get(POOL, ME)
                return row.heartbeat_count > first.heartbeat_count + 3 and len(await store.samples.list(POOL)) >= 3

            await until(beats, "more heartbeats, with samples")

        assert [sample.worker_id for sample in await store.samples.list(POOL)][:3] == [ME] * 3


async def test_a_row_that_was_made_before_is_taken(url: str, tmp_path: Path) -> None:
    async with home(url) as store:
        await store.workers.add([Worker(pool_id=POOL, worker_id=ME, slot=1, provider="local")])
        with worker(url, tmp_path):
            assert (await becomes(store, WorkerStatus.WAITING)).provider == "local"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signalled_worker_drains_and_leaves(url: str, tmp_path: Path, number: signal.Signals) -> None:
    async with home(url) as store:
        await store.events.append(POOL, [event.start(1)])
        with worker(url, tmp_path) as process:
            await becomes(store, WorkerStatus.ACTIVE)
            process.send_signal(number)
            code, _ = await ended(process)

        row = await store.workers.get(POOL, ME)
        assert code == ExitCode.CLEAN
        assert (row.status, row.exit_code, row.error) == (WorkerStatus.TERMINATED, 0, None)
        moved = [told.payload["to"] for told in await store.events.read(POOL, 0) if told.type == event.EventType.WORKER_MOVED]
        assert [each for each in moved if each != "draining"] == ["starting", "waiting", "active", "terminated"]
        assert moved.index("terminated") == len(moved) - 1  # a drain that is over at once may be passed over


@pytest.mark.parametrize("is_started", [True, False])
async def test_a_worker_that_is_told_to_stop_leaves(url: str, tmp_path: Path, is_started: bool) -> None:
    async with home(url) as store:
        await store.events.append(POOL, [event.start(1)] if is_started else [])
        with worker(url, tmp_path) as process:
            await becomes(store, WorkerStatus.ACTIVE if is_started else WorkerStatus.WAITING)
            await store.events.append(POOL, [event.stop("enough")])
            code, errors = await ended(process)

        assert code == ExitCode.CLEAN
        assert (await store.workers.get(POOL, ME)).status is WorkerStatus.TERMINATED
        assert "this worker ends: enough" in errors


async def test_a_worker_without_start_gives_up(url: str, tmp_path: Path) -> None:
    async with home(url, replace(FAST, start_within=MOMENT)) as store:
        with worker(url, tmp_path) as process:
            code, errors = await ended(process)

        row = await store.workers.get(POOL, ME)
        assert code == ExitCode.START_TIMEOUT
        assert (row.status, row.exit_code) == (WorkerStatus.ERROR, 3)
        assert row.error == "expected START within 0.3 s of being ready, got none"
        assert "Traceback" not in errors


async def test_a_worker_whose_store_vanishes_gives_up(private_postgres: PostgresServer, tmp_path: Path) -> None:
    url = f"{private_postgres.new_database()}?command_timeout=1&connect_timeout=1"
    limits = replace(FAST, stale_after=timedelta(seconds=1), give_up_after=timedelta(seconds=2))
    async with home(url, limits) as store:
        with worker(url, tmp_path) as process:
            await becomes(store, WorkerStatus.WAITING)
            private_postgres.kill()
            code, errors = await ended(process)

    assert code == ExitCode.STORE_LOST
    assert "the store has not answered for" in errors


async def test_a_worker_whose_controller_is_gone_leaves(url: str, tmp_path: Path) -> None:
    async with home(url, replace(FAST, controller_gone_after=MOMENT)) as store:
        await store.events.append(POOL, [event.start(1)])
        assert await store.leases.acquire(POOL, "a controller that died", timedelta(milliseconds=1))
        with worker(url, tmp_path) as process:
            code, _ = await ended(process)

        row = await store.workers.get(POOL, ME)
        assert code == ExitCode.CONTROLLER_GONE
        assert (row.status, row.exit_code) == (WorkerStatus.ERROR, 5)
        assert row.error is not None
        assert row.error.startswith("no controller has renewed its lease since")


async def test_a_worker_whose_row_is_closed_leaves(url: str, tmp_path: Path) -> None:
    async with home(url) as store:
        with worker(url, tmp_path) as process:
            await becomes(store, WorkerStatus.WAITING)

            async def closed() -> bool:
                try:
                    await store.workers.move(await store.workers.get(POOL, ME), WorkerStatus.LOST, "silent")
                except StaleWrite:
                    return False
                return True

            await until(closed, "a closed row")
            code, _ = await ended(process)

        assert code == ExitCode.STORE_LOST
        assert (await store.workers.get(POOL, ME)).status is WorkerStatus.LOST


async def test_a_second_worker_of_one_name_is_refused(url: str, tmp_path: Path) -> None:
    async with home(url) as store:
        with worker(url, tmp_path) as first:
            await becomes(store, WorkerStatus.WAITING)
            with worker(url, tmp_path) as second:
                code, errors = await ended(second)

            assert code == ExitCode.CONFIGURATION
            assert f"pid {first.pid}" in errors
            assert (await store.workers.get(POOL, ME)).pid == first.pid


async def test_a_pool_of_jobs_without_a_handler_is_refused(url: str, tmp_path: Path) -> None:
    async with home(url, kind=PoolKind.JOBS):
        with worker(url, tmp_path) as process:
            code, errors = await ended(process)

    assert code == ExitCode.CONFIGURATION
    assert "expected a handler, got none" in errors
    assert "Traceback" not in errors


async def test_what_a_worker_logs_is_kept_in_the_store(url: str, tmp_path: Path) -> None:
    async with home(url, replace(FAST, start_within=MOMENT)) as store:
        with worker(url, tmp_path) as process:
            await ended(process)

        lines = await store.logs.list(POOL, level="ERROR")
        assert [(line.worker_id, line.message) for line in lines] == [
            (ME, "this worker ends: expected START within 0.3 s of being ready, got none")
        ]
