"""The supervisor that runs a worker on a Ray node, as real processes: exit codes, drains, ends."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.spawn.contract import programs
from drumbeat.spawn.contract.process_setup import new_mark
from drumbeat.spawn.ray.package import MODULE, RayPackage, make_package
from drumbeat.spawn.ray.supervisor import BEGUN, KEY, TASK_FILE

WITHIN = 60
SUPERVISOR = (sys.executable, "-S", "-m", MODULE)


@dataclass
class Node:
    """A folder with an unpacked package, as on a Ray node, and the supervisors that were started from it."""

    folder: Path
    started: list[subprocess.Popen[str]]
    package: RayPackage | None = None

    def start(self, program: str, *words: str, mark: str = "ray-worker", environment: Mapping[str, str] | None = None) -> None:
        self.package = make_package(("sh", "-c", program, mark, *words), environment or {})
        self.start_package(*SUPERVISOR)

    def start_package(self, *command: str) -> None:
        assert self.package is not None
        with zipfile.ZipFile(io.BytesIO(self.package.content)) as archive:
            archive.extractall(self.folder)
        variables = {**os.environ, "PYTHONPATH": str(self.folder), KEY: self.package.key}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=variables, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.started.append(process)

    def drain(self) -> None:
        subprocess.run([*SUPERVISOR, "drain"], env={**os.environ, "PYTHONPATH": str(self.folder)}, check=True, timeout=WITHIN)

    @property
    def process(self) -> subprocess.Popen[str]:
        return self.started[-1]

    def read_until(self, line: str) -> None:
        assert self.process.stdout is not None
        for each in self.process.stdout:
            if each.rstrip("\n") == line:
                return
        raise AssertionError(f"expected the line {line!r} before the end of the output")

    def rest(self) -> str:
        return self.process.communicate(timeout=WITHIN)[0]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, [])
    yield made
    for process in made.started:
        process.terminate()
        process.wait(WITHIN)
        if process.stdout is not None:
            process.stdout.close()


async def until_gone(mark: str) -> None:
    clock = SystemClock()
    async with asyncio.timeout(WITHIN):
        while await asyncio.to_thread(programs.processes_named, mark):
            await clock.sleep(timedelta(milliseconds=20))


@pytest.mark.parametrize("code", [0, 3, 255])
def test_it_ends_with_the_exit_code_of_the_worker(node: Node, code: int) -> None:
    node.start(programs.EXITS, str(code))

    assert node.package is not None
    assert node.rest() == f"{BEGUN} {node.package.run}\nleaving\n"
    assert node.process.returncode == code


def test_it_ends_by_the_signal_that_ended_the_worker(node: Node) -> None:
    node.start(programs.KILLS_ITSELF)

    node.rest()

    assert node.process.returncode == -signal.SIGKILL


def test_a_command_that_does_not_exist_is_told(node: Node) -> None:
    node.package = make_package(("/nowhere/no-such-program",), {})
    node.start_package(*SUPERVISOR)

    assert "/nowhere/no-such-program: No such file or directory" in node.rest()
    assert node.process.returncode == 127


def test_the_worker_gets_its_environment_and_not_the_key(node: Node) -> None:
    node.start(f'echo "$GREETING [$PYTHONPATH] [${KEY}]"', environment={"GREETING": "good day"})

    assert node.rest().splitlines()[1:] == ["good day [] []"]


def test_the_file_with_the_secrets_is_private_and_removed(node: Node) -> None:
    node.package = make_package(("true",), {"SECRET": "x"})
    with zipfile.ZipFile(io.BytesIO(node.package.content)) as archive:
        assert archive.getinfo(TASK_FILE).external_attr >> 16 & 0o777 == 0o600
    node.start_package(*SUPERVISOR)

    node.rest()

    assert not (node.folder / TASK_FILE).exists()


def test_drain_reaches_the_worker_and_lets_it_finish(node: Node) -> None:
    node.start(programs.FINISHES)
    node.read_until("ready")

    node.drain()

    assert node.rest().splitlines() == ["finishing", "finished"]
    assert node.process.returncode == 0


def test_drain_does_not_reach_the_children_of_the_worker(node: Node) -> None:
    child = "trap 'echo child was told' TERM; echo ready; while [ ! -e $1 ]; do sleep 0.05; done; echo child finished"
    worker = "trap 'echo told; touch $1' TERM; sh -c \"$2\" child $1 & c=$!; wait $c; wait $c; exit 4"
    node.start(worker, str(node.folder / "told"), child)
    node.read_until("ready")

    node.drain()

    assert node.rest().splitlines() == ["told", "child finished"]
    assert node.process.returncode == 4


def test_drain_of_a_worker_that_has_ended_is_harmless(node: Node) -> None:
    node.start(programs.EXITS, "0")
    node.rest()

    node.drain()

    assert node.process.returncode == 0


def test_drain_leaves_a_later_process_with_the_same_id_alone(node: Node) -> None:
    node.start(programs.STUBBORN)
    node.read_until("ready")
    bystander = subprocess.Popen(["sleep", "60"])
    (node.folder / "supervisor.pid").write_text(f"{bystander.pid} 1")

    node.drain()

    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


async def test_sigterm_ends_the_worker_and_all_its_children(node: Node) -> None:
    marks = [new_mark() for _ in range(3)]
    node.start(programs.PARENT, *marks[1:], mark=marks[0])
    node.read_until("ready")

    node.process.terminate()
    node.process.wait(WITHIN)

    for mark in marks:
        assert programs.processes_named(mark) == []


async def test_sigterm_ends_a_worker_that_ignores_it(node: Node) -> None:
    mark = new_mark()
    node.start(programs.STUBBORN, mark=mark)
    node.read_until("ready")

    node.process.terminate()
    node.process.wait(WITHIN)

    assert programs.processes_named(mark) == []


async def test_a_child_that_the_worker_leaves_behind_ends_with_it(node: Node) -> None:
    child = new_mark()
    node.start(programs.LEAVES_A_CHILD, child)

    node.rest()

    assert node.process.returncode == 3
    assert programs.processes_named(child) == []


async def test_the_worker_ends_with_the_process_that_started_its_supervisor(node: Node) -> None:
    marks = [new_mark() for _ in range(3)]
    node.package = make_package(("sh", "-c", programs.PARENT, *marks), {})
    node.start_package("sh", "-c", '"$@" & wait', "sh", *SUPERVISOR)
    node.read_until("ready")

    node.process.kill()

    for mark in marks:
        await until_gone(mark)


async def test_the_worker_ends_if_its_supervisor_is_killed(node: Node) -> None:
    mark = new_mark()
    node.start(programs.STUBBORN, mark=mark)
    node.read_until("ready")

    node.process.kill()

    await until_gone(mark)
