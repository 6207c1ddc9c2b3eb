"""Runs a program as a handler: the payload on its standard input, the result on its standard output; without a shell."""

import asyncio
import contextlib
import json
import os
import re
import signal
from asyncio import SubprocessTransport
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.payload import MOST_BYTES
from drumbeat.pool.worker.context import JobContext, JobFailure

TAIL = 4000  #: how many bytes of its standard error are kept
_CHUNK = 65536
_READ_REST = timedelta(seconds=1)  #: how long to read the remaining output of a program that has exited
_SECRET = re.compile("DRUMBEAT_.*(PASSWORD|TOKEN|KEY|SECRET)")  #: variables that only the worker may read


async def run_command(words: Sequence[str], context: JobContext) -> Any:
    """Run a program and return its output, as JSON if it is JSON, else as text.

    Raises JobFailure with the end of its standard error. When the program exits or this is cancelled, all processes it has
    started are killed.
    """
    printed, errors = bytearray(), bytearray()
    async with _started(words, context) as (transport, program):
        await _communicate(program, transport.get_pid(), context.payload, printed, errors)
        code = transport.get_returncode()
    if code != 0:
        raise JobFailure(f"{words[0]} ended with exit code {code}: {_text(errors).strip() or 'no error output'}")
    if len(printed) > MOST_BYTES:
        raise InvalidInput(f"expected {words[0]} to print at most {MOST_BYTES} bytes, got more; print a location instead")
    return _result(printed)


class _Program(SubprocessStreamProtocol):
    """A program and its pipes. Unlike asyncio's Process it ends when the program exits, even if others hold its pipes."""

    def __init__(self) -> None:
        super().__init__(limit=_CHUNK, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


Started = tuple[SubprocessTransport, _Program]


@asynccontextmanager
async def _started(words: Sequence[str], context: JobContext) -> AsyncIterator[Started]:
    """The program in a new session; at the end all its processes are killed, and its pipes closed on our side."""
    started = await _start(words, _environment(context))
    try:
        yield started
    finally:
        await _end(*started)


async def _start(words: Sequence[str], environment: Mapping[str, str]) -> Started:
    """Start the program; if that is cancelled, kill it: asyncio would lose the program and wait for what it started."""
    program = asyncio.get_running_loop().subprocess_exec(
        _Program, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
    )
    starting = asyncio.gather(program)
    try:
        return (await asyncio.shield(starting))[0]
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            await _end(*(await starting)[0])
        raise


async def _end(transport: SubprocessTransport, program: _Program) -> None:
    _kill(transport.get_pid())
    try:
        await program.exited.wait()
    finally:
        transport.close()


async def _communicate(program: _Program, pid: int, payload: Any, printed: bytearray, errors: bytearray) -> None:
    """Send the payload and read the output until the program exits; not until others close its pipes."""
    async with asyncio.TaskGroup() as group:
        pipes = [
            group.create_task(_feed(program.stdin, payload)),
            group.create_task(_first(program.stdout, printed, MOST_BYTES + 1)),
            group.create_task(_last(program.stderr, errors, TAIL)),
        ]
        await program.exited.wait()
        _kill(pid)
        await asyncio.wait(pipes, timeout=_READ_REST.total_seconds())
        for pipe in pipes:
            pipe.cancel()


def _environment(context: JobContext) -> dict[str, str]:
    """The worker's environment without its secrets, plus variables that describe the job."""
    inherited = {name: value for name, value in os.environ.items() if not _is_secret(name, value)}
    job = {"DRUMBEAT_JOB_ID": context.job_id, "DRUMBEAT_JOB_TYPE": context.type, "DRUMBEAT_JOB_ATTEMPT": str(context.attempt)}
    return {**inherited, **job}


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET.fullmatch(name)) or (name == "DRUMBEAT_STORE" and _holds_password(value))


def _holds_password(url: str) -> bool:
    """Whether a store's URL holds a password, or something that may be one."""
    if url.startswith("sqlite:"):
        return False
    credentials = url.partition("://")[2].rpartition("@")[0]
    return ":" in credentials or bool(re.search("passw|key|secret", url.partition("?")[2], re.IGNORECASE))


async def _feed(stream: asyncio.StreamWriter | None, payload: Any) -> None:
    if stream is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(json.dumps(payload).encode() + b"\n")
        await stream.drain()
        stream.close()


async def _first(stream: asyncio.StreamReader | None, buffer: bytearray, most: int) -> None:
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        buffer += chunk[: max(most - len(buffer), 0)]


async def _last(stream: asyncio.StreamReader | None, buffer: bytearray, most: int) -> None:
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        buffer += chunk
        del buffer[:-most]


def _kill(pid: int) -> None:
    """Kill the program and what it started: its process group exists until its last process has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _result(printed: bytearray) -> Any:
    try:
        return json.loads(printed)
    except (ValueError, RecursionError):
        return _text(printed).removesuffix("\n")


def _text(printed: bytearray) -> str:
    return printed.decode("utf-8", "replace")
