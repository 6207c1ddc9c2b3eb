"""A fleet on RunPod from the command line: real commands, the API on a socket of this machine, pods that really work."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.given import Said, drumbeat, environment
from drumbeat.core.job import JobStatus, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker
from drumbeat.store import Store, open_store
from drumbeat.store.interface import PoolChange
from e2e.pods import CEILING, CHEAP, LivingSimulator, pods_here
from e2e.processes import PATIENCE, eventually
from spawn.runpod.simulator import KEY

pytestmark = pytest.mark.slow

POOL = PoolId("gpus")
JOBS = 12
HANDLERS = """
import time

def nap(payload):
    time.sleep(1)
    return payload
"""


class Rented:
    """A pool whose workers are rented, and the commands of whoever runs it."""

    def __init__(self, store: Store, url: str, folder: Path, variables: dict[str, str]) -> None:
        self.store = store
        self.folder = folder
        self.variables = {"DRUMBEAT_STORE": url, "DRUMBEAT_STATE_DIR": str(folder / "state"), **variables}
        self.heard: list[str] = []

    async def command(self, *arguments: str, code: int = 0) -> Said:
        said = await self.run_command(*arguments)
        assert said.code == code, said
        return said

    async def run_command(self, *arguments: str) -> Said:
        """Run a command, whatever its exit code."""
        said = await asyncio.to_thread(drumbeat, *arguments, cwd=self.folder, **self.variables)
        self.heard += [said.output, said.errors]
        return said

    async def told(self, *arguments: str) -> Any:
        return json.loads((await self.command(*arguments, "--json")).output)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "drumbeat", *arguments]
        with (self.folder / "printed").open("wb") as out, (self.folder / "logged").open("wb") as log:
            return subprocess.Popen(command, cwd=self.folder, env=environment(**self.variables), stdout=out, stderr=log)

    async def create(self) -> None:
        (self.folder / "handlers.py").write_text(HANDLERS)
        bounds = [
            word for one in ("min_workers=0", "max_workers=3", "every=0.5s", "billing_granule=1s") for word in ("--set", one)
        ]
        await self.command("fleet", "create", POOL, "--provider", "runpod", "--handler", "handlers:nap", *bounds)
        home = await self.store.pools.get(POOL)
        quick = replace(home.thresholds, heartbeat_every=timedelta(seconds=0.3))
        await self.store.pools.change(POOL, PoolChange(thresholds=quick))
        await self.store.queue.push(POOL, [NewJob(payload={"n": n}) for n in range(JOBS)])

    async def all_done(self) -> bool:
        counts = await self.store.jobs.counts(POOL)
        return counts.done == JOBS

    async def workers(self) -> Sequence[Worker]:
        return await self.store.workers.list(POOL)


@pytest.fixture
async def store_url(new_database: Callable[[], str]) -> str:
    url = new_database()
    async with open_store(url, create=True):
        pass
    return url


async def all_gone(rented: Rented, simulator: LivingSimulator) -> bool:
    return not simulator.alive() and all(row.reaped_at for row in await rented.workers())


async def test_a_daemon_rents_pods_for_jobs_and_gives_them_back(store_url: str, tmp_path: Path) -> None:
    async with open_store(store_url) as store, pods_here(tmp_path) as (simulator, variables):
        rented = Rented(store, store_url, tmp_path, variables)
        await rented.create()
        daemon = rented.start("fleet", "run", POOL)
        try:
            await eventually(rented.all_done, f"{JOBS} jobs are done; pods said: {simulator.said()[-2000:]}")
            seen = [arguments for process in psutil.process_iter() if (arguments := _cmdline(process))]
            money = await rented.told("fleet", "spend", POOL)
            await eventually(lambda: all_gone(rented, simulator), "every pod is given back")
        finally:
            daemon.send_signal(signal.SIGTERM)
            await asyncio.to_thread(daemon.wait, PATIENCE)

        printed, logged = (tmp_path / "printed").read_text(), (tmp_path / "logged").read_text()
        rows = await rented.workers()
        assert daemon.returncode == 0
        assert 1 <= len(simulator.pods) == len(rows) <= JOBS
        assert max(len(json.loads(line)["done"]) for line in printed.splitlines()) >= 1
        assert {row.provider for row in rows} == {"runpod"}
        assert {row.provider_ref for row in rows} == {pod.id for pod in simulator.pods}
        assert {row.meta["price_per_hour"] for row in rows} == {CHEAP}
        assert (money["price_per_hour"], money["burn_per_hour"] % CHEAP) == (CEILING, pytest.approx(0, abs=1e-9))
        assert 0 < money["spent"]["day"] < len(rows) * CHEAP / 60 * 3
        assert simulator.running() == []
        kept = [repr(row) for row in rows] + [repr(beat) for beat in await store.beats.list(POOL)]
        everything = "\n".join([*rented.heard, printed, logged, simulator.said(), *kept, *seen])
        assert KEY not in everything


@pytest.mark.soak
async def test_single_beats_do_the_same_and_a_plan_or_a_kill_reach_the_same_pods(store_url: str, tmp_path: Path) -> None:
    async with open_store(store_url) as store, pods_here(tmp_path) as (simulator, variables):
        rented = Rented(store, store_url, tmp_path, variables)
        await rented.create()

        plan = await rented.told("fleet", "plan", POOL)
        assert plan["actions"][0].startswith("Spawn worker-0")
        assert (simulator.pods, await rented.workers()) == ([], [])

        summary = json.loads((await rented.command("fleet", "beat", POOL)).output)
        assert summary["actions"]["workers_spawned"] == len(simulator.alive()) > 0
        await rented.command("fleet", "kill", POOL, "worker-0")
        assert "drumbeat.gpus.worker-0" not in simulator.alive_names()

        async def beaten() -> bool:
            said = await rented.run_command("fleet", "beat", POOL)
            assert said.code == 0 or "is it up?" in said.output, said  # on a busy machine; the next one makes up for it
            return await rented.all_done() and await all_gone(rented, simulator)

        await eventually(beaten, "all jobs are done, and every pod is given back")
        done = await store.jobs.list(POOL, statuses=[JobStatus.DONE])
        assert sorted(job.result["n"] for job in done) == list(range(JOBS))


@pytest.mark.soak
async def test_a_volume_of_which_a_pods_worker_tells_that_it_is_full_is_made_larger(store_url: str, tmp_path: Path) -> None:
    disk = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path
    volume = {"RUNPOD_NETWORK_VOLUME_ID": "vol1", "RUNPOD_VOLUME_MOUNT_PATH": str(disk), "STORAGE_MIN_FREE_GB": "1e9"}
    async with open_store(store_url) as store, pods_here(tmp_path) as (simulator, variables):
        size = ceil(shutil.disk_usage(disk).total / 1e9)
        simulator.volumes["vol1"] = before = max(size, 10)
        rented = Rented(store, store_url, tmp_path, {**variables, **volume})
        await rented.create()
        await rented.command("fleet", "beat", POOL)

        async def told() -> bool:
            return any(row.gpu and "disk" in row.gpu for row in await rented.workers())

        await eventually(told, f"a worker tells of its disk; pods said: {simulator.said()[-2000:]}")
        plan = await rented.told("fleet", "plan", POOL)
        assert [line for line in plan["actions"] if line.startswith("ExpandVolume")]
        assert simulator.volumes == {"vol1": before}

        await rented.command("fleet", "beat", POOL)
        assert simulator.volumes == {"vol1": size + 50}
        assert len(simulator.asked("updateNetworkVolume")) == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"RUNPOD_API_KEY": ""}, "RUNPOD_API_KEY"),
        ({"RUNPOD_MAX_PRICE_PER_HOUR": ""}, "RUNPOD_MAX_PRICE_PER_HOUR"),
        ({"RUNPOD_API_URL": "http://example.com"}, "https"),
        ({"DRUMBEAT_STORE": "sqlite:///here.db"}, "drumbeat store copy sqlite:///"),
        ({"DRUMBEAT_PROVIDER": "moon"}, "(local, runpod), got 'moon'"),
    ],
    ids=str,
)
def test_what_is_missing_is_named_before_anything_is_rented(
    change: dict[str, str], complaint: str, store_url: str, tmp_path: Path
) -> None:
    told = {"DRUMBEAT_STORE": store_url, "RUNPOD_API_KEY": KEY, "RUNPOD_MAX_PRICE_PER_HOUR": "1", "RUNPOD_WORKER_IMAGE": "i"}
    made = drumbeat("fleet", "create", "p", "--provider", "runpod", cwd=tmp_path, **told | change)

    beaten = drumbeat("fleet", "beat", "p", cwd=tmp_path, **told | change)

    said = beaten if made.code == 0 else made
    assert said.code != 0
    assert complaint in said.errors
    assert KEY not in said.output + said.errors


def _cmdline(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
