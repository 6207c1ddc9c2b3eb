"""Engines: named places where workers run. Finds them in the settings, checks them, and makes spawners for them."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from drumbeat.composition.engine_settings import read_fields, read_settings
from drumbeat.composition.scoped_engines import ScopedSpawner
from drumbeat.core.clock import Clock
from drumbeat.core.engine import EngineFacts, engine_names, unreachable_store
from drumbeat.core.errors import DrumbeatError, InvalidSettings
from drumbeat.extras import import_part
from drumbeat.runtime.store_id import StoreId, find_store_id
from drumbeat.settings import Settings, public_url, store_name
from drumbeat.spawn.inherited import credentials_of, withheld_names
from drumbeat.spawn.interface import Spawner
from drumbeat.store import Store

if TYPE_CHECKING:
    from drumbeat.spawn.local import LocalSpawner

_LOCAL_STORES = frozenset({"sqlite", "memory"})  #: kinds of stores that only this machine can reach
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "", None})


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
_WITHOUT_NAMING = ("local", "runpod")  #: engines, each with the same name as its kind, that exist without a settings file


class Engines:
    """The engines in the settings of this process, and ``local`` and ``runpod``, which exist even without settings."""

    def __init__(self, base: EngineBase) -> None:
        self._base = base
        self._store_id: StoreId | None = None

    @cached_property
    def refused(self) -> Mapping[str, str]:
        """The engines in settings files whose kind is wrong, each with a message. The other engines can still be used."""
        tables = self._base.settings.engines.items()
        return {name: problem for name, table in tables if (problem := _kind_problem(name, table["kind"])) is not None}

    @cached_property
    def _named(self) -> Mapping[str, NamedEngine]:
        usual = {name: NamedEngine(name=name, kind=KINDS[name]) for name in _WITHOUT_NAMING}
        folders = self._base.settings.engine_folders
        named = {**usual, **{name: _engine(name, table, folders.get(name, Path())) for name, table in self._tables.items()}}
        return {name: engine for name, engine in named.items() if name not in self.refused}

    @property
    def _tables(self) -> Mapping[str, Mapping[str, Any]]:
        return {name: table for name, table in self._base.settings.engines.items() if name not in self.refused}

    def list(self) -> Sequence[NamedEngine]:
        """Return the usable engines: those in settings files, ``local``, and ``runpod`` if a RUNPOD_ variable is set."""
        is_set = any(name.startswith("RUNPOD_") for name in os.environ)
        hidden = set() if is_set or "runpod" in self._base.settings.engines else {"runpod"}
        return [engine for name, engine in self._named.items() if name not in hidden]

    def get(self, name: str) -> NamedEngine:
        """Return an engine by its name. Raises InvalidSettings for an unknown name, or if its kind is wrong."""
        if name in self.refused:
            raise InvalidSettings(self.refused[name])
        engine = self._named.get(name)
        if engine is None:
            known = ", ".join(each.name for each in self.list())
            raise InvalidSettings(
                f"expected the name of an engine ({known}), got {name!r}; define it in engines.toml: [engines.{name}]"
            )
        return engine

    def find(self, engines: str) -> Sequence[NamedEngine]:
        """Return the engines in a list such as ``gpu-cluster,k8s``. Raises InvalidSettings."""
        return [self.get(name) for name in engine_names(engines)]

    def knows(self, engines: str) -> bool:
        """Whether this process has the settings and environment variables of all these engines.

        A worker on this machine lacks the credentials that the process which started it has withheld."""
        found, withheld = [self._named.get(name) for name in engine_names(engines)], withheld_names(os.environ)
        return all(
            each is not None and all(map(os.environ.get, each.kind.variables)) and withheld.isdisjoint(each.credentials)
            for each in found
        )

    def facts(self, engines: str) -> EngineFacts:
        """Return where these engines run workers and whether they cost money. Raises InvalidSettings for an unknown name."""
        found = self.find(engines)
        return EngineFacts(
            elsewhere=self.run_elsewhere(engines),
            is_free=not any(each.kind.is_rented or self._costs(each) for each in found),
            is_rented=any(each.kind.is_rented for each in found),
        )

    def run_elsewhere(self, engines: str) -> bool:
        """Whether workers of one of these engines run on other machines. Raises InvalidSettings for an unknown name."""
        return any(each.kind.elsewhere for each in self.find(engines))

    def on_this_machine(self, engines: str) -> str:
        """Return those of several engines whose workers run on this machine, such as ``a,b``; empty if none of them does."""
        known = {name: self._named[name] for name in engine_names(engines) if name in self._named}
        return ",".join(name for name, engine in known.items() if not engine.kind.elsewhere)

    def check_reach(self, engines: str) -> None:
        """Raise InvalidSettings if workers of these engines run on other machines but cannot reach the store over a network."""
        store = self._base.store.traits
        if self.run_elsewhere(engines) and not store.networked:
            raise InvalidSettings(unreachable_store(store.name, engines, public_url(self._base.settings.store)))

    def reach_warning(self, engines: str) -> str | None:
        """Return a warning if workers run on other machines and the store's URL has the host localhost; None if not."""
        parts = urlsplit(self._base.settings.store)
        if not self._base.store.traits.networked or not self.run_elsewhere(engines) or parts.hostname not in _LOOPBACK:
            return None
        return (
            f"the store's URL names {parts.hostname or 'no host'}, which is another machine for the workers of {engines}; "
            f"if they do not run on this machine, use this machine's name in DRUMBEAT_STORE"
        )

    def open(self, engines: str, environment: Mapping[str, str] | None = None) -> Spawner | ScopedSpawner:
        """Return a spawner for one engine or for several, of which the first is preferred. Workers outlive this process.

        ``environment``: more variables for the workers. Raises InvalidSettings, MissingExtra."""
        found = self.find(engines)
        self.check_reach(engines)
        make = partial(self._together, found, environment or {})
        spawner = make(StoreId(value=""))
        if not any(each.kind.is_scoped for each in found):
            return spawner
        return ScopedSpawner(self.store_id, make, spawner.traits)

    async def store_id(self) -> StoreId:
        """Return the id of the store, by which engines tell its workers from those of other stores."""
        if self._store_id is None or self._store_id.older:
            self._store_id = await find_store_id(self._base.store)
        return self._store_id

    def _together(self, engines: Sequence[NamedEngine], environment: Mapping[str, str], store: StoreId) -> Spawner:
        spawners = [self._spawner(each, environment, store.value) for each in engines]
        if len(spawners) == 1 and not store.older:
            return spawners[0]
        from drumbeat.spawn.group import EngineGroup
        from drumbeat.spawn.older import OlderWorkers

        former = store_name(self._base.settings.store)
        scoped = [each for each in engines if each.kind.is_scoped and store.older]
        return EngineGroup(spawners, [OlderWorkers(self._spawner(each, {}, former), store.older) for each in scoped])

    def _spawner(self, engine: NamedEngine, environment: Mapping[str, str], store: str = "") -> Spawner:
        variables = {**self._base.settings.for_children(), **environment}
        return engine.kind.make(engine.kind.load(), engine, self._base, variables, store)

    def _costs(self, engine: NamedEngine) -> bool:
        price = getattr(engine.settings, "price_per_hour", None)
        return bool(self._spawner(engine, {}).traits.price_per_hour if price is None else price)

    def reports(self) -> Sequence[EngineReport]:
        """Return a report on each engine, without contacting it; engines of an unknown kind are included."""
        tables = self._base.settings.engines
        wrong = [
            EngineReport(name=name, kind=tables[name]["kind"], source="settings", problem=problem)
            for name, problem in self.refused.items()
        ]
        return [*(self.report(each) for each in self.list()), *wrong]

    def report(self, engine: NamedEngine) -> EngineReport:
        """Return a report on an engine without contacting it: its traits and price, or why it cannot be used."""
        from dataclasses import asdict

        about = EngineReport(name=engine.name, kind=engine.kind.name, source=engine.source)
        try:
            traits = self._spawner(engine, {}).traits
        except DrumbeatError as exc:
            return replace(about, problem=str(exc))
        hidden = {"name", "asked_with", "price_per_hour"}
        shown = {name: value for name, value in asdict(traits).items() if name not in hidden}
        return replace(about, price_per_hour=traits.price_per_hour, traits=shown)


def check_store_url(settings: Settings, engines: str) -> None:
    """Raise InvalidSettings if workers of these engines run on other machines but cannot reach the store.

    Checks the store's URL only, so that a wrong store is not opened and created.
    """
    scheme = settings.store.partition(":")[0]
    kinds = [KINDS.get(settings.engines.get(name, {}).get("kind", name)) for name in engine_names(engines)]
    if scheme in _LOCAL_STORES and any(kind is not None and kind.elsewhere for kind in kinds):
        raise InvalidSettings(unreachable_store(scheme, engines, public_url(settings.store)))


def _kind_problem(name: str, kind: str) -> str | None:
    """Return a message that says what is wrong with a named engine's kind; None if it is valid."""
    if kind not in KINDS:
        return f"expected the kind of engine {name!r} to be one of {', '.join(KINDS)}, got {kind!r}; see: drumbeat engine kinds"
    if name in _WITHOUT_NAMING and kind != name:
        return f"expected the engine {name!r} to be of kind {name!r}, got {kind!r}; use another name"
    return None


def _engine(name: str, table: Mapping[str, Any], folder: Path) -> NamedEngine:
    settings = {key: value for key, value in table.items() if key != "kind"}
    return NamedEngine(name=name, kind=KINDS[table["kind"]], table=settings, source="settings", folder=folder)
