"""A damaged run folder costs only its own worker, and is deleted once its job has ended."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import InstanceState
from spawn.slurm.test_spawner import FakeCluster, open_spawner, order

P, A, B = PoolId("p"), WorkerId("a"), WorkerId("b")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[:10]),
    "binary": lambda path: path.write_bytes(b"\xff\x00"),
    "a list": lambda path: path.write_text("[]"),
    "a folder": folder,
    "missing": lambda path: path.unlink(),
}


def run_folder(shared: Path, worker_id: str) -> Path:
    [found] = shared.glob(f"shared/*/workers/*-{worker_id}-*")
    return found


@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_damaged_record_costs_only_its_worker(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()
    async with open_spawner(cluster, tmp_path, slots=5) as spawner:
        await spawner.spawn(order(A)), await spawner.spawn(order(B))
        damaged = run_folder(tmp_path, A)
        DAMAGE[kind](damaged / "record")
        os.utime(damaged, (0, 0))

        with caplog.at_level(logging.WARNING):
            assert [(one.worker_id, one.state) for one in await spawner.list(P)] == [
                (A, InstanceState.PENDING),
                (B, InstanceState.PENDING),
            ]
            assert (await spawner.spawn(order(A))).ref == "1", "its job is listed, so it is not started twice"
        assert len([each for each in caplog.records if str(damaged / "record") in each.getMessage()]) == 1

        cluster.move(1, "FAILED")
        assert [one.worker_id for one in await spawner.list(P)] == [B]
        assert not damaged.exists()
        assert (await spawner.spawn(order(A))).ref == "3"


async def test_a_damaged_worker_is_terminated_and_started_again(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with open_spawner(cluster, tmp_path) as spawner:
        await spawner.spawn(order(A))
        (run_folder(tmp_path, A) / "record").write_bytes(b"")
        await spawner.terminate(P, A)
        assert cluster.live == []

        await spawner.spawn(order(A))
        (run_folder(tmp_path, A) / "record").write_bytes(b"")
        cluster.move(2, "FAILED")
        assert (await spawner.spawn(order(A))).ref == "3", "the folder is in nobody's way"


@pytest.mark.parametrize("file", ["exit", "job", "claim"])
async def test_another_damaged_file_costs_nothing(file: str, tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with open_spawner(cluster, tmp_path) as spawner:
        await spawner.spawn(order(A)), await spawner.spawn(order(B))
        (run_folder(tmp_path, A) / file).write_text("") if file == "job" else (run_folder(tmp_path, A) / file).write_text("x")

        assert [one.worker_id for one in await spawner.list(P)] == [A, B]


async def test_an_old_damaged_run_folder_is_kept_as_long_as_its_job_runs(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with open_spawner(cluster, tmp_path) as spawner:
        await spawner.spawn(order(A))
    damaged = run_folder(tmp_path, A)
    (damaged / "record").write_bytes(b"")
    os.utime(damaged, (0, 0))

    async with open_spawner(cluster, tmp_path) as spawner:
        assert [one.worker_id for one in await spawner.list(P)] == [A]
        assert damaged.exists()
