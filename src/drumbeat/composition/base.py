"""What every part of the composition root needs: settings, the store, a clock, and spawners."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.core.worker import ExitCode
from drumbeat.extras import part
from drumbeat.settings import STATE_DIR_VARIABLE, Settings, store_name
from drumbeat.spawn.interface import Spawner
from drumbeat.spawn.private import private_folder
from drumbeat.store import Store

if TYPE_CHECKING:
    from drumbeat.spawn.fork_client import Door
    from drumbeat.spawn.local import LocalSpawner

TRIGGER_FILES = (Path("triggers.yml"), Path("trigger_registry.yml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerArguments:
    """The arguments of a worker's command line."""

    run_id: str
    worker_id: str
    worker_group_id: int
    worker_group_count: int

    def __post_init__(self) -> None:
        if not 0 <= self.worker_group_id < self.worker_group_count:
            raise InvalidInput(
                f"expected 0 ≤ --worker-group-id < --worker-group-count, "
                f"got {self.worker_group_id} and {self.worker_group_count}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """What a job worker did before it exited."""

    worker_id: str
    code: ExitCode
    ended: int = 0  #: attempts that ended: finished, failed, cancelled or given back
    finished: int = 0  #: jobs that are done
    failed: int = 0


class Base:
    """Settings, store and clock of this process, and the spawners made from them."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock
        self.forks: Door | None = None  #: the connection to this process's own fork server

    @property
    def worker_environment(self) -> Mapping[str, str]:
        """The variables with which a process started here opens the same store and state folder."""
        return {**self.settings.for_children(), STATE_DIR_VARIABLE: str(self.settings.state_dir)}

    def local_spawner(self, *, survive: bool = False) -> "LocalSpawner":
        """Start workers on this machine, with this store in their environment. Raises InvalidSettings."""
        from drumbeat.spawn.fork_client import SocketDoor
        from drumbeat.spawn.local import LocalSpawner
        from drumbeat.spawn.state_dir import folder_of

        state_dir = self.settings.state_dir
        check_state_dir(state_dir)
        folder, forks = folder_of(state_dir, store_name(self.settings.store)), self.forks or SocketDoor(state_dir.resolve())
        return LocalSpawner(folder, self.worker_environment, survive=survive, clock=self.clock, forks=forks)

    def spawner(self, provider: str) -> Spawner:
        """Start workers at a provider; they outlive this process. Raises InvalidSettings, MissingExtra."""
        if provider == "local":
            return self.local_spawner(survive=True)
        if provider != "runpod":
            raise InvalidSettings(f"expected the provider local or runpod, got {provider!r}")
        if not self.store.traits.networked:
            from drumbeat.fleet.policy_store import unreachable

            raise InvalidSettings(unreachable(self.store.traits.name, provider))
        runpod = part("spawn.runpod", "runpod", "the RunPod spawner")
        settings = runpod.RunPodSettings.from_environment(os.environ)
        environment, folder = self.settings.for_children(), self.settings.state_dir
        spawner: Spawner = runpod.RunPodSpawner(settings, environment, self.clock, state_dir=folder)
        return spawner

    async def tidy(self) -> None:
        """Delete some rows that are older than the retention, unless another process has just done so."""
        from drumbeat.runtime.retention import Housekeeping

        await Housekeeping(self.store, self.settings.retention, self.clock, process_name()).tidy()


def check_state_dir(folder: Path) -> None:
    """Raise InvalidSettings where the state folder cannot be written to."""
    try:
        private_folder(folder)
    except OSError as exc:
        raise InvalidSettings(f"cannot write workers' logs to {folder}: {exc.strerror}; set {STATE_DIR_VARIABLE}") from exc
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidSettings(f"cannot write workers' logs to {folder}: permission denied; set {STATE_DIR_VARIABLE}")


def process_name() -> str:
    """A unique name for this process; each call returns a new one."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"


def triggers_file() -> Path | None:
    """The triggers file in the current folder, under either of its names."""
    return next((file for file in TRIGGER_FILES if file.is_file()), None)
