"""Whatever is wrong with a host is told in one line that says what to do."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from drumbeat.core.errors import InvalidInput, InvalidSettings, SpawnCause, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Order
from drumbeat.spawn.ssh import SshHost, SshSettings, SshSpawner
from servers.openssh import OpenSshServer
from servers.places import free_port
from spawn.ssh.conftest import host_at, settings_at

P, W = PoolId("p"), WorkerId("w")
FOREVER = ("sh", "-c", "sleep 120")


def order(worker_id: str = W, *command: str) -> Order:
    return Order(pool_id=P, worker_id=WorkerId(worker_id), slot=2, group_count=5, command=command or FOREVER)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which connections are accepted by the kernel, and nobody answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def failure(settings: SshSettings) -> SpawnError:
    """The error of a list, which a start and a check tell in the same words."""
    async with SshSpawner(settings, {}, "s") as spawner:
        with pytest.raises(Unanswered) as listing:
            await spawner.list(P)
        [report] = await spawner.check_hosts()

    assert report.problem == str(listing.value)
    assert "\n" not in report.problem
    assert report.cause is listing.value.cause
    return listing.value


def certificate() -> str:
    """A host's certificate, which known hosts may not hold."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.generate_host_certificate(key, "here").export_certificate().decode().strip()


class TestLogin:
    async def test_a_wrong_key(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        error = await failure(settings_at(sshd, tmp_path, key_file=sshd.wrong_key_file))

        assert f"host here (127.0.0.1:{sshd.port}): the host refuses user {sshd.user} with {sshd.wrong_key_file}" in str(error)
        assert error.cause is SpawnCause.AUTH

    async def test_a_key_file_that_is_no_key(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        (tmp_path / "key").write_text("not a key")

        error = await failure(settings_at(sshd, tmp_path, key_file=tmp_path / "key"))

        assert f"cannot use the key file {tmp_path}/key" in str(error)
        assert error.cause is SpawnCause.AUTH

    async def test_a_line_of_known_hosts_that_cannot_be_read_is_named_and_left_out(
        self, sshd: OpenSshServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        known = tmp_path / "known"
        known.write_bytes(b"oops\n\xff\xfe \n@nonsense a b\n" + Path(sshd.known_hosts).read_bytes())

        async with SshSpawner(settings_at(sshd, tmp_path, known_hosts=known), {}, "s") as spawner:
            assert await spawner.list(P) == []
            [report] = await spawner.check_hosts()

        assert report.problem is None
        assert [
            f"ignoring line {number} of {known}, which is not a known host: " in text
            for number, text in enumerate(caplog.messages, 1)
        ] == [True, True, True]

    async def test_known_hosts_that_cannot_be_used(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        """Such as with a certificate in the place of a host's key."""
        (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {certificate()}\n")

        error = await failure(settings_at(sshd, tmp_path, known_hosts=tmp_path / "known"))

        assert f"cannot use {tmp_path}/known: " in str(error)
        assert error.cause is SpawnCause.AUTH

    async def test_an_unknown_host_key(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        (tmp_path / "known").write_text("")

        error = await failure(settings_at(sshd, tmp_path, known_hosts=tmp_path / "known"))

        assert f"its host key is not known: {tmp_path}/known has no key of this host" in str(error)
        assert f"ssh-keyscan -p {sshd.port} 127.0.0.1 >> {tmp_path}/known" in str(error)
        assert error.cause is SpawnCause.AUTH

    async def test_another_host_key_than_the_known_one(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        other = (sshd.folder / "other_key.pub").read_text()
        (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {other}")

        error = await failure(settings_at(sshd, tmp_path, known_hosts=tmp_path / "known"))

        assert f"its host key has changed: it is not the one in {tmp_path}/known" in str(error)
        assert "Somebody might be reading the connection, or the host was installed again" in str(error)
        assert f"ssh-keygen -f {tmp_path}/known -R '[127.0.0.1]:{sshd.port}'" in str(error)
        assert error.cause is SpawnCause.AUTH

    async def test_the_key_of_another_port_of_the_host_is_not_its_key(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        other = (sshd.folder / "other_key.pub").read_text()
        (tmp_path / "known").write_text(f"[127.0.0.1]:1 {other}")

        error = await failure(settings_at(sshd, tmp_path, known_hosts=tmp_path / "known"))

        assert "its host key is not known" in str(error)

    async def test_any_host_key_is_accepted_only_if_one_says_so(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        (tmp_path / "known").write_text("")
        settings = settings_at(sshd, tmp_path, known_hosts=tmp_path / "known", verify_host_keys=False)

        async with SshSpawner(settings, {}, "s") as spawner:
            assert await spawner.list(P) == []

    async def test_a_host_that_is_down(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        port = free_port()

        error = await failure(settings_at(sshd, tmp_path, hosts=[host_at(sshd, port=port)]))

        assert f"host here (127.0.0.1:{port}): " in str(error)
        assert "check that the host is up and an SSH server listens there" in str(error)
        assert error.cause is SpawnCause.TRANSIENT

    async def test_a_host_that_does_not_answer(self, sshd: OpenSshServer, tmp_path: Path, silent_port: int) -> None:
        hosts = [host_at(sshd, port=silent_port)]

        error = await failure(settings_at(sshd, tmp_path, hosts=hosts, connect_timeout=timedelta(seconds=0.2)))

        assert "no answer within 0.2 s; check that the host is up" in str(error)

    async def test_no_python_there(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        error = await failure(settings_at(sshd, tmp_path, python="/nowhere/python3"))

        assert "could not start the agent with '/nowhere/python3'" in str(error)
        assert "set python to the path of Python 3.11 or newer there: workers need it (the agent needs only 3.8)" in str(error)
        assert error.cause is SpawnCause.BAD_REQUEST

    async def test_a_folder_that_cannot_be_written(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a folder")

        error = await failure(settings_at(sshd, tmp_path / "file" / "runs"))

        assert f"cannot write to the folder {tmp_path}/file/runs" in str(error)
        assert "choose another folder" in str(error)

    async def test_a_host_that_was_down_is_not_asked_again_at_once(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        hosts = [host_at(sshd, port=free_port())]
        async with SshSpawner(settings_at(sshd, tmp_path, hosts=hosts), {}, "s") as spawner:
            with pytest.raises(Unanswered) as first:
                await spawner.list(P)
            with pytest.raises(Unanswered) as second:
                await spawner.list(P)

        assert str(first.value) == str(second.value)
        assert second.value.__cause__ is first.value.__cause__ or isinstance(second.value.__cause__, Unanswered)


class TestStarts:
    async def test_all_slots_are_taken(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        hosts = [host_at(sshd, slots=2)]
        async with SshSpawner(settings_at(sshd, tmp_path, hosts=hosts), {}, "s") as spawner:
            try:
                for name in ("a", "b"):
                    await spawner.spawn(order(name))
                with pytest.raises(SpawnFailed, match="worker c of p could not be started: all 2 slots are taken") as full:
                    await spawner.spawn(order("c"))
                assert full.value.cause is SpawnCause.NO_CAPACITY

                await spawner.terminate(P, WorkerId("a"))
                await spawner.spawn(order("c"))
            finally:
                for name in ("a", "b", "c"):
                    await spawner.terminate(P, WorkerId(name))

    async def test_slots_are_shared_by_the_stores_that_use_a_host(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        settings = settings_at(sshd, tmp_path, hosts=[host_at(sshd, slots=1)])
        async with SshSpawner(settings, {}, "s") as one, SshSpawner(settings, {}, "t") as other:
            await one.spawn(order())
            try:
                assert await other.list(P) == []
                with pytest.raises(SpawnFailed, match="all 1 slots are taken"):
                    await other.spawn(order())
                await other.terminate(P, W)
                assert len(await one.list(P)) == 1
            finally:
                await one.terminate(P, W)

    async def test_a_program_that_is_not_there(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        async with SshSpawner(settings_at(sshd, tmp_path), {}, "s") as spawner:
            with pytest.raises(SpawnFailed, match="/nowhere/program: No such file or directory") as failed:
                await spawner.spawn(order(W, "/nowhere/program"))

            assert failed.value.cause is SpawnCause.BAD_REQUEST
            assert await spawner.list(P) == []

    async def test_a_closed_spawner_starts_nothing(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="async with"):
            await SshSpawner(settings_at(sshd, tmp_path), {}, "s").spawn(order())


class TestCheck:
    async def test_a_host_where_workers_can_run(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        async with SshSpawner(settings_at(sshd, tmp_path), {}, "s") as spawner:
            [report] = await spawner.check_hosts()

        assert report.problem is None
        assert report.drumbeat
        assert report.python == ".".join(map(str, sys.version_info[:3]))
        assert report.clock_offset is not None
        assert abs(report.clock_offset) < timedelta(minutes=1)
        assert (report.slots, report.taken) == (32, 0)

    async def test_a_python_without_drumbeat(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        bare = tmp_path / "bare"
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        bare.chmod(0o755)

        async with SshSpawner(settings_at(sshd, tmp_path, python=str(bare)), {"PYTHONPATH": ""}, "s") as spawner:
            [report] = await spawner.check_hosts()

        assert report.problem is not None
        assert (
            "Drumbeat cannot be imported there: ModuleNotFoundError: No module named 'drumbeat'; install it" in report.problem
        )
        assert report.python == ".".join(map(str, sys.version_info[:3]))

    async def test_a_python_that_is_too_old_for_workers(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        old = tmp_path / "old"
        old.write_text(
            f'#!/bin/sh\ncase "$1" in -c) echo 3.9.2; echo "No module named drumbeat" >&2; exit 1;; esac\n'
            f'exec {sys.executable} "$@"\n'
        )
        old.chmod(0o755)

        async with SshSpawner(settings_at(sshd, tmp_path, python=str(old)), {}, "s") as spawner:
            [report] = await spawner.check_hosts()

        assert report.problem is not None
        assert "its Python is 3.9.2, and workers need 3.11 or newer: set python to the path of a newer one" in report.problem

    async def test_a_spawner_for_one_host_starts_workers_there_only(self, sshd: OpenSshServer, tmp_path: Path) -> None:
        hosts = [host_at(sshd, "one", folder=str(tmp_path / "1")), host_at(sshd, "two", folder=str(tmp_path / "2"), slots=1)]
        whole = SshSpawner(settings_at(sshd, tmp_path, hosts=hosts, labels={}), {}, "s", name="e")

        async with whole, whole.at_host("two") as two:
            try:
                assert (await two.spawn(order())).meta["host"] == "two"
                assert [one.meta["host"] for one in await whole.list(P)] == ["two"], "both see the same workers"
            finally:
                await two.terminate(P, W)
        with pytest.raises(InvalidSettings, match=r"expected a host of the engine e \(one, two\), got 'three'"):
            whole.at_host("three")


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"hosts": []}, "at least one host"),
            ({"hosts": [SshHost(name="a"), SshHost(name="a")]}, "got a more than once"),
            ({"labels": {"gpu": "h100"}}, "no host has them"),
            ({"key_file": Path("/nowhere/key")}, "no file /nowhere/key"),
            ({"known_hosts": Path("/nowhere/known")}, "no file /nowhere/known"),
        ],
    )
    def test_what_cannot_work_is_refused(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidSettings, match=said):
            SshSettings(**{"hosts": [SshHost(name="a")], **given})

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"name": "a b"}, "expected a name"),
            ({"name": ""}, "expected a name"),
            ({"name": "a", "slots": 0}, "slots of 1 or more, got 0"),
            ({"name": "a", "port": 0}, "a port from 1 to 65535"),
            ({"name": "a", "price_per_hour": -1.0}, "price_per_hour of 0 or more"),
        ],
    )
    def test_a_host_that_cannot_be_is_refused(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidSettings, match=said):
            SshHost(**given)

    def test_without_the_extra_the_install_command_is_named(self) -> None:
        program = "import sys; sys.modules['asyncssh'] = None; import drumbeat.spawn.ssh"

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

        assert "the SSH spawner needs an optional dependency; run: pip install 'drumbeat[ssh]'" in done.stderr
