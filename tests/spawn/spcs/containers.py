"""The node of the simulated compute pool: runs containers as processes of this machine."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from spawn.marked import end_marked

MARK = "SPCS_SIMULATOR_CONTAINER"  #: an environment variable by which all processes of a container are found


class ContainerRun:
    """One container. ``changed`` is called when it has started (None), and when it has ended, with its exit code."""

    def __init__(
        self,
        identity: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        changed: Callable[[int | None], None],
    ) -> None:
        self._identity = identity
        self._command = command
        self._environment = environment
        self._log = log
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._is_stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self, grace: float) -> None:
        """SIGTERM now, SIGKILL after so many seconds."""
        with self._guard:
            self._is_stopped = True
            process = self._process
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        timer = threading.Timer(grace, self._kill)
        timer.daemon = True
        timer.start()

    def _kill(self) -> None:
        with self._guard:
            if self._process is not None and self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(self._process.pid, signal.SIGKILL)

    def _run(self) -> None:
        whole = {"PATH": os.environ["PATH"], "HOME": str(self._log.parent), **self._environment, MARK: self._identity}
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            with self._guard:
                if not self._is_stopped:
                    self._process = subprocess.Popen(
                        self._command,
                        env=whole,
                        stdin=subprocess.DEVNULL,
                        stdout=descriptor,
                        stderr=descriptor,
                        start_new_session=True,
                    )
        except OSError:
            self._changed(128)
            return
        finally:
            os.close(descriptor)
        if self._process is None:
            self._changed(137)
            return
        self._changed(None)
        code = self._process.wait()
        end_marked(MARK, self._identity)
        self._changed(code if code >= 0 else 128 - code)


def moment() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
