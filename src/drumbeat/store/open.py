"""Opens the store at a URL: SQLite, PostgreSQL, Redis, Snowflake or in memory."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.store_url import PASSWORD_VARIABLE
from drumbeat.store.interface import Store
from drumbeat.user_path import user_path

if TYPE_CHECKING:
    from drumbeat.store.sql.own_transaction import OwnTransactions

_EXPECTED = "sqlite:///FILE, postgresql://USER@HOST/DATABASE, redis://HOST or snowflake://USER@ACCOUNT/DATABASE/SCHEMA"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^:\[\]@]*)(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_LAST_PORT = 65_535
_Readers = Mapping[str, Callable[[str], object]]  #: how the value of each option of a URL is read


def open_store(url: str, *, create: bool = False, check_version: bool = True) -> Store:
    """Return the store at a URL, for use with ``async with``. Raises InvalidSettings if the URL is not supported.

    ``create`` creates a missing file and missing tables; without it, a store without tables is refused. A store with older
    tables is refused even with ``create``: older programs might still use them. ``check_version=False`` skips both checks.
    """
    scheme = _SCHEME.match(url)
    opener = _OPENERS.get(scheme[1].lower()) if scheme else None
    if opener is None:
        given = repr(scheme[0]) if scheme else "a name without a scheme"
        raise InvalidSettings(f"the store's URL: expected {_EXPECTED}, got {given}")
    try:
        parts = urlsplit(url, allow_fragments=False)
    except ValueError:
        raise InvalidSettings(f"the store's URL cannot be parsed; expected {_EXPECTED}") from None
    return opener(parts, create, check_version)


def own_transactions(url: str) -> "OwnTransactions | None":
    """Return an object that pushes and completes jobs of the store at a URL in transactions of the caller; None if the store
    is neither PostgreSQL nor SQLite, or if the URL is invalid."""
    return _own_transactions(url, os.getcwd())


@lru_cache(maxsize=64)
def _own_transactions(url: str, folder: str) -> "OwnTransactions | None":
    from drumbeat.store.sql.own_transaction import PostgresTransactions, SqliteTransactions

    with suppress(InvalidSettings, ValueError):
        parts = urlsplit(url, allow_fragments=False)
        if parts.scheme == "sqlite":
            return SqliteTransactions(Path(folder, _sqlite_path(parts)))
        if parts.scheme in ("postgresql", "postgres"):
            schema = str(_options(parts, {"schema": str}, strict=False).get("schema", "drumbeat"))
            return PostgresTransactions(_postgres_url(parts), schema)
    return None


def _open_sqlite(parts: SplitResult, create: bool, check_version: bool) -> Store:
    from drumbeat.store.sql.sqlite import SqliteDatabase
    from drumbeat.store.sql.store import SqlStore

    path = _sqlite_path(parts)
    options = _options(parts, {"synchronous": str.upper, "busy_timeout": _seconds})
    return SqlStore(SqliteDatabase(path, create=create, **options), create=create, check_version=check_version)  # type: ignore[arg-type]


def _sqlite_path(parts: SplitResult) -> Path:
    if parts.netloc:
        raise InvalidSettings("expected sqlite:///FILE (three slashes), got a host in the store's URL")
    path = unquote(parts.path[1:])
    if not path:
        raise InvalidSettings("expected sqlite:///FILE, got no file in the store's URL")
    return _file_path(path)


def _file_path(text: str) -> Path:
    """Return the path of a file in a store's URL, with the user's home folder in place of ``~``. Raises InvalidSettings."""
    return user_path(text, "expected the path of a file in the store's URL")


def _key_file(text: str) -> str:
    return text and str(_file_path(text))


def _open_postgres(parts: SplitResult, create: bool, check_version: bool) -> Store:
    from drumbeat.store.sql.postgres import PostgresDatabase
    from drumbeat.store.sql.store import SqlStore

    _check_hosts(parts, "postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    options = _options(parts, _POSTGRES_OPTIONS, strict=False)
    url = _postgres_url(parts)
    return SqlStore(PostgresDatabase(url, **options), create=create, check_version=check_version)  # type: ignore[arg-type]


def _postgres_url(parts: SplitResult) -> str:
    """Return the URL for the driver: without the options that only Drumbeat knows, and with whole paths of files."""
    options = [
        (name, str(_file_path(value)) if name in _POSTGRES_FILES else value)
        for name, value in parse_qsl(parts.query)
        if name not in _POSTGRES_OPTIONS
    ]
    return urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))


def _open_redis(parts: SplitResult, create: bool, check_version: bool) -> Store:
    from drumbeat.store.redis.database import RedisDatabase
    from drumbeat.store.redis.store import RedisStore

    _check_hosts(parts, "redis://USER:PASSWORD@HOST:PORT/NUMBER")
    if not re.fullmatch(r"(/[0-9]*)?", parts.path):
        raise InvalidSettings(f"expected a database number after the host in the store's URL, got {parts.path!r}")
    readers = {"prefix": _prefix, "command_timeout": _seconds, "connect_timeout": _seconds}
    options = _options(parts, readers)
    url = urlunsplit((parts.scheme.lower(), parts.netloc, parts.path, "", ""))
    password = None if parts.password else os.environ.get(PASSWORD_VARIABLE)
    database = RedisDatabase(url, password, **options)  # type: ignore[arg-type]
    return RedisStore(database, create=create, check_version=check_version)


def _open_snowflake(parts: SplitResult, create: bool, check_version: bool) -> Store:
    from drumbeat.store.sql.snowflake import SnowflakeDatabase
    from drumbeat.store.sql.snowflake_sign_in import SnowflakeSignIn
    from drumbeat.store.sql.store import SqlStore

    _check_hosts(parts, "snowflake://USER@ACCOUNT/DATABASE/SCHEMA?warehouse=NAME")
    place = re.fullmatch(r"/([A-Za-z_][\w$]*)(?:/([A-Za-z_][\w$]*))?/?", parts.path)
    if not parts.hostname or not parts.username or place is None:
        raise InvalidSettings("expected snowflake://USER@ACCOUNT/DATABASE/SCHEMA?warehouse=NAME in the store's URL")
    signing: _Readers = {"warehouse": str, "role": str, "authenticator": str, "private_key_file": _key_file}
    address: _Readers = {"host": str, "port": _count, "protocol": str}
    readers: _Readers = {"tables": str, "connections": _count, "command_timeout": _seconds, "connect_timeout": _seconds}
    options = _options(parts, {**readers, **signing, **address})
    sign_in = SnowflakeSignIn(
        account=parts.netloc.rpartition("@")[2],
        user=unquote(parts.username),
        secret=unquote(parts.password) if parts.password else os.environ.get(PASSWORD_VARIABLE),
        database=place[1],
        schema=place[2] or "PUBLIC",
        place={name: options[name] for name in address if name in options},
        **{name: str(options[name]) for name in signing if name in options},
    )
    given = {name: options[name] for name in readers if name in options}
    return SqlStore(SnowflakeDatabase(sign_in, **given), create=create, check_version=check_version)  # type: ignore[arg-type]


def _open_memory(parts: SplitResult, create: bool, check_version: bool) -> Store:
    from drumbeat.store.memory import MemoryStore

    return MemoryStore()


_OPENERS: Mapping[str, Callable[[SplitResult, bool, bool], Store]] = {
    "sqlite": _open_sqlite,
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
    "redis": _open_redis,
    "rediss": _open_redis,
    "snowflake": _open_snowflake,
    "memory": _open_memory,
}


_POSTGRES_FILES = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile"})  #: options that name a file
_POSTGRES_OPTIONS: _Readers = {
    "schema": str,
    "connections": lambda text: _count(text),
    "command_timeout": lambda text: _seconds(text),
    "connect_timeout": lambda text: _seconds(text),
}


def _options(parts: SplitResult, known: Mapping[str, Callable[[str], object]], *, strict: bool = True) -> dict[str, object]:
    """Return the options in a URL's query string, each parsed by its function in ``known``. Other options are ignored, or raise
    InvalidSettings if ``strict``."""
    found: dict[str, object] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in known:
            found[name] = _read_option(name, value, known[name])
        elif strict:
            raise InvalidSettings(f"the store's URL has an unknown option {name!r}; expected one of {', '.join(known)}")
    return found


def _read_option(name: str, value: str, reader: Callable[[str], object]) -> object:
    try:
        return reader(value)
    except (ValueError, OverflowError) as exc:
        raise InvalidSettings(f"the store's URL has {name}={value!r}; expected a positive number") from exc


def _seconds(text: str) -> timedelta:
    if (seconds := float(text)) <= 0:
        raise ValueError(text)
    return timedelta(seconds=seconds)


def _count(text: str) -> int:
    if (count := int(text)) <= 0:
        raise ValueError(text)
    return count


def _prefix(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", text):
        raise InvalidSettings(f"expected a prefix of letters, digits and _ . : - in the store's URL, got {text!r}")
    return text


def _check_hosts(parts: SplitResult, expected: str) -> None:
    """Raise InvalidSettings for an invalid host or port. The error does not show the text, which may be part of a password."""
    hosts = [_HOST.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")]
    split_wrongly = any(sign in parts.path + parts.query for sign in "@#")
    if split_wrongly or not all(host and int(host["port"] or 0) <= _LAST_PORT for host in hosts):
        raise InvalidSettings(
            f"the store's URL has no valid host; expected {expected}, "
            "with : / ? # @ in a name or password written as %3A %2F %3F %23 %40"
        )
