"""A program as a handler: the payload on its standard input, its result on its standard output; no shell in between."""

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

TAIL = 4000  #: how much of its standard error is kept
_CHUNK = 65536
_MOMENT = timedelta(seconds=1)  #: to hear the rest of what a program said that has ended
_SECRET = re.compile("DRUMBEAT_.*(PASSWORD|TOKEN|KEY|SECRET)")  #: variables that are nobody's business but the worker's


async def run_command(words: Sequence[str], context: JobContext) -> Any:
    """What the program printed: JSON if it is, else text. Raises JobFailure with the tail of its standard error.

    It is over when the program is: what that leaves behind is ended with it, and so is everything when this is cancelled.
    """
    printed, complaint = bytearray(), bytearray()
    async with _started(words, context) as (transport, program):
        await _talk(program, transport.get_pid(), context.payload, printed, complaint)
        code = transport.get_returncode()
    if code != 0:
        raise JobFailure(f"{words[0]} ended with exit code {code}: {_text(complaint).strip() or 'it said nothing'}")
    if len(printed) > MOST_BYTES:
        raise InvalidInput(f"expected {words[0]} to print at most {MOST_BYTES} bytes, got more; let it print a place instead")
    return _result(printed)


class _Program(SubprocessStreamProtocol):
    """A program and its pipes. Unlike asyncio's own Process it is over when it has ended, whoever still holds its pipes."""

    def __init__(self) -> None:
        super().__init__(limit=_CHUNK, loop=asyncio.get_running_loop())
        self.over = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.over.set()


Started = tuple[SubprocessTransport, _Program]


@asynccontextmanager
async def _started(words: Sequence[str], context: JobContext) -> AsyncIterator[Started]:
    """The program, in a session of its own; at the end nothing of it is left, and its pipes are closed on our side."""
    started = await _start(words, _environment(context))
    try:
        yield started
    finally:
        await _end(*started)


async def _start(words: Sequence[str], environment: Mapping[str, str]) -> Started:
    """Start as a whole or not at all: asyncio loses a program whose start is cancelled, and waits for what that has started."""
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
        await program.over.wait()
    finally:
        transport.close()


async def _talk(program: _Program, pid: int, payload: Any, printed: bytearray, complaint: bytearray) -> None:
    """Until it has ended and what it said was heard; whoever else holds its pipes is not waited for."""
    async with asyncio.TaskGroup() as group:
        pipes = [
            group.create_task(_feed(program.stdin, payload)),
            group.create_task(_first(program.stdout, printed, MOST_BYTES + 1)),
            group.create_task(_last(program.stderr, complaint, TAIL)),
        ]
        await program.over.wait()
        _kill(pid)
        await asyncio.wait(pipes, timeout=_MOMENT.total_seconds())
        for pipe in pipes:
            pipe.cancel()


def _environment(context: JobContext) -> dict[str, str]:
    """The worker's own, less its secrets, and which job this is."""
    inherited = {name: value for name, value in os.environ.items() if not _is_secret(name, value)}
    job = {"DRUMBEAT_JOB_ID": context.job_id, "DRUMBEAT_JOB_TYPE": context.type, "DRUMBEAT_JOB_ATTEMPT": str(context.attempt)}
    return {**inherited, **job}


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET.fullmatch(name)) or (name == "DRUMBEAT_STORE" and _holds_password(value))


def _holds_password(url: str) -> bool:
    """Whether a store's URL holds a password, or what might be one."""
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


async def _first(stream: asyncio.StreamReader | None, kept: bytearray, most: int) -> None:
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        kept += chunk[: max(most - len(kept), 0)]


async def _last(stream: asyncio.StreamReader | None, kept: bytearray, most: int) -> None:
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        kept += chunk
        del kept[:-most]


def _kill(pid: int) -> None:
    """End the program and whatever it started; its process group outlives it for as long as anything is in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _result(printed: bytearray) -> Any:
    try:
        return json.loads(printed)
    except (ValueError, RecursionError):
        return _text(printed).removesuffix("\n")


def _text(printed: bytearray) -> str:
    return printed.decode("utf-8", "replace")
