"""A fork server: a warm process with one thread and nothing open, which on request becomes whoever is asked for.

Starting an interpreter and importing what a worker needs takes longer than all the rest of its start; a fork has both already.
What is asked for leads a session of its own, writes where it is told, and, if it is a worker, notes itself in the state folder
before it does anything else: by that it is found, for its environment, as others see it, is the server's. A server that is made
of other code than those who ask, or whose files have changed since it read them, refuses; whoever asked starts a process then.
"""

import contextlib
import fcntl
import gc
import importlib
import logging
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from drumbeat.core.errors import AlreadyExists
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.fork_wire import (
    PATIENCE_SECONDS,
    SOCKET,
    Request,
    close_all,
    is_ours,
    made_of,
    receive_request,
    send_line,
)
from drumbeat.spawn.private import private_append
from drumbeat.spawn.state_dir import StateDir
from drumbeat.spawn.tagged import born

log = logging.getLogger(__name__)

Become = Callable[[Sequence[str]], int]  #: from words to an exit code


class ForkServer:
    """Serves until its socket's line ends, it is told to stop, nobody asked for ``idle``, or its code has changed."""

    def __init__(self, knocks: socket.socket, become: Become, idle: timedelta | None = None) -> None:
        """``knocks``: a listening socket, or the line of whoever forked this server, which brings connections."""
        self._knocks = knocks
        self._become = become
        self._idle = idle
        self._asked_by: dict[int, socket.socket] = {}  #: who waits for which child's end
        self._read = _files()

    def serve(self) -> None:
        gc.freeze()
        with selectors.DefaultSelector() as selector, _told_of_children() as told:
            selector.register(self._knocks, selectors.EVENT_READ)
            selector.register(told, selectors.EVENT_READ)
            while ready := selector.select(None if self._idle is None else self._idle.total_seconds()):
                if any(key.fileobj is told for key, _ in ready):
                    told.recv(4096)
                    self._bury()
                if any(key.fileobj is self._knocks for key, _ in ready) and not self._answer():
                    return

    def _answer(self) -> bool:
        """Whether to go on."""
        connection = self._connection()
        if connection is None:
            return False
        connection.settimeout(PATIENCE_SECONDS)
        try:
            request, files = receive_request(connection)
        except (OSError, ValueError) as exc:
            log.warning("%s", exc)
            connection.close()
            return True
        try:
            return self._serve(connection, request, files)
        finally:
            close_all(files)

    def _connection(self) -> socket.socket | None:
        """Who knocks; None when there is nobody any more to serve."""
        if self._knocks.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            connection = self._knocks.accept()[0]
        else:
            _, files, _, _ = socket.recv_fds(self._knocks, 1, 1)
            if not files:
                return None
            connection = socket.socket(fileno=files[0])
        if is_ours(connection):
            return connection
        connection.close()
        return self._connection()

    def _serve(self, connection: socket.socket, request: Request, files: list[int]) -> bool:
        is_same = request.made_of == made_of()
        if not is_same or _files() != self._read:
            send_line(connection, refused="the fork server is made of other code")
            connection.close()
            return not is_same
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._be_born(connection, request, files)
        self._asked_by[pid] = connection
        return True

    def _bury(self) -> None:
        """Tell who asked how their processes have ended."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if connection := self._asked_by.pop(ended[0], None):
                    send_line(connection, exit=os.waitstatus_to_exitcode(ended[1]))
                    connection.close()

    def _be_born(self, connection: socket.socket, request: Request, files: list[int]) -> NoReturn:
        """The child's side of the fork; the end of it is the end of the process."""
        code = 1
        try:
            self._knocks.close()
            for other in self._asked_by.values():
                other.close()
            settle_in(request, files)
            if announce(connection, request):
                close_all(files[1:2])
                code = outcome(self._become, request.words)
        except BaseException:
            traceback.print_exc()
        finally:
            logging.shutdown()
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def settle_in(request: Request, files: Sequence[int]) -> None:
    """Be a process as if it had been started: its session, its files, its folder, its environment, where it looks for code."""
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(files[0], 1)
    os.dup2(files[0], 2)
    os.close(files[0])
    os.chdir(request.folder)  # noqa: TID251 - a child that was just forked has the process to itself
    os.environ.clear()
    os.environ.update(request.environment)
    if request.leash is not None:
        os.environ[request.leash] = str(files[-1])
    wanted = [request.folder, *filter(None, request.environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[:] = [*wanted, *(place for place in sys.path if place not in wanted)]


def announce(connection: socket.socket, request: Request) -> bool:
    """Be known, then say so; whether whoever asked still listens. Nobody is a worker before it is known as one."""
    pid = os.getpid()
    birth = born(pid)
    if request.known_as:
        folder, pool_id, worker_id = request.known_as
        state_dir, name = StateDir(Path(folder)), (PoolId(pool_id), WorkerId(worker_id))
        state_dir.note_forked(name, f"{pid}:{birth}")
        state_dir.note_ref(name, f"{pid}:{birth}")
    heard = send_line(connection, pid=pid, birth=birth)
    connection.close()
    return heard


def outcome(become: Become, words: Sequence[str]) -> int:
    """The exit code, as the interpreter would have made it of what happened."""
    try:
        return become(words)
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code or 0
        sys.stderr.write(f"{exc.code}\n")
        return 1


def _files() -> frozenset[tuple[str, float]]:
    """Our own modules that are loaded, and when their files were written."""
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) if name.partition(".")[0] == __name__.partition(".")[0] else None
        if file is not None:
            with contextlib.suppress(OSError):
                found.add((file, os.stat(file).st_mtime))
    return frozenset(found)


@contextmanager
def _told_of_children() -> Iterator[socket.socket]:
    """A socket that becomes readable when a child has ended."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        usual, before = signal.signal(signal.SIGCHLD, lambda *_: None), signal.set_wakeup_fd(theirs.fileno())
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(before)
            signal.signal(signal.SIGCHLD, usual)


def warm_up(modules: Sequence[str]) -> None:
    """Import what whoever is asked for will need; what is not installed is not missed here."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@contextmanager
def own_fork_server(become: Become, modules: Sequence[str]) -> Iterator[socket.socket]:
    """A fork server for this process alone, warmed up beside it; gives the line to it. It ends with this process."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        code = 1
        try:
            ours.close()
            warm_up(modules)
            ForkServer(theirs, become).serve()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    theirs.close()
    with ours:
        yield ours


@contextmanager
def listening(state_dir: Path) -> Iterator[socket.socket]:
    """The socket of a state folder, for its user alone. Raises AlreadyExists while another serves it."""
    with private_append(state_dir / f"{SOCKET}.lock") as lock, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocks:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which, unlike flock, no child has a part in
        except (BlockingIOError, PermissionError) as exc:
            raise AlreadyExists(f"expected no fork server in {state_dir} yet, one is there; use that one") from exc
        (state_dir / SOCKET).unlink(missing_ok=True)
        _bind_within(knocks, state_dir)
        knocks.listen(128)
        try:
            yield knocks
        finally:
            (state_dir / SOCKET).unlink(missing_ok=True)


def _bind_within(knocks: socket.socket, folder: Path) -> None:
    """The path may be longer than a socket's may be. Linux makes the socket's file with the mode of the socket."""
    os.fchmod(knocks.fileno(), 0o600)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        knocks.bind(f"/proc/self/fd/{place}/{SOCKET}")
    finally:
        os.close(place)
