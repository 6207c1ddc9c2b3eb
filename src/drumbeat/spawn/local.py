"""A spawner that starts workers as processes on this machine."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import IO, Self

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput, NotFound, SpawnCause, SpawnError, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.fork_client import ForkConnector, NoForkServer, SocketConnector, fork
from drumbeat.spawn.fork_wire import Request, code_identity
from drumbeat.spawn.inherited import inherited_by_worker
from drumbeat.spawn.interface import Instance, InstanceState, Order, SpawnerTraits
from drumbeat.spawn.leash import LEASH_FD, Leash
from drumbeat.spawn.local_settings import LocalSettings
from drumbeat.spawn.names import Name
from drumbeat.spawn.private import last_lines, private_append
from drumbeat.spawn.state_dir import StateDir
from drumbeat.spawn.tagged import Process, await_tags, born, find, find_recorded, is_recorded_running, tags

log = logging.getLogger(__name__)

_DRUMBEAT = (sys.executable, "-m", "drumbeat")
WORKER_COMMAND = (*_DRUMBEAT, "worker")
_GONE_WITHIN = timedelta(seconds=10)  #: how long a process may take to end after SIGKILL
_POLL = timedelta(milliseconds=10)


@dataclass(slots=True)
class _Child:
    """A process that this spawner started. A thread waits for its end, so that it never stays a zombie."""

    process: Process
    wait: Callable[[], int | None]  #: waits until the process ends, and returns its exit code
    ended: Event = field(default_factory=Event)
    exit_code: int | None = None

    def await_end(self) -> None:
        self.exit_code = self.wait()
        self.ended.set()

    @property
    def instance(self) -> Instance:
        if not self.ended.is_set():
            return _as_instance(self.process)
        return replace(_as_instance(self.process), state=InstanceState.EXITED, exit_code=self.exit_code)


class LocalSpawner:
    """Starts workers as processes on this machine, each leading its own session.

    Spawners with the same ``state_dir`` see the same workers, even if the process that started them has ended. Workers end with
    this process (see leash.py) unless ``survive`` is set. Their output goes to ``log_path``. An exit code of -n means that
    signal n ended the worker. The exit code of a worker that another process started is unknown. Exit codes are kept as long as
    this spawner exists; an ended worker is listed until it is terminated.

    If the state folder or this process has a fork server, workers with Drumbeat's own command are forked from it, which is much
    faster than starting a new Python.

    asyncio's subprocesses are not used: they are killed with their event loop, but workers with ``survive`` must keep running.
    """

    def __init__(
        self,
        state_dir: Path,
        environment: Mapping[str, str],
        command: Sequence[str] | None = None,
        survive: bool = False,
        clock: Clock | None = None,
        forks: ForkConnector | None = None,
        name: str = "local",
        settings: LocalSettings | None = None,
        credentials: Set[str] = frozenset(),
    ) -> None:
        """``environment`` overrides inherited variables; ``command`` precedes worker arguments; ``name`` names the engine.
        ``credentials``: the variables of engines, which workers inherit only if ``settings.variables`` names them."""
        self._name = name
        self._settings = settings or LocalSettings()
        self._withheld = credentials - {*self._settings.variables}
        self._state_dir = StateDir(state_dir)
        self._environment = dict(environment)
        self._command = tuple(command or WORKER_COMMAND)
        self._survive = survive
        self._clock = clock or SystemClock()
        self._forks = forks or SocketConnector(self._state_dir.path)
        self._children: dict[Name, _Child] = {}
        self._others: dict[Name, tuple[Process, Instance]] = {}  #: workers that other processes started
        self._starts: ThreadPoolExecutor | None = None
        self._leash: Leash | None = None
        self._counting = Lock()  #: held while slots are counted and a worker is started, as is the state folder's lock

    @property
    def traits(self) -> SpawnerTraits:
        return SpawnerTraits(
            name=self._name,
            unique_names=True,
            outlives_controller=self._survive,
            reports_exit_codes=True,
            reports_logs=True,
            price_per_hour=self._settings.price_per_hour,
            owns_all=True,
        )

    def log_path(self, pool_id: PoolId, worker_id: WorkerId) -> Path:
        """Return the log file for a worker's stdout and stderr; a later start of the worker appends to it."""
        return self._state_dir.log_path((pool_id, worker_id))

    async def spawn(self, order: Order) -> Instance:
        if self._starts is None:
            raise InvalidInput("expected an open spawner; use it as: async with LocalSpawner(...) as spawner")
        cancelled = Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._starts, self._find_or_start, order, cancelled)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        self._update_others(await asyncio.to_thread(self._all_running))
        own = [child.instance for child in tuple(self._children.values())]
        others = [instance for _, instance in tuple(self._others.values())]
        known = [one for one in own + others if one.pool_id == pool_id]
        ended = await asyncio.to_thread(self._ended_unseen, pool_id, {one.worker_id for one in known})
        return sorted([*known, *ended], key=lambda one: one.worker_id)

    async def pools(self) -> Set[PoolId]:
        """Return the pools that have running workers in this spawner's state folder; a state folder belongs to one store."""
        return {process.name[0] for process in await asyncio.to_thread(self._all_running)}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        for process in await asyncio.to_thread(self._alive, {(pool_id, worker_id)}):
            if self._is_worker(process):
                process.terminate()

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await self._end({(pool_id, worker_id)})
        await asyncio.to_thread(self._state_dir.forget_running, (pool_id, worker_id))

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines of the worker's log file. Raises NotFound, SpawnError."""
        path = self.log_path(pool_id, worker_id)
        try:
            return await asyncio.to_thread(last_lines, path, lines)
        except FileNotFoundError as exc:
            raise NotFound(f"expected the log of worker {worker_id} of pool {pool_id}, but there is no file {path}") from exc
        except OSError as exc:
            raise SpawnError(f"could not read the log of worker {worker_id} of pool {pool_id}: {exc}") from exc

    async def __aenter__(self) -> Self:
        self._leash = None if self._survive else Leash()
        self._starts = ThreadPoolExecutor(thread_name_prefix="local-spawner")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        starts, self._starts = self._starts, None
        try:
            if starts is not None:
                await asyncio.to_thread(starts.shutdown)
            if not self._survive:
                await self._end(set(self._children))
        finally:
            if self._leash is not None:
                self._leash.close()
                self._leash = None

    def _find_or_start(self, order: Order, cancelled: Event) -> Instance:
        """Return the running worker, or start it. Runs in a thread, which finishes a start even if the caller is cancelled.

        A cancelled call that still waits for the lock starts no worker: the worker might have been terminated meanwhile.
        """
        name = (order.pool_id, order.worker_id)
        with self._state_dir.starting(name) as lock:
            worker = next(filter(self._is_worker, self._alive({name})), None)
            if worker is not None:
                return _as_instance(worker)
            with self._free_slot(order):
                if cancelled.is_set():
                    raise SpawnFailed(f"the start of worker {order.worker_id} of {order.pool_id} was cancelled")
                return self._start(order, name, lock).instance

    @contextmanager
    def _free_slot(self, order: Order) -> Iterator[None]:
        """Check that a slot is free for the worker, which is started in the ``with`` block. Raises SpawnFailed if none is free.

        If the settings limit the workers, the state folder is locked during the block, so that no other spawner takes the slot.
        """
        slots = self._settings.slots
        if slots is None:
            yield
            return
        with self._counting, self._state_dir.counting():
            own = {name for name, child in tuple(self._children.items()) if not child.ended.is_set()}
            running = own | {process.name for process in self._all_running()}
            if len(running) >= slots:
                used = f"{len(running)} of {slots} in use"
                message = f"worker {order.worker_id}: engine {self._name} has no free slot ({used}); raise its slots, or wait"
                raise SpawnFailed(message, cause=SpawnCause.NO_CAPACITY)
            yield

    def _start(self, order: Order, name: Name, lock: int) -> _Child:
        command = order.command_line(self._command)
        output = self._state_dir.log_path(name)
        try:
            self._state_dir.note_ref(name, None)
            with private_append(output) as log_file:
                child = self._fork(order, name, command, (log_file.fileno(), lock))
                child = child or self._popen(order, name, command, log_file)
        except (OSError, ValueError) as exc:
            raise SpawnFailed(
                f"could not start worker {order.worker_id} of {order.pool_id} as {command[0]!r}: {exc}; "
                f"check the command, and that {output.parent} can be written"
            ) from exc
        self._children[name] = child
        self._others.pop(name, None)
        Thread(target=child.await_end, name=f"await-{child.process.pid}", daemon=True).start()
        self._make_known(child.process)
        return child

    def _fork(self, order: Order, name: Name, command: Sequence[str], files: Sequence[int]) -> _Child | None:
        """Start the worker through a fork server; None if there is no fork server that can start it."""
        if tuple(command[: len(_DRUMBEAT)]) != _DRUMBEAT:
            return None
        request = Request(
            words=command[len(_DRUMBEAT) :],
            environment=self._environment_of(order, name),
            folder=os.getcwd(),
            made_of=code_identity(),
            record_as=(str(self._state_dir.path), *name),
            leash=None if self._leash is None else LEASH_FD,
        )
        try:
            forked = fork(self._forks, request, [*files, *([] if self._leash is None else [self._leash.inherited])])
        except NoForkServer as exc:
            log.debug("worker %s: no fork server (%s); starting a new process", name[1], exc)
            return None
        process = Process(pid=forked.pid, birth=forked.birth, name=name, started_at=self._clock.now())
        return _Child(process, forked.wait)

    def _popen(self, order: Order, name: Name, command: Sequence[str], output: IO[bytes]) -> _Child:
        popen = subprocess.Popen(
            command,
            env=self._environment_of(order, name),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if self._leash is None else (self._leash.inherited,),
        )
        process = Process(pid=popen.pid, birth=born(popen.pid), name=name, started_at=self._clock.now())
        return _Child(process, popen.wait)

    def _make_known(self, process: Process) -> None:
        """Wait until other processes can find this worker by its environment, and record it. A forked worker records itself."""
        if self._state_dir.find_ref(process.name) == process.ref:
            return
        await_tags(process)
        try:
            self._state_dir.note_ref(process.name, process.ref)
        except OSError:
            subject = (*reversed(process.name), process.ref)
            log.warning("failed to record in the state folder that worker %s of pool %s is process %s", *subject, exc_info=True)

    def _environment_of(self, order: Order, name: Name) -> dict[str, str]:
        own, tagged = inherited_by_worker(os.environ, self._withheld), tags(self._state_dir.scope, name)
        environment = {**own, **self._settings.environment, **self._environment, **order.environment, **tagged}
        environment.pop(LEASH_FD, None)
        if self._leash is not None:
            environment[LEASH_FD] = str(self._leash.inherited)
        return environment

    def _alive(self, names: Set[Name]) -> Sequence[Process]:
        """Return the running processes of these workers and their children, whichever spawner started the workers."""
        found = {process.ref: process for process in self._all_running() if process.name in names}
        own = [child.process for name, child in tuple(self._children.items()) if name in names and not child.ended.is_set()]
        return tuple({**{process.ref: process for process in own}, **found}.values())

    def _all_running(self) -> Sequence[Process]:
        """Return all processes of this state folder's workers: found by environment variables or, if forked, by records."""
        forked = []
        for name, ref in self._state_dir.forked():
            process = find_recorded(name, ref)
            if process is not None:
                forked.append(process)
            else:
                self._state_dir.forget_forked(name, ref)
        return (*forked, *find(self._state_dir.scope))

    def _ended_unseen(self, pool_id: PoolId, known: Set[WorkerId]) -> Sequence[Instance]:
        """Return workers that were started on this machine and ended before this spawner saw them."""
        return [
            Instance(pool_id=pool_id, worker_id=name[1], ref=ref, state=InstanceState.EXITED)
            for name, ref in self._state_dir.running(pool_id, self._clock.now())
            if name[1] not in known and not is_recorded_running(ref)
        ]

    def _is_worker(self, process: Process) -> bool:
        """Whether the process is the worker itself: it leads a session, and no other process is recorded as the worker."""
        return process.leads and self._state_dir.find_ref(process.name) in {None, process.ref}

    async def _end(self, names: Set[Name]) -> None:
        deadline = self._clock.elapsed() + _GONE_WITHIN
        while alive := await asyncio.to_thread(self._alive, names):
            if self._clock.elapsed() > deadline:
                refs = ", ".join(process.ref for process in alive)
                raise SpawnError(
                    f"expected workers to end within {_GONE_WITHIN} of SIGKILL, but these processes still run: {refs}"
                )
            for process in alive:
                process.kill()
            await self._clock.sleep(_POLL)

    def _update_others(self, found: Sequence[Process]) -> None:
        """Update the list of workers that other spawners started: add those that run, and mark those that have ended."""
        for name, process in {one.name: one for one in reversed(found) if self._is_worker(one)}.items():
            child = self._children.get(name)
            if child is None or (child.ended.is_set() and child.process.ref != process.ref):
                self._children.pop(name, None)
                self._others[name] = process, _as_instance(process)
        for name, (process, instance) in tuple(self._others.items()):
            if not process.is_alive:
                self._others[name] = process, replace(instance, state=InstanceState.EXITED)


def _as_instance(process: Process) -> Instance:
    return Instance(
        pool_id=process.name[0],
        worker_id=process.name[1],
        ref=process.ref,
        state=InstanceState.RUNNING,
        started_at=process.started_at,
    )
