"""Subprocess triggers: work was added, and one process that outlives this one goes to look."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Thread

from drumbeat.core.errors import SpawnFailed
from drumbeat.spawn.fork_client import NoForkServer, SocketDoor, fork
from drumbeat.spawn.fork_wire import Request, made_of
from drumbeat.spawn.inherited import inherited
from drumbeat.spawn.leash import LEASH_FD
from drumbeat.spawn.private import private_append
from drumbeat.spawn.tagged import POOL, SCOPE, WORKER
from drumbeat.store.interface import Leases
from drumbeat.triggers.model import FIRE, Trigger

log = logging.getLogger(__name__)

ON_ITS_WAY = timedelta(seconds=10)  #: how long a checker may take to begin before another is sent

NOT_INHERITED = (LEASH_FD, SCOPE, POOL, WORKER)  #: a worker that adds work is not its checker's keeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """How checkers are sent on their way."""

    leases: Leases
    owner: str
    environment: Mapping[str, str]  #: laid over this process's own: the store's URL is in it, never in the command
    log: Path
    state_dir: Path | None = None  #: where a fork server may be


async def send(dispatch: Dispatch, trigger: Trigger, pool_id: str) -> bool:
    """Start one checker for a pool, unless one is on its way. False: there is one, and it will see what was added.

    The lease says so. Whoever begins gives it back *before* it looks (``arrive``): work added after that sends another.
    """
    lease = await dispatch.leases.acquire(_name(trigger.name, pool_id), dispatch.owner, ON_ITS_WAY)
    if lease is None:
        return False
    try:
        await asyncio.to_thread(_set_off, dispatch, trigger, json.dumps(trigger.firing(pool_id).to_json()))
    except SpawnFailed:
        await dispatch.leases.release(lease)
        raise
    return True


async def arrive(leases: Leases, trigger: str, pool_id: str) -> None:
    """Say that a checker has begun: from here on, work that is added needs another."""
    lease = await leases.find(_name(trigger, pool_id))
    if lease is not None:
        await leases.release(lease)


def _set_off(dispatch: Dispatch, trigger: Trigger, firing: str) -> None:
    """Have a checker run: forked where there is a fork server, else as a process, and, if wanted, a server for the next one."""
    try:
        fork_detached((FIRE, firing), dispatch)
    except NoForkServer:
        start_detached((sys.executable, "-m", "drumbeat.cli.fire", firing), dispatch.environment, dispatch.log)
        if trigger.keep_warm is not None:
            idle = f"{trigger.keep_warm.total_seconds():g}"
            start_detached((sys.executable, "-m", "drumbeat.cli.fork_server", idle), dispatch.environment, dispatch.log)


def fork_detached(words: Sequence[str], dispatch: Dispatch) -> int:
    """The same as ``start_detached`` through the state folder's fork server. Raises NoForkServer, SpawnAmbiguous."""
    if dispatch.state_dir is None:
        raise NoForkServer("there is no state folder to find one in")
    request = Request(words=words, environment=_environment(dispatch.environment), folder=os.getcwd(), made_of=made_of())
    try:
        with private_append(dispatch.log) as output:
            forked = fork(SocketDoor(dispatch.state_dir), request, [output.fileno()])
    except OSError as exc:
        raise NoForkServer(str(exc)) from exc
    forked.connection.close()
    return forked.pid


def start_detached(command: Sequence[str], environment: Mapping[str, str], log_file: Path) -> int:
    """Start a process that outlives this one, what it prints appended to a file. Answers with its pid. Raises SpawnFailed."""
    try:
        with private_append(log_file) as output:
            process = subprocess.Popen(
                command,
                env=_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as exc:
        raise SpawnFailed(f"expected to start {command[0]!r}, got: {exc}; check that {log_file.parent} can be written") from exc
    Thread(target=process.wait, name=f"await-{process.pid}", daemon=True).start()
    return process.pid


def _environment(over: Mapping[str, str]) -> dict[str, str]:
    return {**inherited(os.environ, *NOT_INHERITED), **over}


def _name(trigger: str, pool_id: str) -> str:
    return f"trigger/{trigger}/{pool_id}"
