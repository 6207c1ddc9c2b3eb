"""Engines: named places where workers run. Finds them in the settings, checks them, and makes spawners for them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from drumbeat.composition.engine_kinds import KINDS, EngineBase, EngineReport, NamedEngine
from drumbeat.composition.scoped_engines import ScopedSpawner
from drumbeat.core.engine import EngineFacts, engine_names, unreachable_store
from drumbeat.core.errors import DrumbeatError, InvalidSettings
from drumbeat.runtime.store_id import StoreId, find_store_id
from drumbeat.settings import Settings, public_url, store_name
from drumbeat.spawn.inherited import withheld_names
from drumbeat.spawn.interface import Spawner

if TYPE_CHECKING:
    pass

_LOCAL_STORES = frozenset({"sqlite", "memory"})  #: kinds of stores that only this machine can reach
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "", None})
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
        """Return those of the engines (``a,b``) whose workers run on this machine, in the same form; empty if none do."""
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

    def open(
        self, engines: str, environment: Mapping[str, str] | None = None, here: Mapping[str, str] | None = None
    ) -> Spawner | ScopedSpawner:
        """Return a spawner for one engine or for several, of which the first is preferred. Workers outlive this process.

        ``environment``: more variables for the workers; ``here``: only for those on this machine. Raises InvalidSettings,
        MissingExtra."""
        found = self.find(engines)
        self.check_reach(engines)
        make = partial(self._together, found, environment or {}, here or {})
        spawner = make(StoreId(value=""))
        if not any(each.kind.is_scoped for each in found):
            return spawner
        return ScopedSpawner(self.store_id, make, spawner.traits)

    async def store_id(self) -> StoreId:
        """Return the id of the store, by which engines tell its workers from those of other stores."""
        if self._store_id is None or self._store_id.older:
            self._store_id = await find_store_id(self._base.store)
        return self._store_id

    def _together(
        self, engines: Sequence[NamedEngine], environment: Mapping[str, str], here: Mapping[str, str], store: StoreId
    ) -> Spawner:
        more = {True: environment, False: {**environment, **here}}
        spawners = [self._spawner(each, more[each.kind.elsewhere], store.value) for each in engines]
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
