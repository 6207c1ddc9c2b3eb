"""A process is found by its tags and never mistaken for another."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.tagged import Process, _portable_state_and_birth, _state_and_birth, await_tags, born, find, tags
from spawn.programs import PATIENCE_SECONDS, WORKER, eventually, exits, python

NAME = (PoolId("p"), WorkerId("w"))

StateAndBirth = Callable[[int], tuple[str, str] | None]


def process(pid: int, birth: str) -> Process:
    return Process(pid=pid, birth=birth, name=NAME, started_at=SystemClock().now())


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(python(WORKER), start_new_session=True) as stranger:
        yield stranger
        stranger.kill()


def test_a_pid_that_belongs_to_another_process_now_is_not_mistaken(stranger: subprocess.Popen[bytes]) -> None:
    former = process(stranger.pid, birth="1")

    former.terminate()
    former.kill()

    assert not former.is_alive
    assert stranger.poll() is None


def test_the_same_process_is_signalled(stranger: subprocess.Popen[bytes]) -> None:
    same = process(stranger.pid, born(stranger.pid))
    assert same.is_alive

    same.kill()

    assert stranger.wait(PATIENCE_SECONDS) == -9
    assert not same.is_alive


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(exits(0)) as child:
        gone = process(child.pid, born(child.pid))
        eventually(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, "a child that nobody awaited")

        assert not gone.is_alive


@pytest.mark.parametrize("look", [_state_and_birth, _portable_state_and_birth])
def test_state_and_birth_are_told_of_the_living_the_dead_and_the_gone(look: StateAndBirth) -> None:
    with subprocess.Popen(exits(0)) as child:
        eventually(lambda: (look(child.pid) or ("", ""))[0] == "Z", "a child that nobody awaited to be seen as a zombie")
    ourselves, again = look(os.getpid()), look(os.getpid())

    assert ourselves is not None
    assert again is not None
    assert ourselves[0] != "Z"
    assert ourselves[1] == again[1]
    assert look(child.pid) is None


@pytest.mark.parametrize(
    ("changed", "found"),
    [({}, True), ({"DRUMBEAT_SPAWNER": "other"}, False), ({"DRUMBEAT_POOL_ID": None}, False)],
)
def test_only_whoever_has_all_tags_is_found(tmp_path: Path, changed: dict[str, str | None], found: bool) -> None:
    scope = str(tmp_path)
    wanted = {**os.environ, **tags(scope, NAME), **changed}
    environment = {name: value for name, value in wanted.items() if value is not None}
    with subprocess.Popen(python(WORKER), env=environment, start_new_session=True) as child:
        await_tags(process(child.pid, born(child.pid)))
        seen = [(one.pid, one.name, one.leads) for one in find(scope)]
        child.kill()

    assert seen == ([(child.pid, NAME, True)] if found else [])


def test_whoever_has_no_tags_is_not_awaited_for_ever(stranger: subprocess.Popen[bytes]) -> None:
    await_tags(process(stranger.pid, born(stranger.pid)))

    assert stranger.poll() is None
