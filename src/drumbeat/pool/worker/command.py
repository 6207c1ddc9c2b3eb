"""Runs a program as a handler, without a shell: it reads the payload from standard input and prints the result."""

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
from drumbeat.core.store_url import has_secret
from drumbeat.pool.worker.context import JobContext, JobFailure

TAIL = 4000  #: how many bytes at the end of the program's standard error are kept
_CHUNK = 65536
_READ_REST = timedelta(seconds=1)  #: how long to read the remaining output of a program that has exited
_SECRET = re.compile("DRUMBEAT_.*(PASSWORD|TOKEN|KEY|SECRET)")  #: environment variables not passed to programs


async def run_command(words: Sequence[str], context: JobContext) -> Any:
    """Run a program and return its output: parsed if it is JSON, else as text.

    Raises JobFailure with the end of the program's standard error if its exit code is not 0, InvalidInput for too much output.
    When the program exits or this call is cancelled, the processes that the program has started are killed.
    """
    printed, errors = bytearray(), bytearray()
    async with _started(words, context) as (transport, program):
        await _communicate(program, transport.get_pid(), context, printed, errors)
        code = transport.get_returncode()
    if code != 0:
        raise JobFailure(f"{words[0]} ended with exit code {code}: {_text(errors).strip() or 'no error output'}")
    if len(printed) > (most := context.most_bytes):
        raise InvalidInput(f"expected {words[0]} to print at most {most} bytes, got more; print only a file name or URL")
    return _result(printed)


class _Program(SubprocessStreamProtocol):
    """A program and its pipes. Unlike asyncio's Process, it reports the exit even while other processes hold the pipes."""

    def __init__(self) -> None:
        super().__init__(limit=_CHUNK, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


Started = tuple[SubprocessTransport, _Program]


@asynccontextmanager
async def _started(words: Sequence[str], context: JobContext) -> AsyncIterator[Started]:
    """Run the program in a new session during the block; then kill all its processes and close its pipes."""
    started = await _start(words, _environment(context))
    try:
        yield started
    finally:
        await _end(*started)


async def _start(words: Sequence[str], environment: Mapping[str, str]) -> Started:
    """Start the program. If the start is cancelled, kill it, because asyncio would leave it running."""
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


async def _communicate(program: _Program, pid: int, context: JobContext, printed: bytearray, errors: bytearray) -> None:
    """Send the payload and read the output until the program exits, even if processes it started still hold its pipes."""
    async with asyncio.TaskGroup() as group:
        pipes = [
            group.create_task(_feed(program.stdin, context.payload)),
            group.create_task(_first(program.stdout, printed, context.most_bytes + 1)),
            group.create_task(_last(program.stderr, errors, TAIL)),
        ]
        await program.exited.wait()
        _kill(pid)
        await asyncio.wait(pipes, timeout=_READ_REST.total_seconds())
        for pipe in pipes:
            pipe.cancel()


def _environment(context: JobContext) -> dict[str, str]:
    """Return the worker's environment variables without secrets, plus variables that describe the job."""
    inherited = {name: value for name, value in os.environ.items() if not _is_secret(name, value)}
    job = {"DRUMBEAT_JOB_ID": context.job_id, "DRUMBEAT_JOB_TYPE": context.type, "DRUMBEAT_JOB_ATTEMPT": str(context.attempt)}
    trace = {"TRACEPARENT": context.headers["traceparent"]} if "traceparent" in context.headers else {}
    return {**inherited, **job, **trace}


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET.fullmatch(name)) or (name == "DRUMBEAT_STORE" and has_secret(value))


async def _feed(stream: asyncio.StreamWriter | None, payload: Any) -> None:
    """Write the payload and close the pipe. A program that ends without reading its input is no error."""
    if stream is None or stream.is_closing():
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
    """Kill the program's process group: the program, if it still runs, and the processes that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _result(printed: bytearray) -> Any:
    try:
        return json.loads(printed)
    except (ValueError, RecursionError):
        return _text(printed).removesuffix("\n")


def _text(printed: bytearray) -> str:
    return printed.decode("utf-8", "replace")
