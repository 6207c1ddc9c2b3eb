"""A damaged file in a run folder costs only its own worker, which is found while it runs, and swept once it is gone."""

import errno
import json
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import SpawnAmbiguous, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn import names
from drumbeat.spawn.contract.programs import WORKER
from drumbeat.spawn.interface import InstanceState, Order
from drumbeat.spawn.ssh import SshHost, SshSettings, SshSpawner, agent, agent_records, session
from drumbeat.spawn.ssh.agent import Agent
from drumbeat.spawn.ssh.agent_host import Lock, Trouble, is_running
from drumbeat.spawn.ssh.hosts import ConnectedHost
from drumbeat.spawn.ssh.session import AgentRefused
from servers.openssh import OpenSshServer
from spawn.programs import eventually
from spawn.ssh.conftest import settings_at

P = PoolId("pöol")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def circle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": half,
    "binary": lambda path: path.write_bytes(b"\x00\xff\x80"),
    "a list": lambda path: path.write_text("[1]"),
    "no fields": lambda path: path.write_text("{}"),
    "a folder": folder,
    "a circle": circle,
    "a pipe": pipe,
}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """The agent of a host, in this process."""
    monkeypatch.setattr(agent, "PROGRAM", session._PROGRAM.encode())
    here = Agent({"folder": str(tmp_path), "scope": "s"})
    here.hello()
    yield here
    for key in ("a", "b"):
        here.do_terminate({"key": key})


def start(host: Agent, key: str, run: str = "1") -> dict[str, Any]:
    environment = {names.POOL: P, names.WORKER: f"worker-{key}"}
    request = {"key": key, "pool": P, "worker": f"worker-{key}", "run": run, "slots": 9, "environment": environment}
    started: dict[str, Any] = host.do_spawn({**request, "command": ["sh", "-c", WORKER]})["instance"]
    return started


def listed(host: Agent) -> dict[str, tuple[str, str, str]]:
    """Pool, run and state of each worker that the host lists."""
    found = {one["worker"]: (one["pool"], one["run"], one["state"]) for one in host.do_list({})["instances"]}
    assert all(one == json.loads(json.dumps(one)) for one in found)
    return found


def kill(worker: dict[str, Any], start_time: str) -> None:
    os.killpg(worker["pid"], signal.SIGKILL)
    eventually(lambda: not is_running(worker["pid"], start_time), "its end")


def start_time_of(tmp_path: Path, key: str) -> str:
    return str(json.loads((tmp_path / "s" / "workers" / key / "process").read_text())["start"])


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("file", ["record", "process"])
def test_a_damaged_file_costs_only_its_worker(host: Agent, tmp_path: Path, file: str, kind: str) -> None:
    damaged, whole = start(host, "a"), start(host, "b")
    began, run = start_time_of(tmp_path, "a"), tmp_path / "s" / "workers" / "a"
    DAMAGE[kind](run / file)

    answer = host.do_list({})
    [problem] = answer["damaged"]
    assert listed(host) == {"worker-a": (P, "1", "running"), "worker-b": (P, "1", "running")}
    assert answer["taken"] == 2
    assert [one["pid"] for one in answer["instances"]] == [damaged["pid"], whole["pid"]]
    assert problem.startswith(str(run / file))
    assert problem.endswith(f"worker worker-a of pool {P} runs as process {damaged['pid']}")
    assert abs(answer["instances"][0]["time"] - damaged["time"]) < 5

    assert start(host, "a", "2")["run"] == "1", "it runs already, so it is not started twice"
    assert host.do_drain({"key": "a"}) == {"found": True}
    eventually(lambda: not is_running(damaged["pid"], began), "its end")


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_worker_whose_record_is_lost_is_swept_once_its_process_is_gone(host: Agent, tmp_path: Path, kind: str) -> None:
    worker, run = start(host, "a"), tmp_path / "s" / "workers" / "a"
    began = start_time_of(tmp_path, "a")
    DAMAGE[kind](run / "record")
    kill(worker, began)

    [problem] = host.do_list({})["damaged"]

    assert problem.endswith(f"no process of its worker runs, so {run} was deleted")
    assert host.do_list({})["damaged"] == []
    assert [*tmp_path.glob("s/*/*")] == []


def test_a_worker_that_has_only_left_children_behind_has_ended_and_its_children_are_ended(host: Agent, tmp_path: Path) -> None:
    worker, run = start(host, "a"), tmp_path / "s" / "workers" / "a"
    began = start_time_of(tmp_path, "a")
    eventually(lambda: "ready" in (run / "log").read_text(), "its child")
    (run / "record").write_bytes(b"")
    os.kill(worker["pid"], signal.SIGKILL)
    eventually(lambda: not is_running(worker["pid"], began), "its end")

    assert listed(host) == {"worker-a": (P, "1", "exited")}
    assert host.do_terminate({"key": "a", "run": "1"}) == {"found": True}
    assert [*tmp_path.glob("s/*/*")] == []


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("file", ["process", "exit"])
def test_an_ended_worker_with_a_damaged_file_is_listed_until_it_is_terminated(
    host: Agent, tmp_path: Path, file: str, kind: str
) -> None:
    worker, run = start(host, "a"), tmp_path / "s" / "workers" / "a"
    kill(worker, start_time_of(tmp_path, "a"))
    eventually((run / "exit").exists, "its exit code")
    DAMAGE[kind](run / file)

    assert listed(host) == {"worker-a": (P, "1", "exited")}
    assert host.do_terminate({"key": "a", "run": "other"}) == {"found": False}
    assert host.do_terminate({"key": "a", "run": "1"}) == {"found": True}
    assert [*tmp_path.glob("s/*/*")] == []


def test_an_empty_run_folder_or_a_file_in_its_place_is_swept(host: Agent, tmp_path: Path) -> None:
    (tmp_path / "s" / "workers" / "a").mkdir()
    (tmp_path / "s" / "workers" / "b").write_text("x")

    assert len(host.do_list({})["damaged"]) == 2
    assert [*tmp_path.glob("s/workers/*")] == []


def test_a_file_of_another_owner_costs_only_its_worker(host: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = str(tmp_path / "s" / "workers" / "a" / "record")
    start(host, "a")
    start(host, "b")

    def open_own(path: str, flags: int) -> int:
        if path == refused:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return os.open(path, flags)

    monkeypatch.setattr(agent_records, "open_at_once", open_own)
    [problem] = host.do_list({})["damaged"]

    assert problem.startswith(f"{refused} cannot be read: Permission denied; ")
    assert sorted(listed(host)) == ["worker-a", "worker-b"]


def test_an_error_that_is_not_the_files_own_lists_nothing_and_deletes_nothing(
    host: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(host, "a")

    def fails(path: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(agent_records, "open_at_once", fails)
        with pytest.raises(OSError, match="Too many open files"):
            host.do_list({})

    assert listed(host) == {"worker-a": (P, "1", "running")}


def test_a_damaged_entry_of_another_store_takes_a_slot_as_long_as_its_worker_runs(host: Agent, tmp_path: Path) -> None:
    worker = start(host, "a")
    began = start_time_of(tmp_path, "a")
    other = Agent({"folder": str(tmp_path), "scope": "other"})
    other.hello()
    (tmp_path / "s" / "workers" / "a" / "record").write_bytes(b"")

    assert other.do_list({})["taken"] == 1
    kill(worker, began)
    assert other.do_list({})["taken"] == 0
    assert (tmp_path / "s" / "workers" / "a").exists(), "its own store's agent sweeps it"


def test_a_worker_that_is_just_being_started_is_not_called_damaged(host: Agent, tmp_path: Path) -> None:
    (tmp_path / "s" / "workers" / "a").mkdir()
    with Lock(str(tmp_path / "s" / "locks" / "a"), 0):
        assert host.do_list({})["damaged"] == []
        assert (tmp_path / "s" / "workers" / "a").exists()


def test_a_worker_whose_run_folder_is_replaced_by_a_new_start_during_the_listing_is_pending(
    host: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is read just before the new run folder appears, so at first the folder seems to have no record."""
    run, state_of, now = tmp_path / "s" / "workers" / "a", agent_records.state_of, SystemClock().now().timestamp()

    def appears(path: str, lock_is_ours: bool = False) -> Any:
        if not run.exists():
            run.mkdir()
            (run / "record").write_text(json.dumps({"pool": P, "worker": "worker-a", "run": "2", "time": now}))
            raise agent_records.Damaged(f"{run / 'record'} is missing")
        return state_of(path, lock_is_ours)

    monkeypatch.setattr(agent, "names_in", lambda folder: ["a"])
    monkeypatch.setattr(agent, "state_of", appears)
    with Lock(str(tmp_path / "s" / "locks" / "a"), 0):
        answer = host.do_list({})

    assert [(one["run"], one["state"]) for one in answer["instances"]] == [("2", "pending")]
    assert answer["damaged"] == []


def test_a_folder_in_the_place_of_a_lock_is_replaced(host: Agent, tmp_path: Path) -> None:
    (tmp_path / "s" / "locks" / "a" / "x").mkdir(parents=True)
    os.utime(tmp_path / "s" / "locks" / "a", (0, 0))
    Agent({"folder": str(tmp_path), "scope": "s"}).hello()

    assert start(host, "a")["state"] == "running"


def test_an_old_file_in_the_place_of_a_draft_is_swept(host: Agent, tmp_path: Path) -> None:
    (tmp_path / "s" / "workers" / ".draft").write_text("x")
    os.utime(tmp_path / "s" / "workers" / ".draft", (0, 0))
    host.hello()

    assert [*(tmp_path / "s" / "workers").iterdir()] == []


@pytest.mark.parametrize(("kind", "command"), [("start", ["/nowhere"]), ("unstarted", ["true"])])
def test_a_start_that_certainly_failed_says_so(host: Agent, tmp_path: Path, kind: str, command: list[str]) -> None:
    if kind == "unstarted":
        (tmp_path / "s" / "workers" / ".1").write_text("in the way of the draft")
    request = {"key": "a", "pool": P, "worker": "w", "run": "1", "slots": 9, "environment": {}, "command": command}

    with pytest.raises(Trouble) as refused:
        host.do_spawn(request)

    assert refused.value.kind == kind
    assert host.do_list({})["instances"] == []


@pytest.mark.parametrize(
    ("kind", "error"),
    [("start", SpawnFailed), ("unstarted", SpawnFailed), ("busy", SpawnAmbiguous), ("failed", SpawnAmbiguous)],
)
async def test_a_worker_that_another_agent_may_be_starting_is_not_said_to_have_failed(
    kind: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(self: ConnectedHost, request: Mapping[str, Any], *, at_once: bool = False) -> Mapping[str, Any]:
        if request["do"] == "spawn":
            raise AgentRefused(kind, "host a: no")
        return {"instances": [], "taken": 0, "damaged": [], "time": SystemClock().now().timestamp()}

    monkeypatch.setattr(ConnectedHost, "ask", ask)
    async with SshSpawner(SshSettings(hosts=[SshHost(name="a")]), {}, "s") as spawner:
        with pytest.raises(error, match="host a: no"):
            await spawner.spawn(Order(pool_id=P, worker_id=WorkerId("w"), slot=0, group_count=1))


async def test_a_host_that_cannot_list_its_workers_is_silent_and_hides_no_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    started = {"key": "k", "pool": P, "worker": "w", "run": "1", "pid": 7, "code": None, "time": 0.0, "state": "running"}

    async def ask(self: ConnectedHost, request: Mapping[str, Any], *, at_once: bool = False) -> Mapping[str, Any]:
        if self.settings.name == "b":
            raise AgentRefused("failed", "host b: Too many open files")
        return {"instances": [started], "taken": 1, "damaged": [], "time": SystemClock().now().timestamp()}

    monkeypatch.setattr(ConnectedHost, "ask", ask)
    async with SshSpawner(SshSettings(hosts=[SshHost(name="a"), SshHost(name="b")]), {}, "s") as spawner:
        found = await spawner.list_reachable(P)

        assert [one.worker_id for one in found.instances] == ["w"]
        assert [(place.name, place.is_down) for place in found.silent] == [("b", False)]
        with pytest.raises(Unanswered, match="host b: Too many open files; its workers cannot be listed"):
            await spawner.list(P)


def test_the_agent_knows_the_names_of_a_workers_variables() -> None:
    assert (agent_records.POOL, agent_records.WORKER) == (names.POOL, names.WORKER)


async def test_a_spawner_lists_the_other_workers_and_logs_the_damage_once(
    sshd: OpenSshServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    orders = [
        Order(pool_id=P, worker_id=WorkerId(name), slot=0, group_count=1, command=("sh", "-c", WORKER)) for name in ("a", "b")
    ]
    async with SshSpawner(settings_at(sshd, tmp_path), {}, "s") as spawner:
        started = [await spawner.spawn(each) for each in orders]
        for record in tmp_path.glob("*/workers/*-a-*/record"):
            record.write_bytes(b"")
        with caplog.at_level(logging.WARNING, "drumbeat.spawn.ssh"):
            found = [await spawner.list(P) for _ in range(3)][-1]

        assert [(one.ref, one.state) for one in found] == [(one.ref, InstanceState.RUNNING) for one in started]
        [said] = [each.getMessage() for each in caplog.records if "damaged" in each.getMessage()]
        assert said.startswith("host here (127.0.0.1:")
        for each in orders:
            await spawner.terminate(P, each.worker_id)
        assert await spawner.list(P) == []
