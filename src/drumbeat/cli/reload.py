"""Restarts a command whenever a Python file in the current folder changes: drumbeat pool work MODULE --reload."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_POLL = 0.3  #: seconds between two checks of the files
_GRACE = 5.0  #: seconds that running jobs may continue when a file has changed; then they are requeued
_SKIPPED = ("__pycache__", "node_modules", "site-packages")


def run_and_reload(words: Sequence[str], folder: Path | None = None) -> int:
    """Run this command line without --reload in a child process, and restart the child when a file changes. SIGTERM or Ctrl-C
    ends both.

    If the child ends by itself, such as for a syntax error, the next change starts it again. Returns the child's exit code.
    """
    command = [sys.executable, "-m", "drumbeat", *(word for word in words if word != "--reload")]
    return _Reloader(command, folder or Path.cwd()).run()


class _Reloader:
    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._stopped = False
        self._child: subprocess.Popen[bytes] | None = None
        self._pause = threading.Event()

    def run(self) -> int:
        with self._stopping_on_signals():
            files = source_files(self._folder)
            child = self._start()
            while not self._stopped:
                self._wait(child)
                now = source_files(self._folder)
                if changed := sorted(path for path in files.keys() | now.keys() if files.get(path) != now.get(path)):
                    print(f"drumbeat: {os.path.relpath(changed[0], self._folder)} changed; restarting", file=sys.stderr)
                    _stop(child)
                    files, child = now, self._start()
            return child.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        self._child = subprocess.Popen(self._command, start_new_session=True)
        if self._stopped:
            self._child.send_signal(signal.SIGTERM)
        return self._child

    def _wait(self, child: "subprocess.Popen[bytes]") -> None:
        """Wait until the next check of the files, or until the child ends. If the child ends by itself, print so."""
        if child.returncode is not None:
            self._pause.wait(_POLL)
            return
        try:
            child.wait(_POLL)
        except subprocess.TimeoutExpired:
            return
        if not self._stopped:
            print(f"drumbeat: the worker ended with exit code {child.returncode}; waiting for a file change", file=sys.stderr)

    @contextmanager
    def _stopping_on_signals(self) -> Iterator[None]:
        """Inside the block, SIGTERM and Ctrl-C are passed on to the child, and end the reloading."""

        def stop(number: int, _: object) -> None:
            self._stopped = True
            self._pause.set()
            if self._child is not None and self._child.returncode is None:
                self._child.send_signal(number)

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def source_files(folder: Path) -> Mapping[str, int]:
    """Return the Python files in a folder and its subfolders, each with the time of its last change. Hidden folders and virtual
    environments are left out."""
    found: dict[str, int] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if _is_watched(os.path.join(place, each), each)]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except OSError:  # deleted since
                    continue
    return found


def _is_watched(path: str, name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED and not os.path.exists(os.path.join(path, "pyvenv.cfg"))


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """End a child: ask it to finish its jobs; if that takes too long, ask it to requeue them; at last, kill it."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        child.send_signal(number)
        try:
            child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            continue
