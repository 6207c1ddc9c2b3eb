"""Ctrl-C at a terminal while a command reads its standard input."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.given import COMMAND, PATIENCE, environment, invoke, ran
from drumbeat.cli.interrupt import interruptible, interruptible_items


@contextmanager
def at_terminal(*arguments: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The real command with a terminal as its standard input, and what is typed there."""
    keyboard, terminal = pty.openpty()
    try:
        with subprocess.Popen(
            (*COMMAND, *arguments),
            cwd=cwd,
            env=environment(),
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        ) as process:
            try:
                yield process, keyboard
            finally:
                process.kill()
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_the_first_ctrl_c_ends_a_push_and_what_was_pushed_is_reported(tmp_path: Path, url: str) -> None:
    with at_terminal("pool", "push", "p", "-", "--json", "--store", url, cwd=tmp_path) as (process, keyboard):
        assert process.stdout is not None
        os.write(keyboard, b"1\n2\n")
        read = [process.stdout.readline(), process.stdout.readline()]
        os.write(keyboard, b"\x03")
        _, errors = process.communicate(timeout=PATIENCE)

    assert ['"line": 1' in read[0], '"line": 2' in read[1]] == [True, True]
    assert (process.returncode, errors) == (130, "interrupted: the 2 jobs up to line 2 were pushed\n")
    listed = invoke("pool", "list", "p", "--json", store=url).output.splitlines()
    assert [json.loads(job)["payload"] for job in listed] == [1, 2]


def test_the_first_ctrl_c_ends_an_import_from_a_terminal(tmp_path: Path, url: str) -> None:
    with at_terminal("pool", "import", "p", "/dev/stdin", "--batch", "1", "--json", "--store", url, cwd=tmp_path) as typed:
        process, keyboard = typed
        assert process.stdout is not None
        os.write(keyboard, b"1\n")
        process.stdout.readline()
        os.write(keyboard, b"\x03")
        _, errors = process.communicate(timeout=PATIENCE)

    assert (process.returncode, errors) == (130, "interrupted: the 1 jobs up to line 1 were pushed\n")


def test_an_interrupted_batch_may_be_pushed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("drumbeat.pool.service.Pool.push_jobs", interrupted)
    monkeypatch.setattr("drumbeat.cli.pool_push.standard_input", lambda: iter(["1", "2"]))

    done = ran("pool", "push", "p", "-", "--store", url, cwd=tmp_path)

    assert (done.code, done.errors) == (130, "interrupted: the jobs up to line 2 may have been pushed\n")


def test_a_task_that_was_cancelled_waits_for_no_item() -> None:
    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        async for _ in interruptible_items([1]):
            raise AssertionError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(wait())


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            during = signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

    assert during is signal.SIG_IGN


def test_a_thread_gets_no_signals() -> None:
    found: list[object] = []

    def read() -> None:
        with interruptible():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()

    assert found == [signal.getsignal(signal.SIGINT)]
