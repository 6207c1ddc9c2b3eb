"""Runs the commands of Slurm on this machine. A class with the same methods could run them elsewhere, such as over SSH."""

import asyncio
import logging
import os
import subprocess
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from drumbeat.core.errors import SpawnCause, SpawnError, Unanswered
from drumbeat.core.plain import time_span
from drumbeat.spawn.slurm.errors import explain, is_harmless
from drumbeat.spawn.slurm.jobs import NODES_FORMAT, TEXT_FORMAT, SlurmJob, read_down_partitions, read_json, read_text

log = logging.getLogger(__name__)

#: environment variables that Slurm's commands, and so jobs, get from this process; no secrets such as the store's URL
_KEPT: Final = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"),
    *("LD_LIBRARY_PATH", "SLURM_CONF", "SLURM_CONF_SERVER"),
)
_NO_JSON: Final = ("unrecognized option", "json", "serializer")
_MOST_JSON: Final = 5_000_000  #: characters of JSON, about a thousand jobs; beyond that, text is far cheaper
_ALL_OWN: Final = ("--states=all", f"--user={os.getuid()}")
_FIRST_POLL_SECONDS: Final = 0.002
_LONGEST_POLL_SECONDS: Final = 0.05
_LAST_SECONDS: Final = 5.0  #: how long a command may go on after the call was cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a command wrote, and its exit code."""

    code: int
    output: str
    errors: str


class SlurmTimeout(Unanswered):
    """A command of Slurm was killed because it took too long, so it is unknown whether it had an effect."""


class SlurmCommands:
    """Runs sbatch, squeue, sinfo and scancel as processes of this machine."""

    def __init__(self, timeout: timedelta, programs: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._timeout = timeout
        self._programs = programs
        given = os.environ if environment is None else environment
        self._environment = {name: given[name] for name in _KEPT if name in given}
        self._has_json = True

    async def submit(self, options: Sequence[str], script: Path, lock: int) -> Answered:
        """Run sbatch with a script. Raises SlurmTimeout, Unanswered.

        ``lock``: the file descriptor of a lock; sbatch inherits it, so the lock is held until sbatch has ended.
        """
        return await self._run("sbatch", "--parsable", *options, str(script), files=(lock,))

    async def jobs(self) -> Sequence[SlurmJob]:
        """Return this user's jobs that Drumbeat submitted, including ended jobs that Slurm still lists. Raises Unanswered.

        Reads the output of ``squeue --json``; if that fails or contains an error, reads squeue's text output instead. If squeue
        was built without JSON, or its JSON was too large (squeue 22.05 shows the jobs of all users), later calls read only the
        text.
        """
        if self._has_json:
            answer = await self._run("squeue", "--json", *_ALL_OWN)
            if answer.code == 0 and (jobs := read_json(answer.output, os.getuid())) is not None:
                self._has_json = len(answer.output) < _MOST_JSON
                return jobs
            self._has_json = not any(word in answer.errors.lower() for word in _NO_JSON)
            log.debug("squeue --json exited with code %d: %s; reading its text output", answer.code, answer.errors.strip())
        answer = await self._run("squeue", "--noheader", f"--format={TEXT_FORMAT}", *_ALL_OWN)
        if answer.code != 0:
            raise _failed("squeue", answer)
        return read_text(answer.output, os.getuid())

    async def down_partitions(self) -> Set[str]:
        """Return the partitions in which all nodes are down or otherwise unusable. Raises Unanswered."""
        answer = await self._run("sinfo", "--noheader", f"--format={NODES_FORMAT}")
        if answer.code != 0:
            raise _failed("sinfo", answer)
        return read_down_partitions(answer.output)

    async def cancel(self, *options: str, jobs: Sequence[int]) -> None:
        """Run scancel for these jobs; jobs that have ended are ignored. Raises Unanswered."""
        answer = await self._run("scancel", *options, *map(str, jobs))
        if answer.code != 0 and not is_harmless(answer.errors):
            raise _failed("scancel", answer)

    async def _run(self, program: str, *arguments: str, files: Sequence[int] = ()) -> Answered:
        """Run a command and wait for its end; if cancelled, kill it after 5 s. Raises SlurmTimeout, Unanswered."""
        with TemporaryFile() as output, TemporaryFile() as errors:
            process = self._started([self._path(program), *arguments], output, errors, files)
            try:
                async with asyncio.timeout(self._timeout.total_seconds()):
                    await _ended(process)
            except TimeoutError as exc:
                await _stop(process)
                raise SlurmTimeout(
                    f"{program} did not end within {time_span(self._timeout)}; check that slurmctld runs: scontrol ping"
                ) from exc
            except asyncio.CancelledError:
                await _stop(process, _LAST_SECONDS)
                raise
            return Answered(code=process.returncode, output=_text(output), errors=_text(errors))

    def _path(self, program: str) -> str:
        return str(self._programs.expanduser() / program) if self._programs else program

    def _started(
        self, command: Sequence[str], output: IO[bytes], errors: IO[bytes], files: Sequence[int]
    ) -> subprocess.Popen[bytes]:
        """Start a command. Does not use asyncio, which kills the process if its start is cancelled. Raises Unanswered."""
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=self._environment,
                cwd="/",
                pass_fds=files,
                start_new_session=True,
            )
        except OSError as exc:
            raise Unanswered(
                f"could not run {command[0]}: {exc.strerror}; install Slurm's commands here, or run drumbeat on a login node",
                cause=SpawnCause.BAD_REQUEST,
            ) from exc


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has ended."""
    poll = _FIRST_POLL_SECONDS
    while process.poll() is None:
        await asyncio.sleep(poll)
        poll = min(poll * 1.3, _LONGEST_POLL_SECONDS)


async def _stop(process: subprocess.Popen[bytes], seconds: float = 0.0) -> None:
    """Wait up to ``seconds`` for the end of a process, and kill it if it has not ended by then."""
    try:
        async with asyncio.timeout(seconds):
            await _ended(process)
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
        process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _failed(program: str, answer: Answered) -> SpawnError:
    said, cause = explain(answer.errors)
    return Unanswered(f"{program} failed with exit code {answer.code}: {said}", cause=cause)
