"""Every operation kept: whole files or none, and what could not be kept is said."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drumbeat.bench.driver import executions
from drumbeat.bench.driver.executions import ExecutionWriter
from drumbeat.bench.driver.records import FAILED, Records, empty
from drumbeat.bench.model import KeyValue, Load, Operation, Statement
from drumbeat.bench.targets.postgres import PostgresTarget
from drumbeat.bench.worker.drive import DriveSettings, drive
from drumbeat.core.clock import SystemClock

FULL = Path("/dev/full")


def records(count: int) -> Records:
    made = empty(count)
    made["start"], made["due"], made["duration"] = 5_000_000, 4_000_000, 2_000_000
    made["kind"], made["connection"], made["rows"] = 1, 7, 3
    return made


def writer(folder: Path, **settings: float) -> ExecutionWriter:
    return ExecutionWriter(folder, ["A", "B"], wall_offset_ns=1_000_000_000_000_000_000, **settings)


def test_what_was_recorded_is_in_the_file(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    failed = records(1)
    failed["outcome"], failed["sqlstate"] = FAILED, b"23505"
    writing.keep(records(2), warmup=True)
    writing.keep(failed, warmup=False)
    writing.close()

    rows = pq.read_table(tmp_path / "00000.parquet").to_pylist()

    assert [row["warmup"] for row in rows] == [True, True, False]
    assert (rows[0]["kind"], rows[0]["connection"], rows[0]["rows"], rows[0]["ok"], rows[0]["sqlstate"]) == (
        "B",
        7,
        3,
        True,
        None,
    )
    assert (rows[0]["duration_us"], rows[0]["response_us"]) == (2000.0, 3000.0)
    assert (rows[2]["ok"], rows[2]["sqlstate"]) == (False, "23505")
    assert rows[0]["started_at"].timestamp() == pytest.approx(1_000_000_000.005)
    assert (writing.files[0].rows, writing.loss.rows) == (3, 0)


def test_files_and_their_folders_are_for_this_user_alone(tmp_path: Path) -> None:
    writing = writer(tmp_path / "run" / "worker")
    writing.keep(records(2), warmup=True)
    writing.close()

    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*")}

    assert modes == {"run": "0o700", "worker": "0o700", "00000.parquet": "0o600"}


def test_a_file_has_its_name_only_once_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "FILE_ROWS", 100)
    writing = writer(tmp_path)
    for _ in range(25):
        writing.keep(records(10), warmup=False)
    writing.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000.parquet", "00001.parquet", "00002.parquet"]
    assert [file.rows for file in writing.files] == [100, 100, 50]


def test_a_file_that_is_being_written_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, seen = executions._OpenFile.write, list[set[str]]()

    def writes(file: executions._OpenFile, table: pa.Table) -> None:
        write(file, table)
        seen.append({path.name for path in tmp_path.iterdir()})

    monkeypatch.setattr(executions._OpenFile, "write", writes)
    writing = writer(tmp_path)
    writing.keep(records(10), warmup=False)
    writing.close()

    assert seen == [{"00000.unfinished"}]


def test_a_sample_of_the_operations_may_be_kept(tmp_path: Path) -> None:
    writing = writer(tmp_path, sampling=0.1)
    writing.keep(records(10_000), warmup=False)
    writing.close()

    assert 800 < writing.files[0].rows < 1200


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full to be a full disk")
def test_on_a_full_disk_load_goes_on_and_the_loss_is_counted_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OnFullDisk(pq.ParquetWriter):  # type: ignore[misc]
        def __init__(self, where: Path, schema: object, **options: object) -> None:
            super().__init__(str(FULL), schema, **options)

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", OnFullDisk)
    writing = writer(tmp_path)
    for _ in range(10):
        writing.keep(records(200_000), warmup=False)
    writing.close()

    assert writing.files == []
    assert writing.loss.rows == 2_000_000
    assert "space" in " ".join(writing.loss.reasons)


def test_on_a_slow_disk_load_goes_on_and_every_row_is_kept_or_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_writing, may_write = threading.Event(), threading.Event()

    class OnSlowDisk(pq.ParquetWriter):  # type: ignore[misc]
        def write_table(self, *arguments: object) -> None:
            is_writing.set()
            may_write.wait()
            super().write_table(*arguments)

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", OnSlowDisk)
    writing = writer(tmp_path)
    writing.keep(records(1), warmup=False)
    assert is_writing.wait(30)
    waiting = [10] * executions._MOST_WAITING
    for rows in (*waiting, 20, 3):
        writing.keep(records(rows), warmup=False)
    may_write.set()
    writing.close()

    assert (writing.loss.rows, writing.loss.reasons) == (23, {"the disk is too slow": 23})
    assert pq.read_table(tmp_path / "00000.parquet").num_rows == writing.files[0].rows == 1 + sum(waiting)
    assert caplog.text.count("some operations are missing in the Parquet files: the disk is too slow") == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here; that takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def varied(count: int) -> Records:
    """Records that do not compress."""
    made = records(count)
    chance = np.random.default_rng(4)
    for name in ("start", "duration"):
        made[name] = chance.integers(0, 1 << 40, count)
    return made


def test_when_a_disk_runs_full_every_row_is_on_it_or_counted_as_lost(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executions, "FILE_ROWS", 10_000)
    writing = writer(small_disk)
    for _ in range(20):
        writing.keep(varied(5_000), warmup=False)
    writing.close()

    kept = sum(pq.read_table(path).num_rows for path in small_disk.glob("*.parquet"))
    assert 0 < kept < 100_000
    assert sum(file.rows for file in writing.files) == kept
    assert writing.loss.rows == 100_000 - kept
    assert "No space left on device" in " ".join(writing.loss.reasons)
    assert "some operations are missing in the Parquet files" in caplog.text
    assert [path.name for path in small_disk.iterdir() if path.suffix != ".parquet"] == []


def test_when_a_full_disk_has_room_again_rows_are_kept_again(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((1 << 20) - 8192))
    writing = writer(small_disk)
    writing.keep(varied(5_000), warmup=False)
    wait_until(lambda: writing.loss.rows == 5_000)
    ballast.unlink()
    writing.keep(varied(5_000), warmup=False)
    writing.close()

    assert writing.loss.rows == 5_000
    assert [file.rows for file in writing.files] == [5_000]


async def test_load_goes_on_while_the_disk_is_full_and_its_result_says_what_was_lost(
    small_disk: Path, new_database: Callable[[], str]
) -> None:
    (small_disk / "ballast").write_bytes(bytes((1 << 20) - 8192))
    lookup = Statement(sql="SELECT $1", values=(KeyValue(low=1, high=9),))
    work = Load(name="x", operations=(Operation(kind="A", weight=100, statements=(lookup,)),))
    settings = DriveSettings(
        connections=4, duration=timedelta(seconds=1), warmup=timedelta(), executions=small_disk / "executions"
    )
    async with PostgresTarget(new_database()) as target:
        result = await drive(target, work, settings, SystemClock())

    assert result.tally.operations > 0
    assert result.tally.errors == 0
    assert int(result.executions["lost"]) > 0
    assert int(result.executions["rows"]) + int(result.executions["lost"]) >= result.tally.operations
    assert any("No space left on device" in warning for warning in result.warnings)


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_worker_killed_amid_its_load_leaves_all_but_the_last_seconds(tmp_path: Path) -> None:
    assert executions.FILE_SECONDS <= 5

    program = f"""
import os, signal, time
from pathlib import Path
from drumbeat.bench.driver import executions
from drumbeat.bench.driver.records import empty
executions.FILE_SECONDS = 0.05
writing = executions.ExecutionWriter(Path({str(tmp_path)!r}), ["A"], wall_offset_ns=0)
while len(writing.files) < 3:
    writing.keep(empty(10), warmup=False)
    time.sleep(0.02)
print(sum(file.rows for file in writing.files), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=60, capture_output=True, text=True)

    assert ended.returncode == -signal.SIGKILL
    assert sum(pq.read_table(path).num_rows for path in tmp_path.glob("*.parquet")) >= int(ended.stdout) >= 30


def test_files_closed_before_a_kill_are_readable(tmp_path: Path) -> None:
    program = f"""
import os, signal, time
from pathlib import Path
from drumbeat.bench.driver import executions
from drumbeat.bench.driver.records import empty
executions.FILE_ROWS = 100
writing = executions.ExecutionWriter(Path({str(tmp_path)!r}), ["A"], wall_offset_ns=0)
writing.keep(empty(150), warmup=False)
writing.keep(empty(50), warmup=False)
while len(writing.files) < 1:
    time.sleep(0.01)
writing.keep(empty(50), warmup=False)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=60, env=dict(os.environ))

    assert ended.returncode == -signal.SIGKILL
    whole = list(tmp_path.glob("*.parquet"))
    assert whole
    assert sum(pq.read_table(path).num_rows for path in whole) in (150, 200)
