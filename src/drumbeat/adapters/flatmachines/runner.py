"""Runs a machine on Drumbeat's stores: ``python -m drumbeat.adapters.flatmachines --config FILE --input JSON``."""

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
from drumbeat.adapters.flatmachines.spawning import RequestedWorkers, launch, spawn_workers, standing
from drumbeat.adapters.flatmachines.translate import Setting, translate
from drumbeat.composition.plane import logging_to_stderr, on_stop_signals
from drumbeat.core.errors import DrumbeatError, InvalidInput, NotFound
from drumbeat.core.plain import read_json, shown
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.settings import Settings, load_settings
from drumbeat.store.interface import Store
from drumbeat.triggers.model import Firing, WorkerMachine

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A machine to be run."""

    config: Path | None = None  #: its file
    machine: str | None = None  #: its name: inside ``config``, beside it, or, without one, in the working directory
    given: Mapping[str, Any] = field(default_factory=dict)  #: its input
    execution_id: str | None = None
    parent_id: str | None = None
    max_steps: int = 1000
    machines: Mapping[str, str] = field(default_factory=dict)  #: names its states use → files
    hooks: Mapping[str, str] = field(default_factory=dict)  #: names its states use → module:factory
    successors: int | None = None  #: it is one of at most so many workers of a pool, and calls for its successor


async def run_machine(wanted: Launch, *, where: str | Store | None = None, settings: Settings | None = None) -> dict[str, Any]:
    """Run a machine to its end and answer with its output. If it fails, so have its jobs, and its worker is an error's."""
    known = settings or load_settings(os.environ)
    config, folder, origin = _find(wanted)
    store = where if isinstance(where, str) else known.store
    made = translate(config, Setting(folder=folder, machines=origin.machines, store=store))
    async with open_session(where, settings=known, origin=origin) as session:
        machine = _machine(wanted, made, folder, session)
        try:
            output: dict[str, Any] = await machine.execute(input=dict(wanted.given), max_steps=wanted.max_steps)
        except asyncio.CancelledError:
            await session.abandon(None)
            raise
        except Exception as exc:
            await session.abandon(f"{type(exc).__name__}: {exc}")
            await call_successor(session, wanted)
            raise
        await session.abandon(None)
        await call_successor(session, wanted)
        return output


async def start_workers(wanted: Launch, pool_id: str, cap: int, *, settings: Settings) -> dict[str, Any]:
    """Start as many workers that run a machine as a pool's queue is worth; each calls for its successor when it leaves."""
    _, _, origin = _find(wanted)
    async with open_session(settings=settings, origin=origin) as session:
        desk = session.desk()
        machine = wanted.machine or str(origin.config)
        before = await standing(desk, pool_id)
        wish = RequestedWorkers(pool_id=pool_id, cap=cap, machine=machine, given=wanted.given, successors=True)
        return {"started": await spawn_workers(desk, origin, wish), "pending": before.pending, "workers": before.capacity}


async def call_successor(session: MachineSession, wanted: Launch) -> None:
    """What a worker that a trigger started does last of all: start others, if it had a job and jobs are left; and have jobs
    that come due later watched for. Never raises for a store."""
    pool_id, me = wanted.given.get("pool_id"), wanted.given.get("worker_id")
    if wanted.successors is None or not isinstance(pool_id, str):
        return
    desk = next((each for each in session.desks() if each.work.claims.made), None)
    given = {name: value for name, value in wanted.given.items() if name not in ("pool_id", "worker_id")}
    machine = wanted.machine or str(session.origin.config)
    wish = RequestedWorkers(
        pool_id=pool_id, cap=wanted.successors, machine=machine, given=given, successors=True, leaving=str(me)
    )
    try:
        plane = await (desk or session.desk()).work.place.plane()
        await _close_row(plane.store, PoolId(pool_id), WorkerId(str(me)))
        if desk is not None:
            await spawn_workers(desk, session.origin, wish)
        await plane.watch_for_later(_firing(session.origin, wish), PoolId(pool_id))
    except DrumbeatError as exc:
        log.warning("jobs are left in %s, and nobody was called for them: %s", pool_id, exc)


async def _close_row(store: Store, pool_id: PoolId, worker_id: WorkerId) -> None:
    """End the row of a worker that never registered: it would count as one that is about to come."""
    try:
        row = await store.workers.get(pool_id, worker_id)
    except NotFound:
        return
    if row.is_live:
        await store.workers.move(row, WorkerStatus.TERMINATED, "its machine is over")


def _firing(origin: Origin, wish: RequestedWorkers) -> Firing:
    """What starts workers like this one again."""
    worker = WorkerMachine(file=str(origin.config), machines=origin.machines, hooks=origin.hooks)
    return Firing(trigger="successor", pool_id=wish.pool_id, max_workers=wish.cap, worker=worker)


def _find(wanted: Launch) -> tuple[Mapping[str, Any], Path, Origin]:
    """The machine, the folder its references are relative to, and where it came from."""
    machines = {name: str(Path(file).expanduser().absolute()) for name, file in wanted.machines.items()}
    hooks = {name: _absolute_file(target) for name, target in wanted.hooks.items()}
    file = wanted.config.expanduser().absolute() if wanted.config else None
    if wanted.machine is not None:
        around = load_machine(file) if file else {}
        inside = find_inside(around, file.parent if file else Path.cwd(), wanted.machine, machines)
        if isinstance(inside, dict):
            return inside, (file or Path.cwd()).parent, Origin(config=file, machines=machines, hooks=hooks)
        file = inside
    if file is None:
        raise InvalidInput("expected --config FILE or --machine NAME, got neither")
    found = find_machine(str(file), file.parent)
    if found is None:
        raise NotFound(f"expected a machine's file at {file}, got none")
    return load_machine(found), found.parent, Origin(config=found, machines=machines, hooks=hooks)


def _absolute_file(target: str) -> str:
    """``FILE.py:factory`` as it is found from any folder; ``module:factory`` as it is."""
    module, mark, factory = target.rpartition(":")
    return f"{Path(module).expanduser().absolute()}{mark}{factory}" if module.endswith(".py") else target


def _machine(wanted: Launch, config: dict[str, Any], folder: Path, session: MachineSession) -> Any:
    hooks = {name: load_factory(name, target) for name, target in wanted.hooks.items()}
    return FlatMachine(
        config_dict=config,
        hooks_registry=registry_of(session, hooks),
        invoker=ProcessInvoker(session),
        _config_dir=str(folder),
        _execution_id=wanted.execution_id,
        _parent_execution_id=wanted.parent_id,
    )


def load_factory(name: str, target: str) -> Any:
    """What ``module:factory`` or ``FILE.py:factory`` names. Raises InvalidInput."""
    module, _, factory = target.rpartition(":")
    try:
        return getattr(_load_file(Path(module)) if module.endswith(".py") else import_module(module), factory)
    except (ImportError, AttributeError, ValueError, OSError) as exc:
        raise InvalidInput(f"expected --hooks {name}=MODULE:FACTORY that can be imported, got {target!r}: {exc}") from exc


def _load_file(file: Path) -> ModuleType:
    """A module by its file; what lies beside it can be imported by it."""
    spec = spec_from_file_location(file.stem, file.expanduser().absolute())
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no module")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ProcessInvoker(MachineInvoker):  # type: ignore[misc]
    """``launch:`` as a process of its own, by the name the machine has for it, so that relative references hold."""

    def __init__(self, session: MachineSession) -> None:
        self._session = session

    async def launch(
        self, caller_machine: Any, target_config: dict[str, Any], input_data: dict[str, Any], execution_id: str
    ) -> None:
        names = [name for name, config in caller_machine.machine_refs.items() if config is target_config]
        name = names[0] if names else str(target_config.get("data", {}).get("name"))
        await launch(self._session.desk(), self._session.origin, name, input_data, execution_id, caller_machine.execution_id)

    async def invoke(
        self, caller_machine: Any, target_config: dict[str, Any], input_data: dict[str, Any], execution_id: str | None = None
    ) -> dict[str, Any]:
        """Run it here and wait."""
        made = FlatMachine(
            config_dict=target_config,
            hooks_registry=caller_machine.hooks_registry,
            invoker=self,
            _config_dir=caller_machine._config_dir,  # noqa: SLF001 - the package's own invokers read it too
            _execution_id=execution_id,
            _parent_execution_id=caller_machine.execution_id,
        )
        output: dict[str, Any] = await made.execute(input=input_data)
        return output


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m drumbeat.adapters.flatmachines", description="Run a FlatMachines machine on Drumbeat's stores."
    )
    made.add_argument("--config", "-c", type=Path, help="the machine's file (YAML or JSON)")
    made.add_argument("--machine", "-m", help="the machine's name: inside --config, beside it, or in this folder")
    made.add_argument("--input", "-i", default="{}", help="its input, as JSON")
    made.add_argument("--execution-id", "-e")
    made.add_argument("--parent-id", "-p")
    made.add_argument("--max-steps", type=int, default=1000)
    made.add_argument("--machines", action="append", default=[], metavar="NAME=FILE", help="a machine that states name")
    made.add_argument(
        "--hooks",
        action="append",
        default=[],
        metavar="NAME=MODULE:FACTORY",
        help="a hook that states name; or NAME=FILE.py:FACTORY",
    )
    made.add_argument(
        "--start-workers",
        metavar="POOL",
        help="start as many workers that run the machine as this pool's queue is worth, and leave",
    )
    made.add_argument("--max-workers", type=int, default=10, help="with --start-workers: how many there may be in all")
    made.add_argument(
        "--successors",
        type=int,
        metavar="N",
        help="when the machine is over, start others like it for the jobs left, N at most in all",
    )
    made.add_argument("--store", help="the store's URL; else DRUMBEAT_STORE, else drumbeat.toml")
    made.add_argument("--verbose", "-v", action="store_true")
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Workers to be started instead of running the machine here."""

    pool_id: str
    cap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How the runner goes about it."""

    verbose: bool = False
    start: Start | None = None


def read_arguments(arguments: Sequence[str] | None) -> tuple[Launch, Settings, Manner]:
    """Raises InvalidInput with the flag named."""
    given = parser().parse_args(arguments)
    content = read_json(given.input, "--input")
    if not isinstance(content, dict):
        raise InvalidInput(f"expected --input to be a JSON object, got {shown(content)}")
    wanted = Launch(
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
    start = None if given.start_workers is None else Start(pool_id=given.start_workers, cap=given.max_workers)
    return wanted, load_settings(os.environ, store=given.store), Manner(verbose=given.verbose, start=start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the output as JSON, and answer with the exit code: 0, or 1 when the machine or its arguments failed."""
    try:
        wanted, settings, manner = read_arguments(arguments)
        with logging_to_stderr(logging.DEBUG if manner.verbose else logging.WARNING), _nothing_logged_to_stdout():
            output = asyncio.run(_until_told_to_stop(wanted, settings, manner.start))
    except DrumbeatError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    except asyncio.CancelledError:
        sys.stderr.write("told to stop; its jobs are given back\n")
        return 0
    except Exception as exc:
        log.exception("the machine failed")
        sys.stderr.write(f"{type(exc).__name__}: {exc}\n")
        return 1
    sys.stdout.write(json.dumps(output, indent=2, default=str) + "\n")
    return 0


def log_to_stderr() -> list["logging.StreamHandler[Any]"]:
    """For a program to call at its start: FlatMachines logs to standard output, which is for a machine's output.

    Answers with the handlers that now write to standard error.
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


async def _until_told_to_stop(wanted: Launch, settings: Settings, start: Start | None) -> dict[str, Any]:
    task = asyncio.current_task()
    assert task is not None
    with on_stop_signals(task.cancel, signal.SIGTERM):
        if start is not None:
            return await start_workers(wanted, start.pool_id, start.cap, settings=settings)
        return await run_machine(wanted, settings=settings)


def _pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for name, mark, value in pairs:
        if not (name and mark and value):
            raise InvalidInput(f"expected {flag} NAME=…, got {name + mark + value!r}")
    return {name: value for name, _, value in pairs}
