"""Subprocess triggers: after a push, start a checker, a process that starts missing workers and outlives this process."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Thread

from drumbeat.core.errors import SpawnFailed
from drumbeat.spawn.fork_client import NoForkServer, SocketConnector, fork
from drumbeat.spawn.fork_wire import Request, code_identity
from drumbeat.spawn.inherited import inherited
from drumbeat.spawn.leash import LEASH_FD
from drumbeat.spawn.names import POOL, WORKER
from drumbeat.spawn.private import private_append
from drumbeat.spawn.tagged import SCOPE
from drumbeat.store.interface import Leases
from drumbeat.triggers.model import FIRE, Trigger

ON_ITS_WAY = timedelta(seconds=10)  #: how long a checker may take to start before another one is started

NOT_INHERITED = (LEASH_FD, SCOPE, POOL, WORKER)  #: variables not passed on: a worker's checker is no part of that worker


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerLaunch:
    """What is needed to start a checker: the leases that prevent a duplicate, the environment and the log file."""

    leases: Leases
    owner: str
    environment: Mapping[str, str]  #: added to this process's environment; has the store's URL, which no command line may show
    log: Path
    state_dir: Path | None = None  #: folder in which a fork server may listen


async def start_checker_once(dispatch: CheckerLaunch, trigger: Trigger, pool_id: str) -> bool:
    """Start a checker, a process that starts a pool's missing workers. Returns False if another checker is already starting;
    that checker will see the new jobs.

    While the checker starts, a lease is held. The checker releases it (``mark_checker_started``) *before* it looks at the
    pool, so jobs pushed after that start another checker."""
    lease = await dispatch.leases.acquire(_name(trigger.name, pool_id), dispatch.owner, ON_ITS_WAY)
    if lease is None:
        return False
    try:
        await asyncio.to_thread(_start_checker, dispatch, trigger, json.dumps(trigger.firing(pool_id).to_json()))
    except BaseException:  # not started, or cancelled: a checker started twice is harmless, one not started is not
        await dispatch.leases.release(lease)
        raise
    return True


async def mark_checker_started(leases: Leases, trigger: str, pool_id: str) -> None:
    """Record that a checker has started: jobs pushed from now on need another checker."""
    lease = await leases.find(_name(trigger, pool_id))
    if lease is not None:
        await leases.release(lease)


def _start_checker(dispatch: CheckerLaunch, trigger: Trigger, firing: str) -> None:
    """Start a checker (it starts missing workers) from the fork server or, if no fork server runs, as a new process.
    If no fork server runs and the trigger has ``keep_warm``, also start a fork server, for later checkers."""
    try:
        fork_detached((FIRE, firing), dispatch)
    except NoForkServer:
        start_detached((sys.executable, "-m", "drumbeat.cli.fire", firing), dispatch.environment, dispatch.log)
        if trigger.keep_warm is not None:
            idle = f"{trigger.keep_warm.total_seconds():g}"
            start_detached((sys.executable, "-m", "drumbeat.cli.fork_server", idle), dispatch.environment, dispatch.log)


def fork_detached(words: Sequence[str], dispatch: CheckerLaunch) -> int:
    """Let the fork server in the state folder start a process that runs the command ``words`` and outlives this process.

    Returns its pid. Raises NoForkServer if the fork server cannot be used, SpawnAmbiguous if the process may have started.
    """
    if dispatch.state_dir is None:
        raise NoForkServer("there is no state folder, so there is no fork server")
    request = Request(words=words, environment=_environment(dispatch.environment), folder=os.getcwd(), made_of=code_identity())
    try:
        with private_append(dispatch.log) as output:
            forked = fork(SocketConnector(dispatch.state_dir), request, [output.fileno()])
    except OSError as exc:
        raise NoForkServer(str(exc)) from exc
    forked.connection.close()
    return forked.pid


def start_detached(command: Sequence[str], environment: Mapping[str, str], log_file: Path) -> int:
    """Start a process that outlives this one and appends its output to a file. Returns its pid. Raises SpawnFailed."""
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
        raise SpawnFailed(f"could not start {command[0]!r}: {exc}; check that {log_file.parent} can be written") from exc
    Thread(target=process.wait, name=f"await-{process.pid}", daemon=True).start()
    return process.pid


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    return {**inherited(os.environ, *NOT_INHERITED), **added}


def _name(trigger: str, pool_id: str) -> str:
    return f"trigger/{trigger}/{pool_id}"
