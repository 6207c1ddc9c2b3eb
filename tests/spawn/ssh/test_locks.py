"""The agent leaves no lock behind for workers that are gone, and a deleted lock is never held by two."""

import fcntl
import threading
import time
from pathlib import Path

import pytest

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract.process_setup import new_mark
from drumbeat.spawn.contract.programs import WORKER, processes_named
from drumbeat.spawn.interface import Order
from drumbeat.spawn.ssh import SshSpawner
from drumbeat.spawn.ssh.agent import Agent
from drumbeat.spawn.ssh.agent_host import Lock, Trouble
from servers.openssh import OpenSshServer
from spawn.ssh.conftest import host_at, settings_at

P, W = PoolId("p"), WorkerId("w")


def locks(folder: Path) -> list[Path]:
    return [*folder.glob("*/locks/*")]


async def test_a_worker_that_is_gone_leaves_no_lock_on_any_host(sshd: OpenSshServer, tmp_path: Path) -> None:
    mark = new_mark()
    hosts = [host_at(sshd, name, folder=str(tmp_path / name)) for name in ("one", "two")]
    order = Order(pool_id=P, worker_id=W, slot=0, group_count=1, command=("sh", "-c", WORKER, mark))
    async with SshSpawner(settings_at(sshd, tmp_path, hosts=hosts), {}, "s") as spawner:
        await spawner.spawn(order)
        await spawner.drain(P, W)
        held = [len(locks(tmp_path / name)) for name in ("one", "two")]
        await spawner.terminate(P, W)

        assert sorted(held) == [0, 1], "while the worker has a run directory, its lock stays"
        assert [*locks(tmp_path / "one"), *locks(tmp_path / "two")] == []
        await spawner.spawn(order)
        assert len(processes_named(mark)) == 1, "a new lock is as good as the old one"
        await spawner.terminate(P, W)


def test_a_worker_that_found_no_room_leaves_no_lock(tmp_path: Path) -> None:
    agent = Agent({"folder": str(tmp_path), "scope": "s"})
    agent.hello()
    request = {"key": "w", "pool": P, "worker": W, "run": "r", "slots": 0, "command": ["true"], "environment": {}}
    with pytest.raises(Trouble, match="0 of 0 slots are taken"):
        agent.do_spawn(request)

    assert locks(tmp_path) == []


def test_a_lock_that_is_deleted_and_made_again_while_it_is_taken_has_one_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = tmp_path / "lock", fcntl.flock
    other = Lock(str(path), 0)

    def deleted_meanwhile(fd: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        other.__enter__()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", deleted_meanwhile)
    with pytest.raises(Trouble, match="another process holds the lock"), Lock(str(path), 0.1):
        pass

    other.__exit__()
    with Lock(str(path), 0):
        assert Lock.is_held(str(path))


def test_a_lock_that_is_deleted_while_it_is_taken_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, flock = tmp_path / "lock", fcntl.flock

    def deleted_meanwhile(fd: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", deleted_meanwhile)
    with Lock(str(path), 1):
        assert Lock.is_held(str(path))


def test_many_who_delete_the_lock_they_hold_are_inside_one_at_a_time(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "lock", 0, 0
    guard = threading.Lock()

    def enter() -> None:
        nonlocal inside, most
        for _ in range(50):
            with Lock(str(path), 60):
                with guard:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.001)
                with guard:
                    inside -= 1
                path.unlink()  # the last act: from here on another may hold a lock of this name

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == 1
    assert not path.exists()
