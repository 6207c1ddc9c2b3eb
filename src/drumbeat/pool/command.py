"""A program as a handler: the payload on its standard input, its result on its standard output; no shell in between."""

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.context import JobContext, JobFailure
from drumbeat.pool.payload import MOST_BYTES

TAIL = 4000  #: how much of its standard error is kept
_CHUNK = 65536


async def run_command(words: Sequence[str], context: JobContext) -> Any:
    """What the program printed: JSON if it is, else text. Raises JobFailure with the tail of its standard error."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=_environment(context), start_new_session=True
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_feed(process, context.payload))
            printed = group.create_task(_first(process.stdout, MOST_BYTES + 1))
            complaint = group.create_task(_last(process.stderr, TAIL))
            code = await process.wait()
    finally:
        await _kill(process)
    if code != 0:
        raise JobFailure(f"{words[0]} ended with exit code {code}: {_text(complaint.result()).strip() or 'it said nothing'}")
    if len(printed.result()) > MOST_BYTES:
        raise InvalidInput(f"expected {words[0]} to print at most {MOST_BYTES} bytes, got more; let it print a place instead")
    return _result(printed.result())


def _environment(context: JobContext) -> dict[str, str]:
    job = {"DRUMBEAT_JOB_ID": context.job_id, "DRUMBEAT_JOB_TYPE": context.type, "DRUMBEAT_JOB_ATTEMPT": str(context.attempt)}
    return {**os.environ, **job}


async def _feed(process: Process, payload: Any) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(json.dumps(payload).encode() + b"\n")
        await process.stdin.drain()
        process.stdin.close()


async def _first(stream: asyncio.StreamReader | None, most: int) -> bytes:
    kept = bytearray()
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        kept += chunk[: max(most - len(kept), 0)]
    return bytes(kept)


async def _last(stream: asyncio.StreamReader | None, most: int) -> bytes:
    kept = b""
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        kept = (kept + chunk)[-most:]
    return kept


async def _kill(process: Process) -> None:
    """End the program and whatever it started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _result(printed: bytes) -> Any:
    try:
        return json.loads(printed)
    except ValueError:
        return _text(printed).removesuffix("\n")


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "replace")
