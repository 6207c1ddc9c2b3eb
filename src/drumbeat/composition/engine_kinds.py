"""The kinds of engines that there are, and an engine with the name and the settings that a user gave it."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from drumbeat.composition.engine_settings import read_fields, read_settings
from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError
from drumbeat.extras import import_part
from drumbeat.settings import Settings
from drumbeat.spawn.inherited import credentials_of
from drumbeat.spawn.interface import Spawner
from drumbeat.store import Store

if TYPE_CHECKING:
    from drumbeat.spawn.local import LocalSpawner

#: makes a spawner; arguments: the package of the engine's kind, the engine, the control plane, variables for its workers, and
#: the name by which the engine tells the store from others
MakeSpawner = Callable[[Any, "NamedEngine", "EngineBase", Mapping[str, str], str], Spawner]


class EngineBase(Protocol):
    """The part of the control plane that engines need: settings, store, clock, and the spawner for this machine."""

    settings: Settings
    store: Store
    clock: Clock

    def local_spawner(
        self, *, survive: bool = False, engine: "NamedEngine | None" = None, secrets: Mapping[str, str] | None = None
    ) -> "LocalSpawner": ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """A kind of engine: which package starts its workers, what must be installed for it, and how its spawner is made."""

    name: str
    summary: str
    module: str  #: the package with its settings class and its spawner, below ``drumbeat``
    settings: str  #: the settings class in that package
    make: "MakeSpawner"
    extra: str | None = None  #: the extra of pip that it needs
    programs: tuple[str, ...] = ()  #: programs that must be installed here
    variables: tuple[str, ...] = ()  #: environment variables that must be set
    elsewhere: bool = True  #: whether its workers run on other machines
    is_scoped: bool = True  #: whether its workers are named after the store
    is_rented: bool = False  #: whether a worker is a rented machine, which takes minutes to start

    def load(self) -> Any:
        """Import the package of this kind. Raises MissingExtra."""
        if self.extra is None:
            return import_module(f"drumbeat.{self.module}")
        return import_part(self.module, self.extra, f"the engine kind {self.name}")

    @property
    def settings_class(self) -> type[Any]:
        found: type[Any] = getattr(self.load(), self.settings)
        return found

    @property
    def problem(self) -> str | None:
        """Why this kind cannot be used here: a missing extra, program or variable; None if it can."""
        try:
            self.load()
        except DrumbeatError as exc:
            return str(exc)
        missing = [each for each in self.programs if shutil.which(each) is None]
        if missing:
            return f"expected the program {missing[0]} in PATH, got none; install it, or run drumbeat where it is"
        unset = [each for each in self.variables if not os.environ.get(each)]
        return f"expected the environment variable {unset[0]}, got none; set it" if unset else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEngine:
    """A named engine: its kind, and its table of settings as it was read from a file."""

    name: str
    kind: EngineKind
    table: Mapping[str, Any] = field(default_factory=dict)
    source: str = "always there"
    folder: Path = Path()  #: that of the file, where relative paths begin

    @property
    def subject(self) -> str:
        return f"engine {self.name} (kind {self.kind.name})"

    @property
    def credentials(self) -> frozenset[str]:
        """The names of the environment variables with its credentials."""
        return credentials_of(self.kind.name, self.table)

    @property
    def settings(self) -> Any:
        """The engine's settings, checked, as the settings class of its kind. Raises InvalidSettings, MissingExtra."""
        return read_settings(self.kind.settings_class, self.table, self.subject, self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """An engine as ``drumbeat engine list`` shows it; ``problem`` says why it cannot be used."""

    name: str
    kind: str
    source: str
    price_per_hour: float | None = None
    traits: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def _scoped(spawner: str) -> "MakeSpawner":
    """Return a function that creates a spawner of the class ``spawner``; its ``scope`` identifies the store and the engine."""

    def make(package: Any, engine: NamedEngine, base: EngineBase, environment: Mapping[str, str], store: str) -> Spawner:
        scope = f"{store}#{engine.name}"
        made: Spawner = getattr(package, spawner)(engine.settings, environment, scope, base.clock, name=engine.name)
        return made

    return make


def _local(local: Any, engine: NamedEngine, base: EngineBase, environment: Mapping[str, str], store: str) -> Spawner:
    return base.local_spawner(survive=True, engine=engine, secrets=environment)


def _runpod(runpod: Any, engine: NamedEngine, base: EngineBase, environment: Mapping[str, str], store: str) -> Spawner:
    given = read_fields(runpod.RunPodSettings, engine.table, engine.subject)
    settings = runpod.RunPodSettings.from_environment(os.environ, given)
    if engine.name != "runpod" and "prefix" not in given:
        settings = replace(settings, prefix=f"{settings.prefix}-{engine.name}")
    spawner: Spawner = runpod.RunPodSpawner(
        settings, environment, base.clock, state_dir=base.settings.state_dir, name=engine.name
    )
    return spawner


#: every kind of engine, by name
KINDS: Mapping[str, EngineKind] = {
    kind.name: kind
    for kind in (
        EngineKind(
            name="local",
            summary="processes on this machine",
            module="spawn.local",
            settings="LocalSettings",
            make=_local,
            elsewhere=False,
            is_scoped=False,
        ),
        EngineKind(
            name="docker",
            summary="containers of a Docker daemon",
            module="spawn.docker",
            settings="DockerSettings",
            make=_scoped("DockerSpawner"),
            extra="docker",
        ),
        EngineKind(
            name="kubernetes",
            summary="Jobs of a Kubernetes cluster",
            module="spawn.kubernetes",
            settings="KubernetesSettings",
            make=_scoped("KubernetesSpawner"),
            extra="kubernetes",
        ),
        EngineKind(
            name="slurm",
            summary="jobs of a Slurm cluster",
            module="spawn.slurm",
            settings="SlurmSettings",
            make=_scoped("SlurmSpawner"),
            programs=("sbatch", "squeue", "scancel", "sinfo"),
        ),
        EngineKind(
            name="ray",
            summary="jobs of a Ray cluster",
            module="spawn.ray",
            settings="RaySettings",
            make=_scoped("RaySpawner"),
            extra="ray",
        ),
        EngineKind(
            name="ssh",
            summary="processes on Linux hosts that are reached by SSH",
            module="spawn.ssh",
            settings="SshSettings",
            make=_scoped("SshSpawner"),
            extra="ssh",
        ),
        EngineKind(
            name="spcs",
            summary="job services of Snowflake (Snowpark Container Services)",
            module="spawn.spcs",
            settings="SpcsSettings",
            make=_scoped("SpcsSpawner"),
            extra="snowflake",
        ),
        EngineKind(
            name="runpod",
            summary="pods of a RunPod account",
            module="spawn.runpod",
            settings="RunPodSettings",
            make=_runpod,
            is_scoped=False,
            extra="runpod",
            variables=("RUNPOD_API_KEY",),
            is_rented=True,
        ),
    )
}
