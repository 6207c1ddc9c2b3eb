"""The life of a server that tests start: a folder and a port of its own, stopped, killed, frozen, gone with this process."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from servers.places import free_port
from servers.reaper import reaper
from servers.unprivileged import ServerFailed

_PORT_TRIES = 5
_LOOK_SECONDS = 0.005


class Server(ABC):
    """One server on a loopback port of its own, in a temporary folder of its own.

    The port stays the same over stop and start, so that clients can find it again. The server ends with this process, even if
    this process is killed (see reaper.py).
    """

    PRODUCT: ClassVar[str]
    PREFIX: ClassVar[str]  #: of its folder's name
    STOP: ClassVar[signal.Signals] = signal.SIGTERM
    START_SECONDS: ClassVar[float] = 30.0
    STOP_SECONDS: ClassVar[float] = 30.0

    address = "127.0.0.1"  #: where clients find it
    within: Sequence[str] = ()  #: a command that runs another one in the namespace of the host it is on, if not this one

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.port = 0

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise ServerFailed(f"expected a started server; use it as: with {type(self).__name__}() as server")
        return self._folder

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # What each has of its own

    @abstractmethod
    def _furnish(self) -> None:
        """Fill its new folder. Raises Unavailable where there is no such server to be had."""

    @abstractmethod
    def _launched(self, port: int) -> subprocess.Popen[bytes]: ...

    @abstractmethod
    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool: ...

    # Life

    def start(self) -> None:
        """Start it, on the port it had before if it had one, and return once it answers. Raises Unavailable, ServerFailed."""
        if self.is_running:
            return
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=self.PREFIX, dir=self._parent))
            reaper().sweep(str(self._folder))
            self._furnish()
        for _ in range(1 if self.port else _PORT_TRIES):
            if self._try_port(self.port or free_port()):
                return
        raise ServerFailed(f"{self.PRODUCT} did not start; the end of its log:\n{self._log_tail()}")

    def stop(self) -> None:
        """End it as its owner would."""
        self._end(self.STOP)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kill -9: what a power cut looks like to its clients. ``start`` recovers it."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it: connections are still accepted by the kernel, and nobody answers."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def close(self) -> None:
        """End it and remove its folder."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder, self.port = None, 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Inside

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerFailed("expected a started server")
        return self._process

    def _try_port(self, port: int) -> bool:
        """Whether it comes to answer there; not, once it has exited: the port was taken, most likely."""
        self._process = process = self._launched(port)
        reaper().watch(process.pid)
        deadline = time.monotonic() + self.START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if self._is_ready(process, port):
                self.port = port
                return True
            time.sleep(_LOOK_SECONDS)
        self._end(signal.SIGKILL)
        return False

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(self.STOP_SECONDS)
        except subprocess.TimeoutExpired as exc:
            self._process.kill()
            raise ServerFailed(f"{self.PRODUCT} did not stop within {self.STOP_SECONDS:.0f} s:\n{self._log_tail()}") from exc
        reaper().forget(self._process.pid)
        self._process = None

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:]) if self.log.exists() else "(it wrote none)"


def greets(port: int, saying: bytes = b"", expected: Callable[[bytes], bool] = bool, address: str = "127.0.0.1") -> bool:
    """Whether who listens there answers as expected; ``saying`` nothing, whether it speaks first."""
    with socket.socket() as probe:
        probe.settimeout(1)
        try:
            probe.connect((address, port))
            probe.sendall(saying)
            return expected(probe.recv(64))
        except OSError:
            return False
