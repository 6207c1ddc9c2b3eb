"""Reads and checks the settings of a process, from drumbeat.toml, engines.toml and environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from drumbeat.core.engine import check_engine_name
from drumbeat.core.errors import InvalidSettings
from drumbeat.core.plain import short_repr
from drumbeat.core.pool_settings import NO_POOL_SETTINGS, PoolSettings, read_pool_settings
from drumbeat.core.retention import Retention, read_retention, write_retention
from drumbeat.core.store_url import PASSWORD_VARIABLE, POSTGRES_VARIABLES, has_secret, is_postgres, reads_password
from drumbeat.user_path import user_path

STORE_VARIABLE = "DRUMBEAT_STORE"
STATE_DIR_VARIABLE = "DRUMBEAT_STATE_DIR"
DEFAULT_FILE = Path("drumbeat.toml")
DEFAULT_STORE = "sqlite:///drumbeat.db"

RETENTION_VARIABLE = "DRUMBEAT_RETENTION"
ENGINES_VARIABLE = "DRUMBEAT_ENGINES"
_ENGINES_EXPECTED = f"expected the path of an engines file in {ENGINES_VARIABLE}"
ENGINES_FILE = "engines.toml"  #: names engines, beside drumbeat.toml; DRUMBEAT_ENGINES may name another file
_ENGINES = "engines"  #: the table of engines in a settings file
_POOL = "pool"  #: the table of settings of pools of jobs
_LANGUAGE_MODEL = "language_model"  #: the table of the language model that explains runs
LANGUAGE_MODEL_VARIABLES = {"url": "DRUMBEAT_LANGUAGE_MODEL_URL", "model": "DRUMBEAT_LANGUAGE_MODEL"}

_SAME_SCHEME = {"postgres": "postgresql"}
_DEFAULT_PORTS = {"postgresql": 5432, "redis": 6379, "rediss": 6379}
_PLACE_OPTIONS = frozenset({"host", "port", "dbname", "prefix", "schema"})  #: options of a store's URL that say where it is

_VARIABLES: Mapping[str, str] = {
    "store": STORE_VARIABLE,
    "state_dir": STATE_DIR_VARIABLE,
    "retention": RETENTION_VARIABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a process: which store to use, the folder for local state, and how long old rows are kept."""

    store: str = DEFAULT_STORE  #: the store's URL; may hold a password, so it is never logged
    store_password: str | None = None  #: from the environment; Redis and Snowflake use it if their URL has none
    store_in_file: str | None = field(default=None, compare=False)  #: the store's URL in drumbeat.toml, even if another is used
    state_dir: Path = Path(".drumbeat")  #: holds the logs of local workers and other local state
    retention: Retention | None = None  #: how long ended rows are kept, unless a pool's policy says otherwise; None: not set
    engines: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict, hash=False
    )  #: by name: the engine's table, unchecked
    engine_folders: Mapping[str, Path] = field(
        default_factory=dict, hash=False, compare=False
    )  #: by name: the folder of the file with the engine's table; relative paths in the table begin there
    language_model: Mapping[str, Any] = field(
        default_factory=dict, hash=False
    )  #: the table of the language model that explains runs, unchecked; empty: there is none

    pool: PoolSettings = NO_POOL_SETTINGS

    def __repr__(self) -> str:
        return f"Settings(store=…, state_dir={str(self.state_dir)!r})"

    def for_children(self) -> dict[str, str]:
        """Return environment variables that make a process on any machine use this store. They can contain a password."""
        secret = self.store_password if reads_password(self.store) else None
        password = {PASSWORD_VARIABLE: secret} if secret else {}
        return {STORE_VARIABLE: self.store, **password, **self.public_variables()}

    def public_variables(self) -> dict[str, str]:
        """Return the environment variables without secrets for child processes: retention and pool settings, if set."""
        retention = {} if self.retention is None else {RETENTION_VARIABLE: write_retention(self.retention)}
        return {**retention, **self.pool.variables()}

    def shell_variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables in ``environment`` that are settings and contain no secret. A process that starts in the same
        folder, but not from this shell, lacks them: it reads only the settings files."""
        chosen = {name: value for name, value in self.public_variables().items() if environment.get(name)}
        if is_postgres(self.store):
            chosen |= {name: environment[name] for name in POSTGRES_VARIABLES if environment.get(name)}
        named = environment.get(ENGINES_VARIABLE)
        return chosen | ({ENGINES_VARIABLE: str(_engines_path(named).absolute())} if named else {})


def load_settings(environment: Mapping[str, str], file: Path = DEFAULT_FILE, **given: str | None) -> Settings:
    """Read the settings: arguments override the environment, which overrides the file. Raises InvalidSettings."""
    chosen = _from_file(file)
    engines, engine_folders = _engines(chosen.pop(_ENGINES, {}), file, environment)
    language_model = _language_model(chosen.pop(_LANGUAGE_MODEL, {}), file, environment)
    pool = read_pool_settings(chosen.pop(_POOL, {}), str(file), environment)
    store_in_file = chosen.get("store")
    chosen |= {name: environment[variable] for name, variable in _VARIABLES.items() if environment.get(variable)}
    chosen |= {name: value for name, value in given.items() if value is not None}
    state_dir = user_path(
        chosen.get("state_dir", ".drumbeat"), f"expected the path of a folder in state_dir or {STATE_DIR_VARIABLE}"
    )
    return Settings(
        store=absolute(chosen.get("store", DEFAULT_STORE)),
        store_password=environment.get(PASSWORD_VARIABLE) or None,
        store_in_file=store_in_file,
        state_dir=state_dir.absolute(),
        retention=read_retention(chosen["retention"]) if "retention" in chosen else None,
        engines=engines,
        engine_folders=engine_folders,
        language_model=language_model,
        pool=pool,
    )


def absolute(store: str) -> str:
    """Make the path in a SQLite URL absolute, so that it means the same file in any working directory.

    Raises InvalidSettings if the path begins with the name of a user who does not exist.
    """
    if not store.startswith("sqlite:///"):
        return store
    path, mark, options = store.removeprefix("sqlite:///").partition("?")
    if not path:
        return store
    file = user_path(unquote(path), "expected the path of a SQLite file in the store's URL").absolute()
    return f"sqlite:///{quote(str(file))}{mark}{options}"


def store_name(store: str) -> str:
    """Return a name for a store: its URL without user, password and most options. All URLs of a store give the same name."""
    if store.startswith("sqlite:///"):
        return absolute(store).partition("?")[0]
    parts = urlsplit(store)
    scheme = _SAME_SCHEME.get(parts.scheme, parts.scheme)
    port = "" if parts.port in (None, _DEFAULT_PORTS.get(scheme)) else parts.port
    options = [each for each in parts.query.split("&") if each.partition("=")[0] in _PLACE_OPTIONS]
    return f"{scheme}://{parts.hostname or ''}:{port}{_database(scheme, parts)}?{'&'.join(sorted(options))}"


def _database(scheme: str, parts: SplitResult) -> str:
    """Return the path of a store's URL; if it is empty, the path of the database that is then used."""
    if parts.path.strip("/") or "dbname=" in parts.query:
        return parts.path
    return {"redis": "/0", "rediss": "/0", "postgresql": f"/{parts.username or ''}"}.get(scheme, parts.path)


def public_url(store: str) -> str | None:
    """Return a store's URL; None if it contains a password, or a value that might be one."""
    return None if has_secret(store) else store


def _engines(given: Any, file: Path, environment: Mapping[str, str]) -> tuple[dict[str, Mapping[str, Any]], dict[str, Path]]:
    """Return the engines of the settings file (``given``) and of engines.toml or the file that DRUMBEAT_ENGINES names, and the
    folder of each engine's file."""
    named = environment.get(ENGINES_VARIABLE)
    other = _engines_path(named) if named else file.parent / ENGINES_FILE
    if named and not other.is_file():
        raise InvalidSettings(f"{_ENGINES_EXPECTED}, got {named}, which does not exist")
    engines = _checked_engines(given, file)
    folders = dict.fromkeys(engines, file.absolute().parent)
    for name, table in _checked_engines(_engines_in(other), other).items():
        if name in engines:
            raise InvalidSettings(f"expected the engine {name!r} in one file, got it in {file} and in {other}; remove one")
        engines[name] = table
        folders[name] = other.absolute().parent
    return engines, folders


def _engines_path(named: str) -> Path:
    return user_path(named, _ENGINES_EXPECTED)


def _language_model(given: Any, file: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the table of the language model. Environment variables override its values, which are checked on first use."""
    if not isinstance(given, dict):
        raise InvalidSettings(f"expected a table [{_LANGUAGE_MODEL}] in {file}, got {_LANGUAGE_MODEL} = {short_repr(given)}")
    named = LANGUAGE_MODEL_VARIABLES.items()
    return {**given, **{name: environment[variable] for name, variable in named if environment.get(variable)}}


def _engines_in(file: Path) -> Any:
    found = _toml(file)
    for name in found:
        if name != _ENGINES:
            written, meant = _misspelt(name, found[name])
            raise InvalidSettings(f"expected only tables [engines.NAME] in {file}, got {written}; write {meant}")
    return found.get(_ENGINES, {})


def _misspelt(name: str, value: Any) -> tuple[str, str]:
    """Return the misspelt table of an engine as the user wrote it, such as ``[engine.a]``, and the correct ``[engines.a]``."""
    if name == "engine" and isinstance(value, dict):
        inner = next((each for each, table in value.items() if isinstance(table, dict)), None)
        return (f"[engine.{inner}]", f"[engines.{inner}]") if inner is not None else ("[engine]", "[engines.NAME]")
    return repr(name), f"[engines.{name}]"


def _checked_engines(given: Any, file: Path) -> dict[str, Mapping[str, Any]]:
    """Check that each engine has a valid name and a kind. Its other settings are checked when it is used.

    Raises InvalidSettings.
    """
    if not isinstance(given, dict):
        raise InvalidSettings(f"expected tables [engines.NAME] in {file}, got engines = {short_repr(given)}")
    for name, table in given.items():
        check_engine_name(name)
        if not isinstance(table, dict):
            raise InvalidSettings(f"expected a table [engines.{name}] in {file}, got {short_repr(table)}")
        if not isinstance(table.get("kind"), str):
            got = short_repr(table["kind"]) if "kind" in table else "none"
            raise InvalidSettings(
                f'expected the kind of engine {name!r} in {file}, such as kind = "local", got {got}; see: drumbeat engine kinds'
            )
    return dict(given)


def _toml(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InvalidSettings(f"cannot read settings from {file}: {exc.strerror}; fix or remove it") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidSettings(f"expected TOML in {file}, got invalid TOML: {exc}") from exc


def _from_file(file: Path) -> dict[str, Any]:
    found = _toml(file)
    for name, value in found.items():
        if name in (_ENGINES, _LANGUAGE_MODEL, _POOL):
            continue
        if name == "engine":
            written, meant = _misspelt(name, value)
            raise InvalidSettings(f"unknown table {written} in {file}; write {meant}")
        if name not in _VARIABLES:
            known = ", ".join((*_VARIABLES, _ENGINES, _LANGUAGE_MODEL, _POOL))
            raise InvalidSettings(f"unknown setting {name!r} in {file}; expected only {known}")
        if not isinstance(value, str):
            raise InvalidSettings(f"expected the setting {name} in {file} to be text, got {short_repr(value)}")
    return found
