"""What the command line's tests begin with: ways to run it, and a store with something in it."""

import asyncio
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
from typer.testing import CliRunner

from drumbeat.cli.main import app, main
from drumbeat.core.beat import NewBeat
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool
from drumbeat.core.run import Run, RunId
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store import Store, open_store
from drumbeat.store.contract.given import heartbeat, joined, moved, sample
from drumbeat.store.interface import WorkerChange

PATIENCE = 180.0  #: seconds for anything a real process shall do
COMMAND = (sys.executable, "-m", "drumbeat")
POOL = PoolId("p")
SUMMARY = {
    "wanted": 2,
    "timestamp": "2026-11-15T19:08:58Z",
    "wishes": [{"rule": "queue", "workers": 5, "reason": "15 ready jobs, 3 per worker"}],
    "limits": [{"name": "policy max_workers", "before": 5, "after": 2, "reason": "at most 2 are kept"}],
    "state": {"wanted": []},
}
MS = 1_000_000  #: nanoseconds

FAST = replace(
    PRESETS[PoolKind.FLEET],
    heartbeat_every=timedelta(milliseconds=100),
    stale_after=timedelta(seconds=20),
    lost_after=timedelta(seconds=40),
    give_up_after=timedelta(seconds=30),
    start_within=timedelta(seconds=30),
    drain_within=timedelta(seconds=5),
)
HOUR = timedelta(hours=1)
SLOW = replace(
    PRESETS[PoolKind.FLEET], stale_after=HOUR, lost_after=2 * HOUR, start_within=HOUR
)  #: however long the tests take


@dataclass(frozen=True, slots=True)
class Said:
    """How a command ended, and what it said."""

    code: int
    output: str
    errors: str = ""


def environment(**more: str) -> dict[str, str]:
    """This process's environment, without anything that would steer the command or its looks."""
    ours = re.compile(r"DRUMBEAT_|_DRUMBEAT|_TYPER|COLUMNS|LINES|FORCE_COLOR|NO_COLOR|TERM$")
    return {name: value for name, value in os.environ.items() if not ours.match(name)} | more


def ran(*arguments: str, cwd: Path, **variables: str) -> Said:
    """Run the command in a folder through its own front door, to its end, but within this process: a start costs a second."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, environment(**variables), clear=True),
        patch.object(sys, "argv", ["drumbeat", *arguments]),
        chdir(cwd),
        redirect_stdout(output),
        redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert isinstance(ended.value.code, int)
    return Said(ended.value.code, output.getvalue(), errors.getvalue())


def drumbeat(*arguments: str, cwd: Path, **variables: str) -> Said:
    """Run the real command in a folder, as a process of its own, to its end."""
    with started(*arguments, cwd=cwd, **variables) as process:
        output, errors = process.communicate(timeout=PATIENCE)
    return Said(process.returncode, output, errors)


@contextmanager
def started(*arguments: str, cwd: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The real command, started in a folder; ended with the block if it has not by itself."""
    with subprocess.Popen(
        (*COMMAND, *arguments),
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def filled_pipe() -> Iterator[tuple[int, int]]:
    """A pipe that holds all it can, its reader that does not wait, and its writer that does."""
    reader, writer = os.pipe()
    try:
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writer, b"\n")
        os.set_blocking(writer, True)
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def invoke(*arguments: str, store: str | None = None) -> Said:
    """Run a command within this process; errors are raised as they are."""
    variables: Mapping[str, str | None] = {"DRUMBEAT_STORE": store, "DRUMBEAT_STATE_DIR": None}
    done = CliRunner().invoke(app, list(arguments), env=variables, prog_name="drumbeat", catch_exceptions=False)
    return Said(done.exit_code, done.stdout, done.stderr)


def piped(text: str | bytes, *arguments: str, store: str) -> Said:
    """Run a command within this process with something on its standard input."""
    done = CliRunner().invoke(
        app, list(arguments), input=text, env={"DRUMBEAT_STORE": store}, prog_name="drumbeat", catch_exceptions=False
    )
    return Said(done.exit_code, done.stdout, done.stderr)


def eventually(wish: Callable[[], bool], what: str) -> None:
    """Return once the wish is true; fails after a while."""
    deadline = time.monotonic() + PATIENCE
    while not wish():
        assert time.monotonic() < deadline, f"expected within {PATIENCE:.0f} s: {what}"
        time.sleep(0.02)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Living workers whose state is kept below a folder."""
    return [process for process in psutil.process_iter() if _state_dir(process).startswith(str(folder))]


def workers_of(pid: int) -> list[psutil.Process]:
    """Living workers that a process has started; found sooner than by looking at every process there is."""
    return [child for child in psutil.Process(pid).children() if _state_dir(child)]


def _state_dir(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE or "worker" not in process.cmdline():
            return ""
        return process.environ().get("DRUMBEAT_STATE_DIR", "")
    except psutil.Error:
        return ""


def make_store(url: str, build: Callable[[Store], Any]) -> None:
    """Make a store and put something into it."""

    async def make() -> None:
        async with open_store(url, create=True) as store:
            await build(store)

    asyncio.run(make())


async def nothing(store: Store) -> None:
    """An empty store."""


async def bare_pool(store: Store, limits: Thresholds = FAST) -> None:
    """A pool with nothing in it."""
    await store.pools.create(pool(POOL, PoolKind.FLEET, limits))


async def scene(store: Store) -> None:
    """Something in every table that a reading command shows; names and messages are as awkward as they may be."""
    home = await store.pools.create(pool(POOL, PoolKind.FLEET, SLOW, workers=2, target=5))
    await store.runs.create(Run(run_id=RunId("r1"), name="[/odd] :smile:", config={}), pool("r1", PoolKind.BENCH))
    busy = await moved(store, await joined(store, home, WorkerId("w-busy"), 0), WorkerStatus.WAITING, WorkerStatus.ACTIVE)
    await store.workers.add([Worker(pool_id=POOL, worker_id=WorkerId("w-new"), slot=1)])
    broken = await joined(store, home, WorkerId("w-broken"), 2)
    await store.workers.move(broken, WorkerStatus.ERROR, "it broke", WorkerChange(exit_code=4, error="[red]boom[/]"))
    for n in (1, 2, 3):
        taken = sample(n, *[2 * MS] * (10 * n), phase="MEASUREMENT", active=5, target=5, errors=1)
        await store.membership.beat(heartbeat(busy, active=5, operations=10 * n, cpu_percent=12.5, sample=taken))
    await _logs_and_beats(store)


async def _logs_and_beats(store: Store) -> None:
    lines = [
        NewLog(level="INFO", logger="x", message="hello", worker_id=WorkerId("w-busy")),
        NewLog(level="WARNING", logger="x", message="[/closing] what nobody opened " + "long " * 40),
        NewLog(level="ERROR", logger="x", message="it broke", worker_id=WorkerId("w-broken")),
    ]
    await store.logs.append(POOL, lines)
    spawned = {"type": "Spawn", "worker_id": "w-new", "reason": "1 of 2 workers are here", "error": "no capacity"}
    view: dict[str, Any] = {"workers": []}
    await store.beats.append(POOL, NewBeat(owner="me", epoch=1, view=view, actions=[spawned], summary=SUMMARY))
    await store.beats.append(POOL, NewBeat(owner="me", epoch=1, view=view, why_not="2 of 2 workers are here"))
    await store.beats.append(POOL, NewBeat(owner="me", epoch=1, view=None, error="observe: no answer"))
