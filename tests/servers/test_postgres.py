"""The PostgreSQL that tests run on does what they count on, and leaves nothing behind."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psutil
import pytest

from cli.given import eventually
from servers import life
from servers.places import free_port
from servers.postgres import PostgresServer, installation
from servers.reaper import wait_gone
from servers.unprivileged import RunAs, ServerFailed

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

STARTS_AND_WAITS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from servers.postgres import PostgresServer, installation
server = PostgresServer()
server.start()
if sys.argv[2] == "paused":
    server.pause()
print(server.folder, *server.server_pids(), flush=True)
time.sleep(600)
"""


async def fetch(url: str, query: str) -> object:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


class TestDatabases:
    async def test_each_new_database_is_fresh(self, new_database: Callable[[], str]) -> None:
        first, second = new_database(), new_database()

        await fetch(first, "CREATE TABLE t AS SELECT 1 AS n")

        assert await fetch(first, "SELECT count(*) FROM pg_class WHERE relname = 't'") == 1
        assert await fetch(second, "SELECT count(*) FROM pg_class WHERE relname = 't'") == 0

    async def test_a_database_is_dropped_though_someone_is_connected(self, postgres: PostgresServer) -> None:
        url = postgres.new_database()
        connection = await asyncpg.connect(url)

        await asyncio.to_thread(postgres.drop_database, url)

        assert postgres.sql(f"SELECT count(*) FROM pg_database WHERE datname = '{url.rpartition('/')[2]}'") == "0"
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("SELECT 1")

    async def test_a_database_can_be_copied_from_a_template(self, postgres: PostgresServer, postgres_url: str) -> None:
        await fetch(postgres_url, "CREATE TABLE t AS SELECT 7 AS n")

        copy = postgres.new_database(template=postgres_url.rpartition("/")[2])

        assert await fetch(copy, "SELECT n FROM t") == 7
        postgres.drop_database(copy)

    async def test_a_user_with_a_password_must_say_it(self, postgres: PostgresServer) -> None:
        postgres.add_password_user("ann", "it's: a/secret@")

        assert await fetch(postgres.url("postgres", "ann", "it's: a/secret@"), "SELECT current_user") == "ann"
        with pytest.raises(asyncpg.InvalidPasswordError):
            await fetch(postgres.url("postgres", "ann", "wrong"), "SELECT 1")

    def test_a_wrong_statement_says_what_was_wrong(self, postgres: PostgresServer) -> None:
        with pytest.raises(ServerFailed, match="no_such_table"):
            postgres.sql("SELECT * FROM no_such_table")


class TestLife:
    async def test_it_keeps_its_port_and_its_rows_over_stop_restart_and_kill(self, private_postgres: PostgresServer) -> None:
        url = private_postgres.new_database()
        await fetch(url, "CREATE TABLE t AS SELECT 7 AS n")

        for end in (private_postgres.stop, private_postgres.restart, private_postgres.kill):
            end()
            private_postgres.start()
            assert await fetch(url, "SELECT n FROM t") == 7

    @pytest.mark.parametrize("end", ["stop", "kill"])
    async def test_while_it_is_down_nobody_answers(self, private_postgres: PostgresServer, end: str) -> None:
        getattr(private_postgres, end)()

        assert not private_postgres.is_running
        assert private_postgres.server_pids() == []
        with pytest.raises(OSError):
            await fetch(private_postgres.url(), "SELECT 1")

    async def test_a_paused_server_is_frozen_until_it_is_resumed(self, private_postgres: PostgresServer) -> None:
        connection = await asyncpg.connect(private_postgres.url())

        with private_postgres.paused():
            states = {psutil.Process(pid).status() for pid in private_postgres.server_pids()}

        assert states == {psutil.STATUS_STOPPED}
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()

    async def test_its_backends_are_among_its_processes(self, private_postgres: PostgresServer) -> None:
        connection = await asyncpg.connect(private_postgres.url())

        assert await connection.fetchval("SELECT pg_backend_pid()") in private_postgres.server_pids()
        await connection.close()

    async def test_settings_are_passed_on(self) -> None:
        with PostgresServer(max_connections=77, settings={"work_mem": "5MB"}) as server:
            assert server.sql("SHOW max_connections") == "77"
            assert server.sql("SHOW work_mem") == "5MB"
            assert server.sql("SHOW fsync") == "on"

    @needs_root
    @pytest.mark.parametrize("run_as", [RunAs.NAMESPACE, RunAs.NOBODY])
    async def test_root_can_start_it_in_either_way(self, run_as: RunAs) -> None:
        try:
            server = PostgresServer(run_as=run_as)
            server.start()
        except ServerFailed as exc:
            if run_as is RunAs.NAMESPACE and "unshare" in str(exc):
                pytest.skip(f"user namespaces are forbidden here: {exc}")
            raise
        with server:
            assert await fetch(server.new_database(), "SELECT 1") == 1

    async def test_a_port_that_is_taken_is_left_for_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            ports = iter([taken.getsockname()[1], free_port()])
            monkeypatch.setattr(life, "free_port", lambda: next(ports))

            with PostgresServer() as server:
                assert server.port != taken.getsockname()[1]
                assert await fetch(server.url(), "SELECT 1") == 1


class TestNothingStays:
    @pytest.mark.parametrize("end", ["stop", "kill", "pause"])
    def test_a_closed_server_is_gone_with_its_folder_and_memory(self, end: str) -> None:
        with PostgresServer() as server:
            processes = [psutil.Process(pid) for pid in server.server_pids()]
            folder, segment = server.folder, shared_memory_of(server)
            assert segment in shared_memory()
            getattr(server, end)()

        assert wait_gone(processes, 10)
        assert not folder.exists()
        assert segment not in shared_memory()

    @pytest.mark.parametrize("how", ["running", "paused"])
    def test_a_test_process_that_is_killed_takes_its_server_with_it(self, how: str) -> None:
        command = [sys.executable, "-c", STARTS_AND_WAITS, str(Path(__file__).parent.parent), how]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tester:
            assert tester.stdout is not None
            folder, *pids = tester.stdout.readline().split()
            processes = [psutil.Process(int(pid)) for pid in pids]
            assert len(processes) > 1

            tester.kill()

        assert wait_gone(processes, 20)
        assert wait_removed(Path(folder))


def shared_memory_of(server: PostgresServer) -> str:
    """The System V segment that its pid file names."""
    return (server.data / "postmaster.pid").read_text().splitlines()[6].split()[1]


def shared_memory() -> set[str]:
    """The System V segments of this machine."""
    try:
        return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
    except FileNotFoundError:
        pytest.skip("this system does not say which shared memory there is")


def wait_removed(folder: Path) -> bool:
    deadline = time.monotonic() + 60
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not folder.exists()


def test_a_backend_that_ends_while_the_server_is_frozen_holds_up_nothing() -> None:
    with PostgresServer() as server:
        psql = str(installation() / "bin" / "psql")
        command = [psql, "-X", "-q", "-c", "SELECT pg_sleep(60)", server.url()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            eventually(lambda: bool(sleepers(server)), "the backend works")
            [backend] = sleepers(server)
            psutil.Process(server.server_pids()[0]).suspend()
            backend.terminate()
            eventually(lambda: backend.status() == psutil.STATUS_ZOMBIE, "the backend has ended, and nobody asked how")

            with server.paused():
                assert server.is_running


def sleepers(server: PostgresServer) -> list[psutil.Process]:
    found = [psutil.Process(pid) for pid in server.server_pids()]
    return [process for process in found if "SELECT" in " ".join(process.cmdline())]
