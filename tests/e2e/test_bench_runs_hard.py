"""Runs that are large, hosts that are overloaded, and databases that will not have it: said in a line, and nobody is left."""

import asyncio
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.event import EventType
from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunStatus
from e2e.bench import LOOKUP, Bench, bench, document, fill, left, output, sql
from e2e.processes import eventually
from servers.places import memory_folder
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

FOREVER = {"warmup_seconds": 0, "duration_seconds": 600}
_OURS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'drumbeat'"


@pytest.fixture
def roomy_postgres() -> Iterator[PostgresServer]:
    with PostgresServer(max_connections=1100, settings={"fsync": "off"}, folder=memory_folder()) as server:
        yield server


@pytest.mark.soak
async def test_five_workers_of_two_hundred_connections_are_exactly_that_and_leave_nothing(
    roomy_postgres: PostgresServer, tmp_path: Path
) -> None:
    target = await fill(roomy_postgres.new_database())
    workload = {**document(target)["workload"], "think_time_ms": 500}
    scaling = {"mode": "FIXED", "min_workers": 5, "min_connections": 200}
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path) as made:
        began = time.monotonic()
        command = made.run(document(target, workload=workload, scaling=scaling, timing=FOREVER), "--json")
        await made.all_active(5)
        running = time.monotonic() - began
        await eventually(partial(connected, target, 1000), "1000 connections are held")
        held = [row.applied_target for row in await made.workers()]

        began = time.monotonic()
        command.send_signal(signal.SIGINT)
        code, _, err = await output(command)
        run = await made.the_run()
        await eventually(partial(connected, target, 0), "every connection is closed")
        gone = time.monotonic() - began

    print(f"\n5 × 200 connections: running after {running:.1f} s, gone after {gone:.1f} s")
    assert (code, run.status) == (3, RunStatus.CANCELLED), err
    assert held == [200] * 5
    assert not left(run.run_id)


async def connected(target: str, connections: int) -> bool:
    return int(await sql(target, _OURS)) == connections


@pytest.mark.soak
async def test_hosts_that_are_all_overloaded_exhaust_the_run(postgres_url: str, tmp_path: Path) -> None:
    rails = {"mode": "soft", "max_cpu_percent": 1, "interval_seconds": 1, "act_patience": 1, "patience_intervals": 3}
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path) as made:
        command = made.run(busy(await fill(postgres_url), rails), "--json")
        code, _, err = await output(command)
        run, whole = await made.the_run(), (await made.results())[0]
        events = await made.store.events.read(PoolId(run.run_id), 0, 1000)

    assert (code, run.status, run.completion_reason) == (3, RunStatus.FAILED, "RESOURCE_EXHAUSTION"), err
    assert {EventType.SCALE_DOWN, EventType.GUARDRAIL_WARNING} <= {event.type for event in events}
    assert "2 of 2 workers over threshold" in (whole.failure_reason or "")
    assert not left(run.run_id)


def busy(target: str, rails: dict[str, Any]) -> dict[str, Any]:
    """Two workers that do nearly what they can: more would only take it from other tests."""
    workload = {**document(target)["workload"], "think_time_ms": 1}
    return document(target, workload=workload, guardrails=rails, timing={"warmup_seconds": 0, "duration_seconds": 12})


GROUPS = Path("/sys/fs/cgroup")
_JOIN = """
import os, sys
for name in {names}:
    if name in sys.orig_argv:
        for tree in ("cpu", "cpuacct"):
            with open(f"/sys/fs/cgroup/{{tree}}/{folder}-{{name}}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
"""


class Containers:
    """A control group for each of two workers, which join theirs as they start."""

    def __init__(self, folder: Path) -> None:
        self._name = folder.name
        self._groups = [GROUPS / tree / f"{folder.name}-worker-{n}" for tree in ("cpu", "cpuacct") for n in (0, 1)]
        self.hook = folder / "hook"  #: for PYTHONPATH

    def allow(self, worker: str, cores: float) -> None:
        (GROUPS / "cpu" / f"{self._name}-{worker}" / "cpu.cfs_quota_us").write_text(str(int(cores * 100_000)))

    def make(self) -> None:
        for group in self._groups:
            group.mkdir()
        for worker in ("worker-0", "worker-1"):
            self.allow(worker, 64)
        self.hook.mkdir()
        (self.hook / "sitecustomize.py").write_text(_JOIN.format(names=("worker-0", "worker-1"), folder=self._name))

    def remove(self) -> None:
        for group in self._groups:
            if group.exists():
                group.rmdir()


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    made = Containers(tmp_path)
    try:
        made.make()
    except OSError as exc:
        made.remove()
        pytest.skip(f"control groups (version 1) cannot be made here: {exc}")
    yield made
    made.remove()


@pytest.mark.soak
async def test_one_overloaded_worker_is_backed_off_and_the_run_survives(
    postgres_url: str, tmp_path: Path, containers: Containers
) -> None:
    rails = {"mode": "soft", "max_cpu_percent": 60, "max_memory_percent": 100, "interval_seconds": 1, "act_patience": 1}
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path, {"PYTHONPATH": str(containers.hook)}) as made:
        command = made.run(busy(await fill(postgres_url), rails), "--json")
        await made.all_active(2)
        containers.allow("worker-1", 0.1)
        await eventually(partial(is_backed_off, made, "worker-1"), "worker-1 is backed off")
        containers.allow("worker-1", 64)
        code, _, err = await output(command)
        run = await made.the_run()
        events = await made.store.events.read(PoolId(run.run_id), 0, 1000)

    assert (code, run.status, run.completion_reason) == (0, RunStatus.COMPLETED, "DURATION"), (err, run)
    assert {event.worker_id for event in events if event.type == EventType.SCALE_DOWN} == {"worker-1"}
    assert not left(run.run_id)


async def is_backed_off(made: Bench, worker_id: str) -> bool:
    return any(row.worker_id == worker_id and row.applied_target < 4 for row in await made.workers())


async def refused(made: Bench, given: dict[str, Any]) -> tuple[int, str]:
    """How a run that cannot work ends, and the lines it says so in."""
    code, out, err = await output(made.run(given))
    run = await made.find()
    assert run is None or not left(run.run_id)
    return code, out + err


@pytest.mark.soak
async def test_a_database_that_cannot_be_used_is_said_in_a_line(postgres: PostgresServer, tmp_path: Path) -> None:
    target = await fill(postgres.new_database())
    if not postgres.sql("SELECT 1 FROM pg_roles WHERE rolname = 'somebody'"):
        postgres.add_password_user("somebody", "right")
    missing = {"operations": [{**LOOKUP, "weight": 100, "sql": "SELECT v FROM nowhere WHERE k = $1"}]}
    wrong_password = document(postgres.url(target.rpartition("/")[2], "somebody"))
    too_many = document(target, scaling={"mode": "FIXED", "min_workers": 1, "min_connections": 400})

    async def go(given: dict[str, Any], code: int, said: str) -> None:
        folder = tmp_path / said
        async with bench(f"sqlite:///{folder}/drumbeat.db", folder, {"DRUMBEAT_TARGET_PASSWORD": "wrong"}) as made:
            ended, lines = await refused(made, given)

        assert (ended, said in lines, "Traceback" in lines) == (code, True, False), lines

    await asyncio.gather(go(wrong_password, 1, "password"), go(document(target, workload=missing), 1, "nowhere"))
    await go(too_many, 3, "expected 400 connections")  # alone: nobody else gets a connection then
    await eventually(partial(connected, target, 0), "there is room again")
