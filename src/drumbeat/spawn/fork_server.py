"""A fork server: a process with one thread, no open files and all modules loaded, which forks new processes on request.

Forking is fast, because the interpreter is started and the modules are imported already. The new process leads its own
session. A forked worker records itself in the state folder, because other processes cannot read the environment variables of a
forked process, by which all other workers are found. The server refuses a request if the client uses another interpreter or
another copy of Drumbeat, or if code files have changed since the server started; the client then starts a process in the usual
way.
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
    SOCKET,
    TIMEOUT_SECONDS,
    Request,
    close_all,
    code_identity,
    is_same_user,
    receive_request,
    send_line,
)
from drumbeat.spawn.private import private_append
from drumbeat.spawn.state_dir import StateDir
from drumbeat.spawn.tagged import born

log = logging.getLogger(__name__)

Become = Callable[[Sequence[str]], int]  #: runs a command, given as a list of arguments, and returns its exit code


class ForkServer:
    """Forks processes on request. Ends when the only process it serves has ended, when no request has come for ``idle``, or
    when a request comes after Drumbeat's code on disk has changed."""

    def __init__(self, incoming: socket.socket, become: Become, idle: timedelta | None = None) -> None:
        """``incoming`` is a listening socket, or a socket on which each connection arrives as a file descriptor.
        ``become(words)`` runs a command in a forked process and returns its exit code."""
        self._incoming = incoming
        self._become = become
        self._idle = idle
        self._clients: dict[int, socket.socket] = {}  #: by pid: the connection to which its exit code is sent
        self._files_at_start = _loaded_files()

    def serve(self) -> None:
        gc.freeze()
        with selectors.DefaultSelector() as selector, _child_exit_socket() as child_exits:
            selector.register(self._incoming, selectors.EVENT_READ)
            selector.register(child_exits, selectors.EVENT_READ)
            while ready := selector.select(None if self._idle is None else self._idle.total_seconds()):
                if any(key.fileobj is child_exits for key, _ in ready):
                    child_exits.recv(4096)
                    self._report_exits()
                if any(key.fileobj is self._incoming for key, _ in ready) and not self._serve_next():
                    return

    def _serve_next(self) -> bool:
        """Serve one request. Returns whether the server continues."""
        connection = self._connection()
        if connection is None:
            return False
        connection.settimeout(TIMEOUT_SECONDS)
        try:
            request, files = receive_request(connection)
        except (OSError, ValueError) as exc:
            log.warning("the fork server refused a request to start a process: %s; the client starts it in the usual way", exc)
            connection.close()
            return True
        try:
            return self._fork(connection, request, files)
        finally:
            close_all(files)

    def _connection(self) -> socket.socket | None:
        """Return the next connection from a process of this user; None if the process that forked this server has ended."""
        if self._incoming.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            connection = self._incoming.accept()[0]
        else:
            _, files, _, _ = socket.recv_fds(self._incoming, 1, 1)
            if not files:
                return None
            connection = socket.socket(fileno=files[0])
        if is_same_user(connection):
            return connection
        connection.close()
        return self._connection()

    def _fork(self, connection: socket.socket, request: Request, files: list[int]) -> bool:
        is_same = request.made_of == code_identity()
        if not is_same or _loaded_files() != self._files_at_start:
            send_line(connection, refused="the fork server runs other code")
            connection.close()
            return not is_same
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._run_child(connection, request, files)
        self._clients[pid] = connection
        return True

    def _report_exits(self) -> None:
        """For each forked process that has ended, send its exit code to the client that requested it."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if connection := self._clients.pop(ended[0], None):
                    send_line(connection, exit=os.waitstatus_to_exitcode(ended[1]))
                    connection.close()

    def _run_child(self, connection: socket.socket, request: Request, files: list[int]) -> NoReturn:
        """Run the requested command in the forked child, and exit."""
        code = 1
        try:
            self._incoming.close()
            for other in self._clients.values():
                other.close()
            set_up_process(request, files)
            if announce(connection, request):
                close_all(files[1:2])
                code = exit_code(self._become, request.words)
        except BaseException:
            traceback.print_exc()
        finally:
            logging.shutdown()
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def set_up_process(request: Request, files: Sequence[int]) -> None:
    """Give the forked child its own session, files, working directory, environment and import path."""
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(os.devnull, "rb") as devnull:
        os.dup2(devnull.fileno(), 0)
    os.dup2(files[0], 1)
    os.dup2(files[0], 2)
    os.close(files[0])
    os.chdir(request.folder)  # noqa: TID251 - the forked child has the process to itself
    os.environ.clear()
    os.environ.update(request.environment)
    if request.leash is not None:
        os.environ[request.leash] = str(files[-1])
    first = [request.folder, *filter(None, request.environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[:] = [*first, *(path for path in sys.path if path not in first)]


def announce(connection: socket.socket, request: Request) -> bool:
    """Record this process in the state folder if it is a worker, and send its pid to the client. False: the client is gone."""
    pid = os.getpid()
    birth = born(pid)
    if request.record_as:
        folder, pool_id, worker_id = request.record_as
        state_dir, name = StateDir(Path(folder)), (PoolId(pool_id), WorkerId(worker_id))
        state_dir.note_forked(name, f"{pid}:{birth}")
        state_dir.note_ref(name, f"{pid}:{birth}")
    delivered = send_line(connection, pid=pid, birth=birth)
    connection.close()
    return delivered


def exit_code(become: Become, words: Sequence[str]) -> int:
    """Run a command by calling ``become(words)``, and return its exit code. SystemExit becomes an exit code as in Python."""
    try:
        return become(words)
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code or 0
        sys.stderr.write(f"{exc.code}\n")
        return 1


def _loaded_files() -> frozenset[tuple[str, float]]:
    """Return the files of Drumbeat's loaded modules with their modification times, to notice changed code."""
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) if name.partition(".")[0] == __name__.partition(".")[0] else None
        if file is not None:
            with contextlib.suppress(OSError):
                found.add((file, os.stat(file).st_mtime))
    return frozenset(found)


@contextmanager
def _child_exit_socket() -> Iterator[socket.socket]:
    """Create a socket that becomes readable when a child process has ended."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        old_handler, old_fd = signal.signal(signal.SIGCHLD, lambda *_: None), signal.set_wakeup_fd(theirs.fileno())
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(old_fd)
            signal.signal(signal.SIGCHLD, old_handler)


def warm_up(modules: Sequence[str]) -> None:
    """Import the modules that forked processes need; modules that are not installed are skipped."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@contextmanager
def own_fork_server(become: Become, modules: Sequence[str]) -> Iterator[socket.socket]:
    """Fork a fork server that serves only this process and ends with it, and yield the socket to it.

    To run a requested command, the server forks a process that calls ``become``.
    """
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
    """Listen on the socket file of a state folder, for its user only. Raises AlreadyExists if another server listens there."""
    with private_append(state_dir / f"{SOCKET}.lock") as lock, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as incoming:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, not inherited by child processes
        except (BlockingIOError, PermissionError) as exc:
            raise AlreadyExists(f"expected no fork server for {state_dir}, but one is already running; use that one") from exc
        (state_dir / SOCKET).unlink(missing_ok=True)
        _bind_within(incoming, state_dir)
        incoming.listen(128)
        try:
            yield incoming
        finally:
            (state_dir / SOCKET).unlink(missing_ok=True)


def _bind_within(incoming: socket.socket, folder: Path) -> None:
    """Create the socket file in a folder, for this user only. Uses /proc/self/fd, as the folder's path can be too long."""
    os.fchmod(incoming.fileno(), 0o600)
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        incoming.bind(f"/proc/self/fd/{folder_fd}/{SOCKET}")
    finally:
        os.close(folder_fd)
