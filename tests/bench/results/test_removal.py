"""A removed run takes its files along: those that are its own, and here."""

import socket
from pathlib import Path

import pytest

from drumbeat.bench.results.removal import Removed, remove_run
from drumbeat.core.errors import NotFound
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import ExecutionFile, Run, RunId
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import Store

RUN, HERE = RunId("run-1"), socket.gethostname()


async def run_with(store: Store, *files: tuple[str, Path]) -> None:
    """A run whose workers left these files: on a host, at a path."""
    await store.runs.create(Run(run_id=RUN, name="r", config={}), pool(RUN, PoolKind.BENCH))
    for host, path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")
        await store.results.add_file(
            ExecutionFile(run_id=RUN, worker_id=WorkerId("w"), path=str(path), host=host, rows=1, size=4)
        )


async def test_its_files_and_their_folders_go_with_a_run(store: Store, tmp_path: Path) -> None:
    files = [tmp_path / RUN / worker / f"{n:05d}.parquet" for worker in ("worker-0", "worker-1") for n in range(2)]
    await run_with(store, *((HERE, file) for file in files))

    assert await remove_run(store, RUN) == Removed(files=4, left=())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFound):
        await store.runs.get(RUN)


async def test_a_file_of_another_host_is_named_and_one_of_the_same_path_is_left_alone(store: Store, tmp_path: Path) -> None:
    file = tmp_path / RUN / "worker-0" / "00000.parquet"
    await run_with(store, ("elsewhere", file))

    assert await remove_run(store, RUN) == Removed(files=0, left=(f"elsewhere:{file}",))
    assert file.exists()


@pytest.mark.parametrize("name", ["run-1/worker-0/notes.txt", "run-2/worker-0/00000.parquet", "00000.parquet"])
async def test_what_a_worker_would_not_have_left_is_never_deleted(store: Store, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    await run_with(store, (HERE, file))

    assert await remove_run(store, RUN) == Removed(files=0, left=(f"{HERE}:{file}",))
    assert file.exists()


async def test_what_somebody_put_beside_the_files_stays(store: Store, tmp_path: Path) -> None:
    file = tmp_path / RUN / "worker-0" / "00000.parquet"
    await run_with(store, (HERE, file))
    (beside := tmp_path / RUN / "notes.txt").write_text("mine")

    assert (await remove_run(store, RUN)).files == 1
    assert beside.read_text() == "mine"


async def test_without_such_a_run_nothing_is_removed(store: Store) -> None:
    with pytest.raises(NotFound):
        await remove_run(store, RUN)
