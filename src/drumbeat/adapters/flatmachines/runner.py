"""Runs a FlatMachines state machine on Drumbeat: ``python -m drumbeat.adapters.flatmachines --config FILE --input JSON``."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from flatmachines import FlatMachine
from flatmachines.actions import MachineInvoker

from drumbeat.adapters.flatmachines.hooks import registry_of
from drumbeat.adapters.flatmachines.machine_files import find_inside, find_machine, load_machine
from drumbeat.adapters.flatmachines.session import MachineSession, Origin, open_session
from drumbeat.adapters.flatmachines.spawning import RequestedWorkers, count_jobs_and_workers, launch, spawn_workers
from drumbeat.adapters.flatmachines.translate import Setting, translate
from drumbeat.composition.plane import logging_to_stderr, on_stop_signals
from drumbeat.core.errors import DrumbeatError, InvalidInput, NotFound
from drumbeat.core.plain import read_json, short_repr
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.settings import Settings, load_settings
from drumbeat.store.interface import Store
from drumbeat.triggers.model import Firing, WorkerMachine

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A request to run a state machine: its file or name, its input, and the files and hooks that it uses."""

    config: Path | None = None  #: the machine's file
    machine: str | None = None  #: the machine's name: in ``config``, beside it or, without it, in the current folder
    given: Mapping[str, Any] = field(default_factory=dict)  #: the machine's input
    execution_id: str | None = None
    parent_id: str | None = None
    max_steps: int = 1000
    machines: Mapping[str, str] = field(default_factory=dict)  #: names of machines that its states use → their files
    hooks: Mapping[str, str] = field(default_factory=dict)  #: names of hooks that its states use → module:factory
    successors: int | None = None  #: at its end, start workers for remaining jobs, up to this many; None: start none


async def run_machine(request: Launch, *, where: str | Store | None = None, settings: Settings | None = None) -> dict[str, Any]:
    """Run a state machine to its end and return its output. If it fails, its jobs fail, and its worker's status is error."""
    loaded = settings or load_settings(os.environ)
    config, folder, origin = _find(request)
    store = where if isinstance(where, str) else loaded.store
    translated = translate(config, Setting(folder=folder, machines=origin.machines, store=store))
    async with open_session(where, settings=loaded, origin=origin) as session:
        machine = _machine(request, translated, folder, session)
        try:
            output: dict[str, Any] = await machine.execute(input=dict(request.given), max_steps=request.max_steps)
        except asyncio.CancelledError:
            await session.abandon(None)
            raise
        except Exception as exc:
            await session.abandon(f"{type(exc).__name__}: {exc}")
            await start_successors(session, request)
            raise
        await session.abandon(None)
        await start_successors(session, request)
        return output


async def start_workers(request: Launch, pool_id: str, cap: int, *, settings: Settings) -> dict[str, Any]:
    """Start as many workers for a state machine as the queue needs. When a worker ends, it starts others for remaining jobs.

    Returns the ids of the started workers, and how many pending jobs and how many workers the pool had before the start.
    """
    _, _, origin = _find(request)
    async with open_session(settings=settings, origin=origin) as session:
        backends = session.backends()
        machine = request.machine or str(origin.config)
        before = await count_jobs_and_workers(backends, pool_id)
        workers = RequestedWorkers(pool_id=pool_id, cap=cap, machine=machine, given=request.given, successors=True)
        started = await spawn_workers(backends, origin, workers)
        return {"started": started, "pending": before.pending, "workers": before.capacity}


async def start_successors(session: MachineSession, request: Launch) -> None:
    """At the end of a worker with the option ``--successors``, start workers for the remaining jobs if this worker claimed a
    job. Also start a process that waits for delayed jobs and then starts workers for them. Store errors are only logged."""
    pool_id, me = request.given.get("pool_id"), request.given.get("worker_id")
    if request.successors is None or not isinstance(pool_id, str):
        return
    backends = next((each for each in session.all_backends() if each.work.claims.made), None)
    given = {name: value for name, value in request.given.items() if name not in ("pool_id", "worker_id")}
    machine = request.machine or str(session.origin.config)
    workers = RequestedWorkers(
        pool_id=pool_id, cap=request.successors, machine=machine, given=given, successors=True, leaving=str(me)
    )
    try:
        plane = await (backends or session.backends()).work.place.plane()
        await _close_row(plane.store, PoolId(pool_id), WorkerId(str(me)))
        if backends is not None:
            await spawn_workers(backends, session.origin, workers)
        await plane.watch_for_later(_firing(session.origin, workers), PoolId(pool_id))
    except DrumbeatError as exc:
        log.warning("failed to start workers for the remaining jobs of pool %s: %s; the next check starts them", pool_id, exc)


async def _close_row(store: Store, pool_id: PoolId, worker_id: WorkerId) -> None:
    """End the worker's row if it is live. Otherwise a worker that never registered would still count as starting."""
    try:
        row = await store.workers.get(pool_id, worker_id)
    except NotFound:
        return
    if row.is_live:
        await store.workers.move(row, WorkerStatus.TERMINATED, "its machine has ended")


def _firing(origin: Origin, workers: RequestedWorkers) -> Firing:
    """Return a request to start workers when delayed jobs become ready. The workers run the state machine of ``origin``."""
    worker = WorkerMachine(file=str(origin.config), machines=origin.machines, hooks=origin.hooks)
    return Firing(trigger="successor", pool_id=workers.pool_id, max_workers=workers.cap, worker=worker)


def _find(request: Launch) -> tuple[Mapping[str, Any], Path, Origin]:
    """Read the state machine to run. Returns its document, the folder to which its paths are relative, and its origin."""
    machines = {name: str(Path(file).expanduser().absolute()) for name, file in request.machines.items()}
    hooks = {name: _absolute_file(target) for name, target in request.hooks.items()}
    file = request.config.expanduser().absolute() if request.config else None
    if request.machine is not None:
        outer = load_machine(file) if file else {}
        inside = find_inside(outer, file.parent if file else Path.cwd(), request.machine, machines)
        if isinstance(inside, dict):
            return inside, (file or Path.cwd()).parent, Origin(config=file, machines=machines, hooks=hooks)
        file = inside
    if file is None:
        raise InvalidInput("expected --config FILE or --machine NAME, got neither")
    found = find_machine(str(file), file.parent)
    if found is None:
        raise NotFound(f"there is no state machine file {file}")
    return load_machine(found), found.parent, Origin(config=found, machines=machines, hooks=hooks)


def _absolute_file(target: str) -> str:
    """Make the path in ``FILE.py:factory`` absolute; return ``module:factory`` unchanged."""
    module, mark, factory = target.rpartition(":")
    return f"{Path(module).expanduser().absolute()}{mark}{factory}" if module.endswith(".py") else target


def _machine(request: Launch, config: dict[str, Any], folder: Path, session: MachineSession) -> Any:
    hooks = {name: load_factory(name, target) for name, target in request.hooks.items()}
    return FlatMachine(
        config_dict=config,
        hooks_registry=registry_of(session, hooks),
        invoker=ProcessInvoker(session),
        _config_dir=str(folder),
        _execution_id=request.execution_id,
        _parent_execution_id=request.parent_id,
    )


def load_factory(name: str, target: str) -> Any:
    """Import the object that ``module:factory`` or ``FILE.py:factory`` names. Raises InvalidInput."""
    module, _, factory = target.rpartition(":")
    try:
        return getattr(_load_file(Path(module)) if module.endswith(".py") else import_module(module), factory)
    except (ImportError, AttributeError, ValueError, OSError) as exc:
        raise InvalidInput(f"expected --hooks {name}=MODULE:FACTORY that can be imported, got {target!r}: {exc}") from exc


def _load_file(file: Path) -> ModuleType:
    """Import a Python module from its file."""
    spec = spec_from_file_location(file.stem, file.expanduser().absolute())
    if spec is None or spec.loader is None:
        raise ImportError(f"expected a Python file (.py), got {file}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ProcessInvoker(MachineInvoker):  # type: ignore[misc]
    """Runs the state machines that another state machine uses: with ``launch:`` in a separate process, else in this process."""

    def __init__(self, session: MachineSession) -> None:
        self._session = session

    async def launch(
        self, caller_machine: Any, target_config: dict[str, Any], input_data: dict[str, Any], execution_id: str
    ) -> None:
        names = [name for name, config in caller_machine.machine_refs.items() if config is target_config]
        name = names[0] if names else str(target_config.get("data", {}).get("name"))
        await launch(
            self._session.backends(), self._session.origin, name, input_data, execution_id, caller_machine.execution_id
        )

    async def invoke(
        self, caller_machine: Any, target_config: dict[str, Any], input_data: dict[str, Any], execution_id: str | None = None
    ) -> dict[str, Any]:
        """Run a machine inside this process, wait for it, and return its output."""
        machine = FlatMachine(
            config_dict=target_config,
            hooks_registry=caller_machine.hooks_registry,
            invoker=self,
            _config_dir=caller_machine._config_dir,  # noqa: SLF001 - FlatMachines' invokers read it too
            _execution_id=execution_id,
            _parent_execution_id=caller_machine.execution_id,
        )
        output: dict[str, Any] = await machine.execute(input=input_data)
        return output


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m drumbeat.adapters.flatmachines", description="Run a FlatMachines machine on Drumbeat's stores."
    )
    options.add_argument("--config", "-c", type=Path, help="the machine's file (YAML or JSON)")
    options.add_argument("--machine", "-m", help="the machine's name: inside --config, beside it, or in this folder")
    options.add_argument("--input", "-i", default="{}", help="the machine's input, as JSON")
    options.add_argument("--execution-id", "-e")
    options.add_argument("--parent-id", "-p")
    options.add_argument("--max-steps", type=int, default=1000)
    options.add_argument(
        "--machines", action="append", default=[], metavar="NAME=FILE", help="file of a machine used by states"
    )
    options.add_argument(
        "--hooks",
        action="append",
        default=[],
        metavar="NAME=MODULE:FACTORY",
        help="a hook used by states; or NAME=FILE.py:FACTORY",
    )
    options.add_argument(
        "--start-workers",
        metavar="POOL",
        help="start as many workers for the machine as this pool's queue needs, and exit",
    )
    options.add_argument("--max-workers", type=int, default=10, help="with --start-workers: max workers in total")
    options.add_argument(
        "--successors",
        type=int,
        metavar="N",
        help="when the machine ends, start workers for the remaining jobs, at most N in total",
    )
    options.add_argument("--store", help="store URL; default: DRUMBEAT_STORE or drumbeat.toml")
    options.add_argument("--verbose", "-v", action="store_true", help="write all log messages (level DEBUG)")
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorkersOption:
    """The arguments of ``--start-workers``, which starts workers of this pool instead of running the state machine."""

    pool_id: str
    cap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """The command-line options that do not describe the state machine itself."""

    verbose: bool = False
    start: StartWorkersOption | None = None


def read_arguments(arguments: Sequence[str] | None) -> tuple[Launch, Settings, RunnerOptions]:
    """Parse the command line. Raises InvalidInput with the name of the wrong option."""
    given = parser().parse_args(arguments)
    content = read_json(given.input, "--input")
    if not isinstance(content, dict):
        raise InvalidInput(f"expected --input to be a JSON object, got {short_repr(content)}")
    request = Launch(
        config=given.config,
        machine=given.machine,
        given=content,
        execution_id=given.execution_id,
        parent_id=given.parent_id,
        max_steps=given.max_steps,
        machines=_pairs("--machines", given.machines),
        hooks=_pairs("--hooks", given.hooks),
        successors=given.successors,
    )
    start = None if given.start_workers is None else StartWorkersOption(pool_id=given.start_workers, cap=given.max_workers)
    return request, load_settings(os.environ, store=given.store), RunnerOptions(verbose=given.verbose, start=start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a state machine and print its output as JSON. Returns the exit code: 1 if the machine fails or an option is wrong."""
    try:
        request, settings, manner = read_arguments(arguments)
        with logging_to_stderr(logging.DEBUG if manner.verbose else logging.WARNING), _nothing_logged_to_stdout():
            output = asyncio.run(_run_until_sigterm(request, settings, manner.start))
    except DrumbeatError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    except asyncio.CancelledError:
        sys.stderr.write("stopped by a signal; the jobs of this worker are back in the queue\n")
        return 0
    except Exception as exc:
        log.exception("failed to run the FlatMachines machine that --config or --machine names")
        sys.stderr.write(f"{type(exc).__name__}: {exc}\n")
        return 1
    sys.stdout.write(json.dumps(output, indent=2, default=str) + "\n")
    return 0


def log_to_stderr() -> list["logging.StreamHandler[Any]"]:
    """Make FlatMachines log to standard error instead of standard output, where a machine's output is printed.

    Call it once at the start of a program. Returns the changed handlers.
    """
    handlers = [each for each in logging.getLogger("flatmachines").handlers if isinstance(each, logging.StreamHandler)]
    moved = [each for each in handlers if each.stream is sys.stdout]
    for handler in moved:
        handler.setStream(sys.stderr)
    return moved


@contextmanager
def _nothing_logged_to_stdout() -> Iterator[None]:
    moved = log_to_stderr()
    try:
        yield
    finally:
        for handler in moved:
            handler.setStream(sys.stdout)


async def _run_until_sigterm(request: Launch, settings: Settings, start: StartWorkersOption | None) -> dict[str, Any]:
    task = asyncio.current_task()
    assert task is not None
    with on_stop_signals(task.cancel, signal.SIGTERM):
        if start is not None:
            return await start_workers(request, start.pool_id, start.cap, settings=settings)
        return await run_machine(request, settings=settings)


def _pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for name, mark, value in pairs:
        if not (name and mark and value):
            raise InvalidInput(f"expected {flag} NAME=VALUE, got {name + mark + value!r}")
    return {name: value for name, _, value in pairs}
