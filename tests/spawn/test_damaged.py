"""A damaged record in the state folder of local workers costs only its own worker."""

import errno
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.damaged import delete_if_possible
from drumbeat.spawn.interface import InstanceState, Order
from drumbeat.spawn.local import LocalSpawner
from drumbeat.spawn.state_dir import StateDir, folder_of
from spawn.programs import WORKER, python

P, A, B = PoolId("p"), WorkerId("a"), WorkerId("b")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def circle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[:3]),
    "binary": lambda path: path.write_bytes(b"\xff\x00"),
    "a folder": folder,
    "a circle": circle,
}


def order(worker_id: WorkerId) -> Order:
    return Order(pool_id=P, worker_id=worker_id, slot=0, group_count=1, command=python(WORKER))


@pytest.fixture
async def spawner(tmp_path: Path) -> AsyncIterator[LocalSpawner]:
    async with LocalSpawner(tmp_path, {}) as spawner:
        yield spawner


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("record", ["workers", "running", "forked"])
async def test_a_damaged_record_costs_only_its_worker(
    spawner: LocalSpawner, tmp_path: Path, record: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    started = [await spawner.spawn(order(each)) for each in (A, B)]
    path = tmp_path / record / P / f"{A}.ref"
    if record == "forked":
        StateDir(tmp_path).note_forked((P, A), started[0].ref)
    DAMAGE[kind](path)

    async with LocalSpawner(tmp_path, {}, survive=True) as other:
        with caplog.at_level(logging.WARNING):
            found = [await other.list(P) for _ in range(2)][-1]
        assert [(one.ref, one.state) for one in found] == [(one.ref, InstanceState.RUNNING) for one in started]
        assert len([each for each in caplog.records if str(path) in each.getMessage()]) == 1
        assert (await other.spawn(order(A))).ref == started[0].ref, "it runs already"
        await other.terminate(P, A)
        again = await other.spawn(order(A))
        assert [(one.ref, one.state) for one in await other.list(P)] == [
            (again.ref, InstanceState.RUNNING),
            (started[1].ref, InstanceState.RUNNING),
        ]
        await other.terminate(P, A)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_record_is_swept_once_its_process_is_gone(tmp_path: Path, kind: str) -> None:
    kept = StateDir(tmp_path)
    kept.note_ref((P, A), "999999999:1")
    kept.note_forked((P, B), "999999999:1")
    DAMAGE[kind](tmp_path / "running" / P / f"{A}.ref")
    DAMAGE[kind](tmp_path / "forked" / P / f"{B}.ref")

    assert kept.running(P, SystemClock().now()) == []
    assert kept.forked() == []
    assert [*tmp_path.glob("running/*/*"), *tmp_path.glob("forked/*/*")] == []


@pytest.mark.parametrize("content", [b"\xff\xfe", b""])
def test_a_folder_whose_owner_cannot_be_read_belongs_to_no_store(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store").write_bytes(content)

    assert folder_of(tmp_path, "sqlite:///x").parent == tmp_path / "stores"


def test_a_file_that_cannot_be_deleted_keeps_no_others_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, where a log that is still open cannot be deleted; the other files have secrets."""
    run, unlink = tmp_path / "run", os.unlink
    run.mkdir()
    for name in ("a-env", "log", "z-env"):
        (run / name).write_text("secret")

    def busy(name: Any, **options: Any) -> None:
        if Path(name).name == "log":
            raise OSError(errno.EBUSY, "Device or resource busy", name)
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", busy)
    delete_if_possible(run)

    assert [path.name for path in run.iterdir()] == ["log"]
