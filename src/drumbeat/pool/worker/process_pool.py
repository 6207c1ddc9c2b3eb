"""Runs handlers in child processes: sends them jobs, reads results, and kills a process if its job must stop."""

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.failures import ChildProcessFailure, HandlerFailure
from drumbeat.runtime.log_output import stderr_format

_LENGTH = struct.Struct(">I")
_ENDS = {"result", "failure"}  #: a message with one of these is the last about a job
_COMMAND = (sys.executable, "-m", "drumbeat.pool.worker.child_process")


@dataclass(slots=True, eq=False)
class ChildProcess:
    """A child process, in a session of its own, and the handlers that it has imported."""

    process: Process
    imported: set[str] = field(default_factory=set)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs. Asks the operating system, since the event loop may notice an end only later."""
        if self.process.returncode is not None or not hasattr(os, "waitid"):  # macOS has it only since Python 3.13
            return self.process.returncode is None
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:  # the event loop is about to notice the end
            return False


class NotBegun(ChildProcessFailure):
    """Raised if a child process ended before it reported that it began the request: the job has not begun."""


class ProcessPool:
    """Child processes that run handlers. A process is started when none is idle, and reused for later jobs. An idle process
    that has ended gets no job."""

    def __init__(self) -> None:
        self._idle: list[ChildProcess] = []

    async def prepare(self, handler: str) -> None:
        """Make sure that an idle process has imported the handler. Raises ChildProcessFailure if it cannot be imported."""
        if not any(handler in each.imported and each.is_alive for each in self._idle):
            await self._exchange(handler, {"handler": handler}, None)

    async def run(self, handler: str, context: JobContext) -> Any:
        """Run a handler in a child process. Raises ChildProcessFailure if it fails.

        Cancelling kills the process and the programs that the handler has started."""
        return await self._exchange(handler, _request(handler, context), context)

    async def _exchange(self, handler: str, request: dict[str, Any], context: JobContext | None) -> Any:
        idle = self._take(handler)
        child = idle or ChildProcess(await _start())
        try:
            result = await _exchange(child.process, request, context)
        except ChildProcessFailure as exc:
            await self._keep(child)
            if idle is not None and isinstance(exc, NotBegun):
                return await self._exchange(handler, request, context)
            raise
        except BaseException:
            await _kill(child.process)
            raise
        child.imported.add(handler)
        await self._keep(child)
        return result

    def _take(self, handler: str) -> ChildProcess | None:
        """Take an idle process, if possible one that has imported the handler. Drops those that have ended."""
        self._idle = [each for each in self._idle if each.is_alive]
        child = next((each for each in reversed(self._idle) if handler in each.imported), None)
        if child is None:
            return self._idle.pop() if self._idle else None
        self._idle.remove(child)
        return child

    async def _keep(self, child: ChildProcess) -> None:
        if child.process.returncode is None:
            self._idle.append(child)
        else:
            await child.process.wait()

    async def close(self) -> None:
        """Kill the idle processes; a busy one is killed when its job is cancelled."""
        while self._idle:
            await _kill(self._idle.pop().process)


async def _start() -> Process:
    """Start a child process, which writes its log lines to standard error like this process."""
    found = stderr_format()
    log_arguments: tuple[str, ...] = () if found is None else ("json" if found[0] else "text", str(found[1]))
    return await asyncio.create_subprocess_exec(*_COMMAND, *log_arguments, stdin=PIPE, stdout=PIPE, start_new_session=True)


async def _exchange(process: Process, request: dict[str, Any], context: JobContext | None) -> Any:
    """Send a request, answer the child's questions about the job of ``context``, and return its result."""
    failed_with: type[ChildProcessFailure] = NotBegun
    try:
        await _send(process, request)
        while not _ENDS & (message := await _receive(process)).keys():
            failed_with = ChildProcessFailure
            if context is None or "begun" in message:
                continue
            if "asks" in message:
                await _send(process, await _parents(context))
            elif "is_locked" in message:
                context.note_lock(message["is_locked"])
            else:
                context.progress(message["progress"], message["note"])
    except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
        code = await process.wait()
        raise failed_with(
            HandlerFailure(error=f"the handler's process ended with exit code {code} before its job did")
        ) from None
    if (failed := message.get("failure")) is not None:
        wait = None if failed["retry_in"] is None else timedelta(seconds=failed["retry_in"])
        raise ChildProcessFailure(HandlerFailure(error=failed["error"], fatal=failed["fatal"], retry_in=wait))
    return message["result"]


async def _parents(context: JobContext) -> dict[str, Any]:
    """Return the message for a child process whose handler asks for the parents of its job: the parents, or an error."""
    try:
        return {"parents": msgspec.to_builtins(list(await context.parents()))}
    except Exception as exc:
        return {"error": f"cannot read the parents of job {context.job_id}: {exc}"}


def _request(handler: str, context: JobContext) -> dict[str, Any]:
    return {
        "handler": handler,
        "job": _job(context),
        "deadline": _iso(context.deadline),
        "store_url": context.store_url,
        "headers": dict(context.headers),
        "most_bytes": context.most_bytes,
    }


def _job(context: JobContext) -> dict[str, Any]:
    job = context.job
    return {
        "job_id": job.job_id,
        "pool_id": job.pool_id,
        "payload": job.payload,
        "type": job.type,
        "attempts": job.attempts,
        "failures": job.failures,
        "max_attempts": job.max_attempts,
        "lease_epoch": job.lease_epoch,
        "if_failed": job.if_failed,
        "lease_owner": job.lease_owner,
        "lease_pool": job.lease_pool,
        "lease_instance": job.lease_instance,
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


async def _send(process: Process, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    if process.stdin is None:
        raise BrokenPipeError
    process.stdin.write(_LENGTH.pack(len(body)) + body)
    await process.stdin.drain()


async def _receive(process: Process) -> dict[str, Any]:
    if process.stdout is None:
        raise BrokenPipeError
    head = await process.stdout.readexactly(_LENGTH.size)
    message: dict[str, Any] = json.loads(await process.stdout.readexactly(_LENGTH.unpack(head)[0]))
    return message


async def _kill(process: Process) -> None:
    """Kill a child process and every program that its handlers have started, unless it has left the child's session."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
