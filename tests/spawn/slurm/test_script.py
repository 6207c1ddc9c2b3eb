"""The script of a worker's job, run by a real shell without Slurm."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from drumbeat.core.errors import SpawnError
from drumbeat.spawn.contract import programs
from drumbeat.spawn.contract.process_setup import new_mark
from drumbeat.spawn.contract.starts import VALUES
from drumbeat.spawn.slurm.script import DRAIN_SIGNAL, TAG, environment_file, submitted_script, worker_script
from spawn.programs import PATIENCE_SECONDS

DRAIN = signal.Signals[f"SIG{DRAIN_SIGNAL}"]
#: writes a line for each SIGTERM, and exits after the second
COUNTS_SIGTERM = """trap 'n=$((n + 1)); echo term; [ $n -lt 2 ] || { kill -9 $p; exit 0; }' TERM; n=0
(trap '' TERM; exec sleep 120) & p=$!; sleep 0.1; echo ready; wait $p; wait $p; wait $p"""


class Job:
    """A job that a shell runs as Slurm's node would."""

    def __init__(self, folder: Path) -> None:
        self.run, self.mark = folder / "scope" / "run", new_mark()
        self.run.mkdir(parents=True)
        self.script, self.tag = self.run / "script-1", new_mark()
        self.processes: list[subprocess.Popen[bytes]] = []

    def write(
        self, program: str, *arguments: str, environment: Mapping[str, str] | None = None, setup: Sequence[str] = ()
    ) -> None:
        command = ("sh", "-c", program, self.mark, *arguments)
        self.script.write_text(worker_script(self.run, self.tag, command, "/", setup))
        (self.run / "submitted").write_text(submitted_script(self.script))
        (self.run / "env").write_bytes(environment_file({**(environment or {}), TAG: self.tag}))

    def start(self, job_id: int = 5, **variables: str) -> subprocess.Popen[bytes]:
        with (self.run / "slurm.log").open("ab") as log:
            process = subprocess.Popen(
                ["/bin/sh", self.run / "submitted"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": str(job_id), **variables},
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def read(self, name: str) -> str:
        path = self.run / name
        return path.read_text().strip() if path.exists() else ""

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.read("log")
            time.sleep(0.01)

    def begun(self) -> subprocess.Popen[bytes]:
        process = self.start()
        self.until(lambda: "ready" in self.read("log"))
        return process


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    for process in job.processes:
        process.kill()
        process.wait()
    for left in programs.processes_named(job.mark):
        left.kill()


def test_program_and_folder_in_the_home_folder_are_found_there(job: Job, tmp_path: Path) -> None:
    home = tmp_path / "home of ann"
    (home / "my work").mkdir(parents=True)
    (home / "my sh").symlink_to("/bin/sh")
    job.script.write_text(worker_script(job.run, job.tag, ("~/my sh", "-c", 'pwd; echo "$1"', "sh", "~/x"), "~/my work", ()))
    (job.run / "submitted").write_text(submitted_script(job.script))
    (job.run / "env").write_bytes(environment_file({TAG: job.tag, "HOME": str(home)}))

    assert job.start(HOME=str(home)).wait() == 0
    assert job.read("log").splitlines() == [str(home / "my work"), "~/x"]


@pytest.mark.parametrize("code", [0, 3, 99, 127])
def test_the_exit_code_is_recorded_and_returned(job: Job, code: int) -> None:
    job.write(programs.EXITS, str(code))

    assert job.start().wait() == code
    assert (job.read("exit"), job.read("claim/job"), job.read("log")) == (str(code), "5", "leaving")


def test_a_worker_that_a_signal_ended_is_recorded_as_a_shell_does(job: Job) -> None:
    job.write(programs.KILLS_ITSELF)

    job.start().wait()

    assert job.read("exit") == str(128 + signal.SIGKILL)


def test_a_drain_lets_the_worker_finish_its_work(job: Job) -> None:
    job.write(programs.FINISHES)
    process = job.begun()

    process.send_signal(DRAIN)

    assert process.wait() == 0
    assert (job.read("exit"), job.read("log").splitlines()) == ("0", ["ready", "finishing", "finished"])


def test_a_worker_of_a_job_that_slurm_ends_gets_one_sigterm(job: Job) -> None:
    job.write(COUNTS_SIGTERM)
    process = job.begun()

    os.killpg(process.pid, signal.SIGTERM)
    job.until(lambda: "term" in job.read("log"))
    process.send_signal(DRAIN)

    assert process.wait() == 0
    assert job.read("log").splitlines() == ["ready", "term", "term"], "one by Slurm, one by the drain"


def test_a_worker_that_is_drained_before_it_began_never_begins(job: Job) -> None:
    job.write(programs.WORKER)
    (job.run / "drain").touch()

    assert job.start().wait() == 0
    assert (job.read("exit"), job.read("log")) == ("0", "")
    assert not (job.run / "env").exists()


@pytest.mark.parametrize("number", [DRAIN, signal.SIGTERM])
def test_a_signal_at_any_moment_ends_the_job(job: Job, number: signal.Signals) -> None:
    for attempt in range(12):
        job.write(programs.WORKER)
        shutil.rmtree(job.run / "claim", ignore_errors=True)
        process = job.start()
        time.sleep(attempt * 0.003)

        os.killpg(process.pid, number) if number is signal.SIGTERM else process.send_signal(number)

        assert process.wait(PATIENCE_SECONDS) != 9, "the worker did not end by itself"
        assert programs.processes_named(job.mark) == []


def test_a_second_job_of_the_same_start_runs_nothing(job: Job) -> None:
    job.write(programs.WORKER)
    job.begun()

    assert job.start(job_id=6).wait() == 0

    assert len(programs.processes_named(job.mark)) == 1
    assert (job.read("claim/job"), job.read("log"), job.read("exit")) == ("5", "ready", "")


def test_a_job_whose_worker_was_terminated_meanwhile_runs_nothing(job: Job) -> None:
    job.write(programs.WORKER)
    job.script.unlink()

    assert job.start().wait() == 0
    assert job.read("log") == ""


def test_a_node_that_does_not_see_the_folder_says_so(job: Job, tmp_path: Path) -> None:
    text = submitted_script(tmp_path / "no" / "such" / "script")

    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "must be on a file system that the nodes share" in done.stderr


@pytest.mark.parametrize("program", [programs.STUBBORN, programs.PARENT])
def test_terminate_kills_the_worker_and_its_children_at_once(job: Job, program: str) -> None:
    near, far = new_mark(), new_mark()
    job.write(program, near, far)
    process = job.begun()
    (job.run / "terminate").touch()

    process.terminate()

    process.wait(PATIENCE_SECONDS)
    assert [programs.processes_named(mark) for mark in (job.mark, near, far)] == [[], [], []]
    assert job.read("exit") == str(128 + signal.SIGKILL)


def test_a_child_that_the_worker_leaves_behind_is_ended(job: Job) -> None:
    child = new_mark()
    job.write(programs.LEAVES_A_CHILD, child)

    assert job.start().wait() == 3
    assert programs.processes_named(child) == []


def test_the_environment_arrives_exactly_and_its_file_is_deleted(job: Job) -> None:
    job.write(programs.VARIABLES + "; sleep 120", *VALUES, environment=VALUES)
    process = job.start()
    job.until(lambda: "done" in job.read("log"))

    found = dict(line.rstrip(".").split(" ") for line in job.read("log").splitlines()[:-1])
    assert {name: bytes.fromhex(value).decode() for name, value in found.items()} == VALUES
    assert not (job.run / "env").exists()
    assert b"DRUMBEAT" not in Path(f"/proc/{process.pid}/environ").read_bytes()


def test_setup_lines_run_before_the_worker_and_its_variables_win(job: Job) -> None:
    job.write('echo "$A $B"; exit 0', environment={"A": "mine"}, setup=["export A=theirs B=setup", "echo loaded"])

    assert job.start().wait() == 0
    assert job.read("log").splitlines() == ["loaded", "mine setup"]


@pytest.mark.parametrize("given", [{"no name": ""}, {"1A": ""}, {"": ""}, {"A=B": ""}, {"A": "null\0byte"}])
def test_a_variable_that_no_shell_can_set_is_refused(given: Mapping[str, str]) -> None:
    with pytest.raises(SpawnError, match="expected environment variables"):
        environment_file(given)
