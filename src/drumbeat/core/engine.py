"""Names of engines. An engine is a place where workers run, such as this machine, a cluster, or a cloud account."""

import re
from dataclasses import dataclass

from drumbeat.core.errors import InvalidSettings

DEFAULT_ENGINE = "local"
ENGINE_IN_POLICY = "provider"  #: the key in a pool's policy that names its engine
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MOST_NAMES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Where the engines of a fleet policy run workers, and whether the workers cost money; used to check the policy."""

    elsewhere: bool  #: whether workers may run on another machine, which cannot reach a store in a local file
    is_free: bool  #: whether no worker has a price
    is_rented: bool = False  #: whether a worker is a rented machine, which takes minutes to start


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapacity:
    """How many workers the engines of a benchmark can run at once, and whether they run on other machines."""

    engines: str = DEFAULT_ENGINE
    slots: int | None = None  #: the most workers at once; None: no limit, or not known
    elsewhere: bool = False

    @property
    def text(self) -> str:
        """The engines and the number of their slots as text, such as ``engine gpu has 4 slots``."""
        slots = "" if self.slots is None else f" has {self.slots} {'slot' if self.slots == 1 else 'slots'}"
        return f"engine {self.engines}{slots}"


def engine_names(engines: str) -> tuple[str, ...]:
    """Return the names in a list such as ``gpu-cluster,k8s``, in order of preference. Raises InvalidSettings.

    Spaces around a name do not matter."""
    names = _split(engines)
    for name in names:
        check_engine_name(name)
    if len(set(names)) < len(names):
        raise InvalidSettings(f"expected each engine once, got {engines!r}")
    if len(names) > _MOST_NAMES:
        raise InvalidSettings(f"expected at most {_MOST_NAMES} engines, got {len(names)}")
    return names


def check_engine_name(name: str) -> None:
    """Raise InvalidSettings if a text cannot be the name of an engine, for example because it contains a space."""
    if not _NAME.fullmatch(name):
        raise InvalidSettings(
            f"expected the name of an engine, or several separated by commas, each of letters, digits, '-', '_' and '.'; "
            f"got {name[:80]!r}"
        )


def covers(engines: str, provider: str | None) -> bool:
    """Whether ``engines`` includes all engines that a worker's row names (``provider``); true if either is unknown (empty)."""
    return not provider or not engines or provider == engines or set(_split(provider)) <= set(_split(engines))


def _split(engines: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in engines.split(","))


def silent_engine(engines: str, error: str) -> str:
    """Return text such as ``engine gpu does not answer (ERROR)``; for several engines: ``one of the engines …``."""
    subject = f"one of the engines {engines}" if "," in engines else f"engine {engines}"
    return f"{subject} does not answer ({error})"


def unreachable_store(store: str, engines: str, url: str | None = None) -> str:
    """Return the error message for a store (by kind, such as ``sqlite``) that workers of these engines cannot reach."""
    source = url if url is not None and url.startswith("sqlite:") else "sqlite:///FILE"
    move = (
        f"copy it with: drumbeat store copy {source} postgresql://USER@HOST/DATABASE; "
        f"then use the copy with: export DRUMBEAT_STORE=postgresql://USER@HOST/DATABASE"
        if store == "sqlite"
        else "use PostgreSQL or Redis: export DRUMBEAT_STORE=postgresql://USER@HOST/DATABASE"
    )
    return (
        f"expected a store that workers at {engines} can reach, got {store}, which only this machine can reach; {move} "
        f"(or run the workers on this machine: --engine {DEFAULT_ENGINE})"
    )
