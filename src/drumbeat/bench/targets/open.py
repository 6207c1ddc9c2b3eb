"""Opens the database under test for a URL. Imports only the driver of that database product."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from drumbeat.bench.targets.interface import Target
from drumbeat.core.errors import InvalidSettings
from drumbeat.core.plain import whole_number
from drumbeat.user_path import user_path

_EXPECTED = "postgresql://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, sqlite:///FILE, duckdb:///FILE or snowflake://USER@ACCOUNT/DATABASE/SCHEMA"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^:\[\]@]*)(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_LAST_PORT = 65_535


def open_target(url: str) -> Target:
    """Return the target for a URL, for ``async with``. Raises InvalidSettings, with a message that never shows a password."""
    scheme = _SCHEME.match(url)
    opener = _OPENERS.get(scheme[1].lower()) if scheme else None
    if opener is None:
        given = repr(scheme[0]) if scheme else "a URL without a scheme"
        raise InvalidSettings(f"expected {_EXPECTED} as the URL of the database under test, got {given}")
    try:
        parts = urlsplit(url, allow_fragments=False)
    except ValueError:
        raise InvalidSettings(f"the target's URL is invalid; expected {_EXPECTED}") from None
    return opener(parts)


def _open_postgres(parts: SplitResult) -> Target:
    from drumbeat.bench.targets.postgres import PostgresTarget

    _check_host(parts)
    return PostgresTarget(parts._replace(scheme="postgresql").geturl())


def _open_mysql(parts: SplitResult) -> Target:
    from drumbeat.bench.targets.mysql import MysqlTarget

    _check_host(parts)
    return MysqlTarget(parts._replace(scheme="mysql").geturl())


def _open_sqlite(parts: SplitResult) -> Target:
    from drumbeat.bench.targets.sqlite import SqliteTarget

    options = _options(parts, "synchronous")
    return SqliteTarget(_path(parts), synchronous=options.get("synchronous", "NORMAL").upper())


def _open_duckdb(parts: SplitResult) -> Target:
    from drumbeat.bench.targets.duckdb import DuckdbTarget

    _options(parts)
    return DuckdbTarget(_path(parts))


def _open_snowflake(parts: SplitResult) -> Target:
    from drumbeat.bench.targets.snowflake import SnowflakeTarget

    return SnowflakeTarget(parts.geturl())


_OPENERS: Mapping[str, Callable[[SplitResult], Target]] = {
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
    "mysql": _open_mysql,
    "mariadb": _open_mysql,
    "sqlite": _open_sqlite,
    "duckdb": _open_duckdb,
    "snowflake": _open_snowflake,
}


def _path(parts: SplitResult) -> Path:
    if parts.netloc:
        raise InvalidSettings(f"expected {parts.scheme}:///FILE (three slashes), got a host in the target's URL")
    path = unquote(parts.path[1:])
    if not path:
        raise InvalidSettings(f"expected {parts.scheme}:///FILE, got no file in the target's URL")
    return user_path(path, f"expected {parts.scheme}:///FILE in the target's URL")


def _options(parts: SplitResult, *known: str) -> dict[str, str]:
    """Return the options after the URL's question mark. Raises InvalidSettings for an unknown option."""
    found = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := set(found) - set(known):
        expected = f"expected one of {', '.join(known)}" if known else "expected none"
        raise InvalidSettings(f"the target's URL has an unknown option {min(unknown)!r}; {expected}")
    return found


def _check_host(parts: SplitResult) -> None:
    """Raise InvalidSettings for an invalid host or port. The message never shows the host: it could be part of a password."""
    split_wrongly = any(sign in parts.path + parts.query for sign in "@#")
    found = _HOST.fullmatch(parts.netloc.rpartition("@")[2])
    if split_wrongly or found is None:
        raise InvalidSettings(
            f"the target's URL has no valid host; expected {parts.scheme}://USER:PASSWORD@HOST:PORT/DATABASE, "
            "with : / ? # @ in a name or password written as %3A %2F %3F %23 %40"
        )
    for port in (found["port"], dict(parse_qsl(parts.query)).get("port")):
        _check_port(port)


def _check_port(port: str | None) -> None:
    number = whole_number(port or "")
    if port and (number is None or not 1 <= number <= _LAST_PORT):
        got = "a value that is not a number" if number is None else number
        raise InvalidSettings(f"expected a port from 1 to {_LAST_PORT} in the target's URL, got {got}")
