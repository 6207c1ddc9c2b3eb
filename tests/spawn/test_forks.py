"""Workers forked from a warm process keep the contract too, and are found, leashed, logged and ended like all others."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from drumbeat.core.errors import AlreadyExists, SpawnAmbiguous
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn import fork_client
from drumbeat.spawn.contract import POOL, ExitCodeContract, OrderFactory, PoolListContract, SpawnerContract
from drumbeat.spawn.fork_client import NoForkServer, SocketConnector, fork
from drumbeat.spawn.fork_server import listening
from drumbeat.spawn.fork_wire import SOCKET, Request, code_identity
from drumbeat.spawn.interface import InstanceState, Order, Spawner
from drumbeat.spawn.local import LocalSpawner
from spawn.programs import PATIENCE_SECONDS, eventually, is_alive, process_of, said

P = POOL
W = WorkerId("w")

#: becomes what its words say; sys.argv: the state folder
SERVER = """
import os, signal, subprocess, sys
from pathlib import Path
from drumbeat.spawn.fork_server import ForkServer, listening
from drumbeat.spawn.leash import hold_leash

def become(words):
    signal.alarm(120)
    if words[0] == "exits":
        sys.exit(int(words[1]))
    if words[0] == "breaks":
        raise ValueError("it broke")
    if words[0] == "parent":
        far = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
        print("children", far.pid, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("leash", hold_leash(), flush=True)
    print("place", os.getcwd(), os.environ["EXTRA"], os.environ["DRUMBEAT_WORKER_ID"], sys.path[0], flush=True)
    print("tokens", *sorted(name for name in os.environ if "TOKEN" in name), flush=True)
    print("ready", *words, flush=True)
    while True:
        signal.pause()

with listening(Path(sys.argv[1])) as knocks:
    server = ForkServer(knocks, become)
    print("up", flush=True)
    server.serve()
"""


@contextmanager
def fork_server(folder: Path) -> Iterator[psutil.Process]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"up\n"
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Longer than a socket's path may be."""
    place = tmp_path / ("long" * 30)
    place.mkdir()
    return place


@pytest.fixture
def server(folder: Path) -> Iterator[psutil.Process]:
    with fork_server(folder) as process:
        yield process


@pytest.fixture
async def spawner(folder: Path, server: psutil.Process) -> AsyncIterator[LocalSpawner]:
    async with LocalSpawner(folder, {"EXTRA": "1"}) as spawner:
        yield spawner


def order(words: Sequence[str] = ("runs",), worker_id: WorkerId = W, pool_id: PoolId = P) -> Order:
    command = (sys.executable, "-m", "drumbeat", *words)
    return Order(pool_id=pool_id, worker_id=worker_id, slot=0, group_count=1, command=command)


class TestForkedWorkers(SpawnerContract, ExitCodeContract, PoolListContract):
    @pytest.fixture
    def order(self) -> OrderFactory:
        def make(worker_id: WorkerId, pool_id: PoolId, *, exits: int | None = None, startable: bool = True) -> Order:
            if not startable:
                return Order(pool_id=pool_id, worker_id=worker_id, slot=0, group_count=1, command=("/nowhere/no-such-program",))
            return order(("runs",) if exits is None else ("exits", str(exits)), worker_id, pool_id)

        return make

    async def running(self, spawner: Spawner, wanted: Order) -> None:
        await super().running(spawner, wanted)
        assert isinstance(spawner, LocalSpawner)
        await asyncio.to_thread(said, spawner.log_path(wanted.pool_id, wanted.worker_id), "ready")


async def test_it_is_a_child_of_the_server_and_leads_a_session(spawner: LocalSpawner, server: psutil.Process) -> None:
    worker = process_of((await spawner.spawn(order())).ref)

    assert worker.ppid() == server.pid
    assert os.getsid(worker.pid) == worker.pid


async def test_it_has_the_folder_the_environment_and_the_path_of_who_asked(
    spawner: LocalSpawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DRUMBEAT_TOKEN", "DRUMBEAT_READ_TOKEN", "OWN_TOKEN"):
        monkeypatch.setenv(name, "17")

    await spawner.spawn(order())

    assert await asyncio.to_thread(said, spawner.log_path(P, W), "place") == [str(tmp_path), "1", W, str(tmp_path)]
    assert await asyncio.to_thread(said, spawner.log_path(P, W), "tokens") == ["OWN_TOKEN"]


@pytest.mark.parametrize("survive", [False, True])
async def test_it_is_on_a_leash_unless_it_shall_survive(folder: Path, server: psutil.Process, survive: bool) -> None:
    async with LocalSpawner(folder, {"EXTRA": "1"}, survive=survive) as spawner:
        worker = process_of((await spawner.spawn(order())).ref)
        assert await asyncio.to_thread(said, spawner.log_path(P, W), "leash") == [str(not survive)]

    assert is_alive(worker) is survive
    async with LocalSpawner(folder, {}) as other:
        await other.terminate(P, W)
    assert not is_alive(worker)


async def test_another_spawner_of_the_folder_finds_and_ends_it(spawner: LocalSpawner, folder: Path) -> None:
    mine = await spawner.spawn(order())
    async with LocalSpawner(folder, {}) as other:
        assert [(one.ref, one.state) for one in await other.list(P)] == [(mine.ref, InstanceState.RUNNING)]
        assert (await other.spawn(order())).ref == mine.ref

        process = process_of(mine.ref)
        await other.terminate(P, W)

    assert not is_alive(process)
    assert list((folder / "forked").glob("*/*.ref")) == []


async def test_a_child_of_its_own_goes_with_it(spawner: LocalSpawner) -> None:
    await spawner.spawn(order(("parent",)))
    [child] = [process_of(pid) for pid in await asyncio.to_thread(said, spawner.log_path(P, W), "children")]
    assert is_alive(child)

    await spawner.terminate(P, W)

    await asyncio.to_thread(eventually, lambda: not is_alive(child), "its child to be gone")


async def test_an_error_nobody_caught_is_in_its_log_and_exit_code_1(spawner: LocalSpawner) -> None:
    await spawner.spawn(order(("breaks",)))

    await SpawnerContract().until(spawner, lambda seen: [one.exit_code for one in seen] == [1])

    assert "ValueError: it broke" in spawner.log_path(P, W).read_text()


async def test_it_outlives_its_server_and_is_still_found(spawner: LocalSpawner, server: psutil.Process) -> None:
    mine = await spawner.spawn(order())
    server.kill()
    server.wait()

    assert [(one.ref, one.state) for one in await spawner.list(P)] == [(mine.ref, InstanceState.RUNNING)]
    os.kill(process_of(mine.ref).pid, signal.SIGKILL)
    ended = await SpawnerContract().until(spawner, lambda seen: seen[0].state is InstanceState.EXITED)
    assert ended[0].exit_code is None


@pytest.mark.parametrize("way", ["gone", "other code"])
async def test_without_a_server_that_will_do_a_process_is_started(
    folder: Path, server: psutil.Process, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "gone":
        server.kill()
        server.wait()
    else:
        monkeypatch.setattr("drumbeat.spawn.local.code_identity", lambda: "another interpreter")
    async with LocalSpawner(folder, {}) as spawner:
        worker = process_of((await spawner.spawn(order(("no-such-command",)))).ref)

        assert worker.ppid() == os.getpid()


async def test_a_server_whose_code_has_changed_leaves(folder: Path, tmp_path: Path) -> None:
    extra = tmp_path / "drumbeat_extra.py"
    extra.write_text("")
    loads = (
        f"import sys, types; m = types.ModuleType('drumbeat.extra'); m.__file__ = {str(extra)!r}; sys.modules[m.__name__] = m\n"
    )
    process = subprocess.Popen([sys.executable, "-c", loads + SERVER, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    os.utime(extra, (1, 1))

    with pytest.raises(NoForkServer, match="other code"):
        fork(SocketConnector(folder), request(folder), [1])

    assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == 0
    process.stdout.close()
    assert not (folder / SOCKET).exists()


def request(folder: Path) -> Request:
    return Request(words=("exits", "0"), environment={}, folder=str(folder), made_of=code_identity())


def test_its_socket_is_its_users_alone_and_there_is_one_server_for_a_folder(folder: Path, server: psutil.Process) -> None:
    assert stat.S_IMODE((folder / SOCKET).stat().st_mode) == 0o600
    with pytest.raises(AlreadyExists, match="one is already running"), listening(folder):
        pass


def test_a_socket_that_another_user_serves_is_not_trusted(
    folder: Path, server: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)

    with pytest.raises(NoForkServer, match="process of this user"):
        fork(SocketConnector(folder), request(folder), [1])


def test_a_server_that_does_not_answer_leaves_it_open_whether_it_did(
    folder: Path, server: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_client, "TIMEOUT_SECONDS", 0.2)
    server.suspend()
    try:
        with pytest.raises(SpawnAmbiguous, match="fork server"):
            fork(SocketConnector(folder), request(folder), [1])
    finally:
        server.resume()


def test_what_is_no_request_harms_nobody(folder: Path, server: psutil.Process) -> None:
    for nonsense in (b"", b"\0\0\0\2{}", b"\xff\xff\xff\xff"):
        with SocketConnector(folder).connect() as connection:
            connection.sendall(nonsense)

    assert fork(SocketConnector(folder), request(folder), [1]).wait() == 0
