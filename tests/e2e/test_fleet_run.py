"""The fleet's daemon as a process: it leaves when told to, another leads at once, it beats as often as it is told."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import IO, Any
from uuid import uuid4

import psutil
import pytest

from cli.given import drumbeat, environment, filled_pipe, processes_of
from drumbeat.core.job import NewJob
from drumbeat.core.pool import PoolId
from drumbeat.store import Store, open_store
from e2e.processes import PATIENCE, eventually

pytestmark = pytest.mark.slow

POOL = PoolId("p")
SEED_SUMMARY = {
    "actions": {"workers_promoted", "workers_failed", "workers_spawned", "workers_terminated", "tasks_reset"},
    "status": {"queued_tasks", "spawning_workers", "active_workers", "terminating_workers", "total_workers"},
}
QUICK = (
    "min_workers=0",
    "max_workers=2",
    "idle_timeout=0.5s",
    "overcapacity_idle_timeout=0.5s",
    "stabilisation=0.5s",
    "turn_after=0s",
)


class Daemon:
    """One ``drumbeat fleet run``, and the cycles it has printed."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.printed = folder / f"printed-{uuid4().hex}"
        with self.printed.open("wb") as out:
            self.process = start(folder, out, DEVNULL, **variables)

    async def ended(self) -> tuple[int, list[dict[str, Any]]]:
        """Once it was told to stop: its exit code, and what it printed."""
        self.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(self.process.wait, PATIENCE)
        return code, [json.loads(line) for line in self.printed.read_text().splitlines()]


_DAEMONS: list[subprocess.Popen[bytes]] = []


def start(folder: Path, out: IO[bytes] | int, errors: IO[bytes] | int, **variables: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "drumbeat", "fleet", "run", POOL]
    _DAEMONS.append(subprocess.Popen(command, cwd=folder, env=environment(**variables), stdout=out, stderr=errors))
    return _DAEMONS[-1]


@asynccontextmanager
async def fleet(folder: Path, *settings: str) -> AsyncIterator[Store]:
    """A pool that is scaled, and its store; no worker is left."""
    told = [word for one in (*QUICK, *settings) for word in ("--set", one)]
    made = await asyncio.to_thread(
        drumbeat, "fleet", "create", POOL, "--policy", "queue_cover", "--handler", "command:cat", *told, cwd=folder
    )
    assert made.code == 0, made
    async with open_store(f"sqlite:///{folder}/drumbeat.db") as store:
        try:
            yield store
        finally:
            for daemon in _DAEMONS:
                daemon.kill()
                daemon.wait()
            _DAEMONS.clear()
            for process in processes_of(folder):
                with contextlib.suppress(psutil.Error):
                    process.kill()


async def beats(store: Store, least: int) -> bool:
    return len(await store.beats.list(POOL)) >= least


async def test_a_daemon_scales_up_and_down_prints_each_cycle_and_leaves_when_told(tmp_path: Path) -> None:
    async with fleet(tmp_path, "every=0.5s") as store:
        await store.queue.push(POOL, [NewJob(payload=n) for n in range(4)])
        daemon = Daemon(tmp_path)

        async def over() -> bool:
            rows = await store.workers.list(POOL)
            return bool(rows) and (await store.jobs.counts(POOL)).done == 4 and all(row.reaped_at for row in rows)

        await eventually(over, "four jobs are done and nobody is left")
        code, cycles = await daemon.ended()

        assert code == 0
        assert processes_of(tmp_path) == []
        whole = [cycle for cycle in cycles if not cycle["failed"]]  # on a starved machine a beat may fail
        assert all({*cycle[name]} == fields for cycle in whole for name, fields in SEED_SUMMARY.items())
        spawned = [action for cycle in cycles for action in cycle["done"] if action["type"] == "Spawn"]
        assert {action["worker_id"] for action in spawned} >= {row.worker_id for row in await store.workers.list(POOL)}
        assert 0 < sum(cycle["actions"]["workers_spawned"] for cycle in whole) <= len(spawned)
        assert [cycle["timestamp"] for cycle in whole] == sorted(cycle["timestamp"] for cycle in whole)


async def test_when_one_daemon_leaves_another_leads_at_once(tmp_path: Path) -> None:
    async with fleet(tmp_path, "every=6s") as store:  # a lease of 9 s is not lost on a busy machine
        first = Daemon(tmp_path)
        await eventually(lambda: beats(store, 2), "the first beats")
        second = Daemon(tmp_path)
        await asyncio.sleep(0)
        leader = (await store.beats.list(POOL))[-1].owner

        code, cycles = await first.ended()
        led = len(await store.beats.list(POOL))
        await eventually(lambda: beats(store, led + 2), "the second beats")
        other, _ = await second.ended()

        owners = [beat.owner for beat in await store.beats.list(POOL)]
        assert (code, other) == (0, 0)
        assert all(cycle["led"] for cycle in cycles)
        assert owners[-1] != leader
        assert owners == sorted(owners, key=owners.index)


async def test_a_daemon_heeds_the_variables_of_the_seed(tmp_path: Path) -> None:
    async with fleet(tmp_path, "every=1h") as store:
        daemon = Daemon(tmp_path, ORCHESTRATOR_POLL_SEC="0.3", MAX_ACTIVE_GPUS="7")
        await eventually(lambda: beats(store, 4), "it beats more than once an hour")
        code, _ = await daemon.ended()

        policy = (await store.pools.get(POOL)).policy
        assert code == 0
        assert (policy["every_seconds"], policy["max_workers"], policy["policy"]) == (0.3, 7, "queue_cover")
        assert policy["handlers"] == {"": "command:cat"}


async def test_a_daemon_whose_lines_nobody_reads_beats_on_and_tells_later_how_many_were_missed(tmp_path: Path) -> None:
    async with fleet(tmp_path, "every=0.3s") as store:
        with filled_pipe() as (reader, writer):
            daemon = start(tmp_path, writer, writer)
            await eventually(lambda: beats(store, 5), "it beats though nobody reads")
            seen = bytearray()

            async def told() -> bool:
                with contextlib.suppress(BlockingIOError):
                    seen.extend(os.read(reader, 65536))
                return any(b'"missed":' in line and line.startswith(b"{") for line in seen.split(b"\n")[:-1])

            await eventually(told, "a cycle that says how many were missed")
            daemon.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(daemon.wait, PATIENCE)

        cycles = [json.loads(line) for line in seen.split(b"\n")[:-1] if line.startswith(b"{")]
        assert code == 0
        assert next(cycle["missed"] for cycle in cycles if "missed" in cycle) >= 4
