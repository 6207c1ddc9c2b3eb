"""The base of the control plane: settings, the store, a clock, and the spawners made from them."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from drumbeat.core.clock import Clock
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.core.worker import ExitCode
from drumbeat.settings import STATE_DIR_VARIABLE, Settings, store_name
from drumbeat.spawn.interface import Spawner
from drumbeat.spawn.private import private_folder as private_folder
from drumbeat.store import Store

if TYPE_CHECKING:
    from drumbeat.composition.engine_kinds import NamedEngine
    from drumbeat.composition.engines import Engines
    from drumbeat.composition.scoped_engines import ScopedSpawner
    from drumbeat.pool.plugins import PoolPlugins
    from drumbeat.spawn.fork_client import ForkConnector
    from drumbeat.spawn.local import LocalSpawner

TRIGGER_FILES = (Path("triggers.yml"), Path("trigger_registry.yml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerArguments:
    """The arguments of ``drumbeat worker``: the pool or run, the worker, its number in the group, and the group's size."""

    run_id: str
    worker_id: str
    worker_group_id: int
    worker_group_count: int

    def __post_init__(self) -> None:
        if not 0 <= self.worker_group_id < self.worker_group_count:
            raise InvalidInput(
                f"expected --worker-group-id to be at least 0 and less than --worker-group-count ({self.worker_group_count}), "
                f"got {self.worker_group_id}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """The counts of attempts and jobs of a worker that has exited, and its exit code."""

    worker_id: str
    code: ExitCode
    ended: int = 0  #: attempts that ended: done, failed, suspended, cancelled or returned unfinished
    finished: int = 0  #: jobs that were done
    failed: int = 0
    suspended: int = 0  #: jobs that sleep or wait for an event


class ControlPlaneBase:
    """Holds the settings, store and clock of this process, and makes spawners (which start workers) from them."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock
        self.forks: ForkConnector | None = None  #: the connection to this process's own fork server, if it has one

    @property
    def worker_environment(self) -> Mapping[str, str]:
        """Return the environment variables by which a child process finds the same store and state folder."""
        return {**self.settings.for_children(), STATE_DIR_VARIABLE: str(self.settings.state_dir)}

    def local_spawner(
        self, *, survive: bool = False, engine: "NamedEngine | None" = None, secrets: Mapping[str, str] | None = None
    ) -> "LocalSpawner":
        """Return a spawner that starts workers on this machine, on the same store. Raises InvalidSettings.

        With ``survive``, the workers outlive this process. For an ``engine`` other than ``local``, the files of its
        workers are in a separate folder. ``secrets``: variables that the workers get even if they are credentials of engines.
        """
        from drumbeat.spawn.fork_client import SocketConnector
        from drumbeat.spawn.inherited import engine_credentials
        from drumbeat.spawn.local import LocalSpawner
        from drumbeat.spawn.state_dir import folder_of

        state_dir = self.settings.state_dir
        check_state_dir(state_dir)
        engine = engine or self._default_engine
        path = state_dir if engine is None or engine.name == DEFAULT_ENGINE else state_dir / "engines" / engine.name
        return LocalSpawner(
            folder_of(path, store_name(self.settings.store)),
            {**self.worker_environment, **(secrets or {})},
            survive=survive,
            clock=self.clock,
            forks=self.forks or SocketConnector(state_dir.resolve()),
            name=DEFAULT_ENGINE if engine is None else engine.name,
            settings=None if engine is None else engine.settings,
            credentials=engine_credentials(self.settings.engines),
        )

    @property
    def _default_engine(self) -> "NamedEngine | None":
        """The engine ``local`` if a settings file has settings for it; None if not, because ``local`` needs no settings."""
        return self.engines.get(DEFAULT_ENGINE) if DEFAULT_ENGINE in self.settings.engines else None

    @cached_property
    def engines(self) -> "Engines":
        """The engines (named places where workers run) of this process's settings."""
        from drumbeat.composition.engines import Engines

        return Engines(self)

    def spawner(self, engines: str) -> "Spawner | ScopedSpawner":
        """Return a spawner for one engine, or for several, such as ``a,b``. Its workers outlive this process.

        Raises InvalidSettings, MissingExtra."""
        if engines == DEFAULT_ENGINE:
            return self.local_spawner(survive=True)
        return self.engines.open(engines)

    @cached_property
    def plugins(self) -> "PoolPlugins":
        """The middleware and the storage of large payloads and results. Raises InvalidInput, InvalidSettings, MissingExtra."""
        from drumbeat.composition.plugins import open_plugins

        return open_plugins(self.settings, self.store, self.clock)

    async def tidy(self) -> None:
        """Delete some rows past their retention and some unneeded large values, unless another process has just done so."""
        from drumbeat.runtime.retention import Housekeeping

        await Housekeeping(self.store, self.settings.retention, self.clock, process_name()).tidy()
        if self.settings.pool.large is not None:
            from drumbeat.composition.plugins import sweep_large_values

            await sweep_large_values(self.plugins.large, process_name())


def check_state_dir(folder: Path) -> None:
    """Raise InvalidSettings if the state folder cannot be created or written to."""
    try:
        private_folder(folder)
    except OSError as exc:
        raise InvalidSettings(f"cannot write to the state folder {folder}: {exc.strerror}; set {STATE_DIR_VARIABLE}") from exc
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidSettings(f"cannot write to the state folder {folder}: permission denied; set {STATE_DIR_VARIABLE}")


def process_name() -> str:
    """Return a name that identifies this process (host, process id, random part); each call returns a new one."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"


def triggers_file() -> Path | None:
    """Return the triggers file in the current folder (triggers.yml or trigger_registry.yml); None if there is none."""
    return next((file for file in TRIGGER_FILES if file.is_file()), None)
