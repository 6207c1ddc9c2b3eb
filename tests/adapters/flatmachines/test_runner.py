"""The runner: its arguments, what it launches, and how it ends."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapters.flatmachines.given import run, seed_file
from drumbeat.adapters.flatmachines import DrumbeatWorkBackend, Launch, Origin, open_session, run_machine
from drumbeat.adapters.flatmachines.runner import load_factory, main, read_arguments
from drumbeat.adapters.flatmachines.spawning import RequestedWorkers, launch, spawn_workers
from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.job import JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.fleet.sweep import Sweep
from drumbeat.settings import Settings
from drumbeat.store.memory import MemoryStore

BROKEN = """
spec: flatmachine
spec_version: "0.8.3"
data:
  name: broken
  settings: {heartbeat_interval: 30}
  context: {pool_id: papers}
  states:
    claim: {type: initial, action: claim_job, transitions: [{to: process}]}
    process: {machine: nowhere}
"""

FORGETFUL = """
spec: flatmachine
spec_version: "0.8.3"
data:
  name: forgetful
  context: {pool_id: papers}
  states:
    claim: {type: initial, action: claim_job, transitions: [{to: done}]}
    done: {type: final, output: {job: "{{ context.job }}"}}
"""

PARENT = """
spec: flatmachine
spec_version: "0.8.3"
data:
  name: parent
  context: {words: [one, two]}
  machines: {child: children/child.yml}
  states:
    once: {type: initial, launch: child, launch_input: {word: zero}, transitions: [{to: each}]}
    each:
      foreach: "{{ context.words }}"
      as: word
      launch: child
      launch_input: {word: "{{ word }}"}
      transitions: [{to: done}]
    done: {type: final, output: {launched: "{{ context.launched_count }}"}}
"""

CHILD = """
spec: flatmachine
spec_version: "0.8.3"
data:
  name: child
  context: {word: "{{ input.word }}"}
  machines: {writer: writer.yml}
  states:
    write: {type: initial, machine: writer, input: {word: "{{ context.word }}"}, transitions: [{to: done}]}
    done: {type: final}
"""

WRITER = """
spec: flatmachine
spec_version: "0.8.3"
data:
  name: writer
  context: {word: "{{ input.word }}"}
  states:
    write: {type: initial, action: write, hooks: writing, transitions: [{to: done}]}
    done: {type: final}
"""

HOOKS = """
from pathlib import Path
from flatmachines import MachineHooks

class Writing(MachineHooks):
    def on_action(self, state_name, action_name, context):
        (Path(__file__).parent / f"{context['word']}.written").write_text(context["machine"]["parent_execution_id"])
        return context
"""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--input", "{"], "--input"),
        (["--input", "[1]"], "--input to be a JSON object"),
        (["--machines", "x"], "--machines NAME="),
        (["--hooks", "=x:y"], "--hooks NAME="),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_arguments(arguments)


def test_both_spellings_of_the_seed_are_arguments() -> None:
    both = ["--config", "a.yml", "--machine", "b", "--input", '{"x": 1}', "--execution-id", "e", "--parent-id", "p"]
    wanted, _, _ = read_arguments([*both, "--max-steps", "5", "--machines", "m=f.yml", "--hooks", "h=a:b"])
    assert wanted == Launch(
        config=Path("a.yml"),
        machine="b",
        given={"x": 1},
        execution_id="e",
        parent_id="p",
        max_steps=5,
        machines={"m": "f.yml"},
        hooks={"h": "a:b"},
    )


@pytest.mark.parametrize("wanted", [Launch(config=Path("/nowhere.yml")), Launch(machine="nobody")])
async def test_a_machine_that_is_not_there_is_named(wanted: Launch) -> None:
    with pytest.raises(NotFound, match=r"nowhere|nobody"):
        await run_machine(wanted, where="memory:")


async def test_neither_a_file_nor_a_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="--config FILE or --machine NAME"):
        await run_machine(Launch(), where="memory:")


@pytest.mark.parametrize("target", ["nomodule:x", "os:nothing", "justaname", "/no/file.py:x"])
def test_hooks_that_cannot_be_imported_are_named(target: str) -> None:
    with pytest.raises(InvalidInput, match="--hooks h="):
        load_factory("h", target)


def test_an_error_is_said_and_the_exit_code_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "/nowhere.yml", "--store", "memory:"]) == 1
    assert "/nowhere.yml" in capsys.readouterr().err


async def test_a_machine_that_breaks_fails_its_job_and_its_worker(tmp_path: Path) -> None:
    store = MemoryStore()
    item_id = await DrumbeatWorkBackend(store).pool("papers").push(1)
    with pytest.raises(ValueError, match="nowhere"):
        await run(store, seed_file(tmp_path, "broken", BROKEN), {"worker_id": "w1"})

    job = await store.jobs.get(JobId(item_id))
    assert (job.status, job.failures) == (JobStatus.PENDING, 1)
    assert "nowhere" in str(job.last_error)
    assert (await store.workers.get(PoolId("papers"), WorkerId("w1"))).status is WorkerStatus.ERROR


async def test_a_job_that_was_forgotten_is_given_back(tmp_path: Path) -> None:
    store = MemoryStore()
    item_id = await DrumbeatWorkBackend(store).pool("papers").push({"n": 1})
    assert await run(store, seed_file(tmp_path, "forgetful", FORGETFUL), {}) == {"job": {"n": 1}}
    assert (await store.jobs.get(JobId(item_id))).status is JobStatus.PENDING


BLOCKING = """
import sqlite3
import time
from flatmachines import MachineHooks

def beats():
    with sqlite3.connect("STORE") as store:
        [(count,)] = store.execute("SELECT heartbeat_count FROM workers WHERE worker_id = 'w1'")
    store.close()
    return count

class Blocking(MachineHooks):
    def on_action(self, state_name, action_name, context):
        first, until = beats(), time.monotonic() + 60
        while beats() < first + 3 and time.monotonic() < until:
            for _ in range(5000):
                sum(range(1000))
        return {**context, "beats": beats() - first}
"""

BUSY = """
spec: flatmachine
spec_version: "0.8.3"
data:
  name: busy
  settings: {heartbeat_interval: 0.2}
  context: {pool_id: papers}
  states:
    compute: {type: initial, action: compute, hooks: blocking, transitions: [{to: done}]}
    done: {type: final, output: {beats: "{{ context.beats }}"}}
"""


async def test_a_state_that_computes_does_not_starve_its_workers_heartbeat(tmp_path: Path) -> None:
    (tmp_path / "blocking.py").write_text(BLOCKING.replace("STORE", str(tmp_path / "jobs.sqlite")), encoding="utf-8")
    wanted = Launch(
        config=seed_file(tmp_path, "busy", BUSY),
        given={"worker_id": "w1"},
        hooks={"blocking": f"{tmp_path / 'blocking.py'}:Blocking"},
    )
    url = f"sqlite:///{tmp_path}/jobs.sqlite"
    output = await run_machine(wanted, where=url)

    async with DrumbeatWorkBackend(url) as work:
        row = await (await work.place.store()).workers.get(PoolId("papers"), WorkerId("w1"))
    assert int(output["beats"]) >= 3
    assert row.status is WorkerStatus.TERMINATED


async def _written(folder: Path, names: set[str]) -> None:
    async with asyncio.timeout(60):
        while {file.stem for file in folder.glob("*.written") if file.read_text(encoding="utf-8")} != names:
            await asyncio.sleep(0.05)


async def test_what_is_launched_and_forgotten_keeps_its_relative_references(tmp_path: Path) -> None:
    (tmp_path / "children").mkdir()
    parent = seed_file(tmp_path, "parent", PARENT)
    seed_file(tmp_path / "children", "child", CHILD)
    seed_file(tmp_path / "children", "writer", WRITER)
    (tmp_path / "writing.py").write_text(HOOKS, encoding="utf-8")
    wanted = Launch(config=parent, execution_id="the-parent", hooks={"writing": f"{tmp_path / 'writing.py'}:Writing"})
    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.sqlite", state_dir=tmp_path / "state")

    assert await run_machine(wanted, settings=settings) == {"launched": 2}

    await _written(tmp_path, {"zero", "one", "two"})
    assert not list((tmp_path / "state").glob("**/*.json"))


async def test_a_machine_inside_another_ones_file_is_run_by_its_name(tmp_path: Path) -> None:
    inside: dict[str, Any] = {"spec": "flatmachine", "spec_version": "0.8.3"}
    inside["data"] = {"name": "inner", "context": {"n": "{{ input.n }}"}}
    inside["data"]["states"] = {"done": {"type": "final", "output": {"n": "{{ context.n }}"}}}
    outside = {"spec": "flatmachine", "data": {"name": "outer", "machines": {"inner": inside}, "states": {"a": {}}}}
    file = tmp_path / "outer.yml"
    file.write_text(yaml.dump(outside), encoding="utf-8")
    assert await run_machine(Launch(config=file, machine="inner", given={"n": 5}), where="memory:") == {"n": 5}


async def test_the_module_is_a_command_line(tmp_path: Path) -> None:
    file = seed_file(tmp_path, "forgetful", FORGETFUL)
    for module in ("drumbeat.adapters.flatmachines", "drumbeat.adapters.flatmachines.run"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, "--machine", file.stem, "--store", f"sqlite:///{tmp_path}/jobs.sqlite"),
            cwd=tmp_path,
            env={key: value for key, value in os.environ.items() if key != "DRUMBEAT_STORE"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        assert json.loads(out) == {"job": None}


class Idle(Origin):
    """Workers that end at once and never join."""

    def command(self, machine: str, given: Any, execution_id: str, parent: str | None) -> tuple[str, ...]:
        return (sys.executable, "-c", "")


async def test_checkers_at_the_same_time_never_start_more_than_the_cap(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.sqlite", state_dir=tmp_path / "state")
    wish = RequestedWorkers(pool_id="papers", cap=3, machine="job_worker", given={})

    async def check() -> list[str]:
        async with open_session(settings=settings) as session:
            return await spawn_workers(session.backends(), Idle(), wish)

    async with DrumbeatWorkBackend(settings.store) as work:
        for n in range(10):
            await work.pool("papers").push(n)
        started = await asyncio.gather(*(check() for _ in range(4)))
        rows = await (await work.place.store()).workers.list(PoolId("papers"))

    assert sorted(len(each) for each in started) == [0, 0, 0, 3]
    assert {row.worker_id for row in rows} == {worker_id for each in started for worker_id in each}
    assert sorted(row.slot for row in rows) == [0, 1, 2]


async def test_a_worker_that_cannot_be_started_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Idle, "command", lambda *given: ("/no/such/program",))
    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.sqlite", state_dir=tmp_path / "state")
    async with open_session(settings=settings) as session:
        backends = session.backends()
        await backends.work.pool("papers").push(1)
        assert await spawn_workers(backends, Idle(), RequestedWorkers(pool_id="papers", cap=3, machine="m", given={})) == []
        (row,) = await (await backends.work.place.store()).workers.list(PoolId("papers"))
    assert row.status is WorkerStatus.ERROR


async def test_a_worker_that_was_given_up_counts_for_the_cap_while_its_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Idle, "command", lambda *given: (sys.executable, "-c", "import time; time.sleep(600)"))
    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.sqlite", state_dir=tmp_path / "state")
    wish = RequestedWorkers(pool_id="papers", cap=1, machine="m", given={})
    async with open_session(settings=settings) as session:
        backends = session.backends()
        await backends.work.pool("papers").push(1)
        (first,) = await spawn_workers(backends, Idle(), wish)
        plane = await backends.registration.place.plane()
        (row,) = await plane.store.workers.list(PoolId("papers"))
        await plane.store.workers.move(row, WorkerStatus.LOST, "it is silent")

        second = await spawn_workers(backends, Idle(), wish)
        async with plane.local_spawner(survive=True) as spawner:
            await spawner.terminate(PoolId("papers"), WorkerId(first))
            third = await spawn_workers(backends, Idle(), wish)
            await spawner.terminate(PoolId("papers"), WorkerId(third[0]))

    assert (len(second), len(third)) == (0, 1)


async def test_a_launched_machine_is_not_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Idle, "command", lambda *given: (sys.executable, "-c", "import time; time.sleep(600)"))
    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.sqlite", state_dir=tmp_path / "state")
    async with open_session(settings=settings) as session:
        backends = session.backends()
        await launch(backends, Idle(), "reader", {}, "the-child", "the-parent")
        plane = await backends.registration.place.plane()
        async with plane.local_spawner(survive=True) as spawner:
            sweep = Sweep(store=plane.store, spawner=spawner, clock=plane.clock, owner=lambda: "a", place="here")
            await sweep.all_but(PoolId("papers"))
            (launched,) = await spawner.pools()
            await spawner.terminate(launched, WorkerId("the-child"))

    assert launched == "launched-reader"
