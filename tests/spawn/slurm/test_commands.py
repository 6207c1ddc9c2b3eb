"""How Slurm's commands are run: environment, time limit, and who holds the lock; with scripts in their place."""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import SpawnCause, Unanswered
from drumbeat.spawn.slurm.commands import SlurmCommands, SlurmTimeout
from drumbeat.spawn.slurm.folder import SharedFolder
from spawn.programs import PATIENCE_SECONDS

Write = Callable[[str, str], None]
LONG = timedelta(seconds=PATIENCE_SECONDS)
#: holds the lock of a worker while it runs sbatch, as a controller does; its argument: the folder
CONTROLLER = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from drumbeat.core.clock import SystemClock
from drumbeat.spawn.slurm.commands import SlurmCommands
from drumbeat.spawn.slurm.folder import SharedFolder

async def main(path):
    async with SharedFolder(path / "shared", "s", SystemClock()).lock("key", timedelta(seconds=9)) as lock:
        await SlurmCommands(timedelta(minutes=5), path).submit([], path / "script", lock)

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(program: str, text: str) -> None:
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)

    return write


async def appears(path: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not path.exists():
            await asyncio.sleep(0.01)


async def test_commands_get_no_secrets_of_this_process(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMBEAT_STORE", "postgresql://ann:secret@db/app")
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    monkeypatch.setenv("SLURM_CONF", "/etc/here.conf")
    write("sbatch", "env >&2; echo 7")

    answer = await SlurmCommands(LONG, tmp_path).submit([], tmp_path / "script", os.open(tmp_path, os.O_RDONLY))

    names = {line.partition("=")[0] for line in answer.errors.splitlines()}
    assert (answer.code, answer.output) == (0, "7\n")
    assert {"SLURM_CONF", "PATH"} <= names
    assert not names & {"DRUMBEAT_STORE", "SBATCH_PARTITION"}


async def test_a_command_that_does_not_end_is_killed_and_told(tmp_path: Path, write: Write) -> None:
    write("squeue", f"echo $$ > {tmp_path}/pid; exec sleep 120")

    with pytest.raises(SlurmTimeout, match="squeue did not end within 300 ms; check that slurmctld runs"):
        await SlurmCommands(timedelta(milliseconds=300), tmp_path).jobs()

    with suppress(FileNotFoundError), pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_cancelled_start_lets_sbatch_end(tmp_path: Path, write: Write) -> None:
    write("sbatch", f"touch {tmp_path}/began; sleep 0.3; touch {tmp_path}/submitted; echo 7")
    commands, file = SlurmCommands(LONG, tmp_path), os.open(tmp_path, os.O_RDONLY)

    async def submit() -> None:
        await commands.submit([], tmp_path / "script", file)

    async with asyncio.TaskGroup() as group:
        start = group.create_task(submit())
        await appears(tmp_path / "began")
        start.cancel()

    assert start.cancelled()
    assert (tmp_path / "submitted").exists()


async def test_sbatch_holds_the_lock_when_its_controller_is_killed(tmp_path: Path, write: Write) -> None:
    write("sbatch", f"touch {tmp_path}/began; while [ ! -e {tmp_path}/end ]; do sleep 0.02; done")
    folder = SharedFolder(tmp_path / "shared", "s", SystemClock())
    folder.prepare()
    controller = await asyncio.create_subprocess_exec(sys.executable, "-c", CONTROLLER, str(tmp_path))
    await appears(tmp_path / "began")
    controller.kill()
    await controller.wait()

    with pytest.raises(Unanswered, match="another process still holds the lock"):
        async with folder.lock("key", timedelta(milliseconds=50)):
            pass
    (tmp_path / "end").touch()
    async with folder.lock("key", LONG):
        pass


@pytest.mark.parametrize("ending", ["kill -SEGV $$", "echo 'squeue: unrecognized option --json' >&2; exit 1"])
async def test_where_squeue_has_no_json_its_text_is_read(tmp_path: Path, write: Write, ending: str) -> None:
    line = f"7|RUNNING|None|node1|main|N/A|{os.getuid()}|drumbeat:s:r:p:w"
    write("squeue", f'case "$*" in *--json*) {ending};; esac; echo "{line}"')

    assert [job.job_id for job in await SlurmCommands(LONG, tmp_path).jobs()] == [7]


async def test_on_a_large_cluster_text_is_read_after_the_first_time(tmp_path: Path, write: Write) -> None:
    (tmp_path / "large").write_text('{"errors": [], "jobs": [' + " " * 6_000_000 + "]}")
    write("squeue", f'echo "$*" >> {tmp_path}/calls; case "$*" in *--json*) cat {tmp_path}/large;; esac')
    commands = SlurmCommands(LONG, tmp_path)

    assert [await commands.jobs() for _ in range(2)] == [[], []]

    assert ["--json" in call for call in (tmp_path / "calls").read_text().splitlines()] == [True, False]


@pytest.mark.parametrize("by_json", ["exit 1", """echo '{"errors": [{"error_number": -1}], "jobs": []}'; exit 0"""])
async def test_a_squeue_that_fails_is_no_empty_queue(tmp_path: Path, write: Write, by_json: str) -> None:
    told = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    write("squeue", f'case "$*" in *--json*) {by_json};; esac; {told}')

    with pytest.raises(
        Unanswered, match=r"squeue failed with exit code 1: .*; the controller of the cluster does not"
    ) as failed:
        await SlurmCommands(LONG, tmp_path).jobs()

    assert failed.value.cause is SpawnCause.TRANSIENT
