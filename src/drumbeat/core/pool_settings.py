"""Settings of pools of jobs: the table [pool] of drumbeat.toml, and environment variables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.plain import short_repr

POOL_VARIABLES: Mapping[str, str] = {
    "middleware": "DRUMBEAT_MIDDLEWARE",
    "large": "DRUMBEAT_LARGE",
    "max_inline": "DRUMBEAT_MAX_INLINE",
    "log_format": "DRUMBEAT_LOG_FORMAT",
}
LOG_FORMATS = ("text", "json")
_SIZE = re.compile(r"([0-9]{1,12}) ?(B|KB|MB)?", re.IGNORECASE)
_UNITS = {"b": 1, "kb": 1024, "mb": 1024 * 1024}
_LEAST, _MOST = 1024, 1024 * 1024  #: bounds of max_inline, in bytes
_PLACE = re.compile(r"file:///.+|s3://[A-Za-z0-9][^@]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Settings of this process for pools: its middleware, and where payloads and results above ``max_inline`` bytes go."""

    middleware: tuple[str, ...] = ()  #: as module:object, in this order
    large: str | None = None  #: ``file:///FOLDER`` or ``s3://BUCKET/PREFIX?endpoint=…``; None: everything is in the store
    max_inline: int = 64 * 1024  #: bytes of JSON
    log_format: str = LOG_FORMATS[0]  #: of the log lines that a worker writes to standard error

    def variables(self) -> dict[str, str]:
        """Return the environment variables that give another process these settings. They contain no secret."""
        found = {
            "middleware": ",".join(self.middleware),
            "large": self.large or "",
            "max_inline": "" if self.max_inline == NO_POOL_SETTINGS.max_inline else f"{self.max_inline}B",
            "log_format": "" if self.log_format == NO_POOL_SETTINGS.log_format else self.log_format,
        }
        return {POOL_VARIABLES[name]: value for name, value in found.items() if value}


NO_POOL_SETTINGS = PoolSettings()


def read_pool_settings(table: Any, where: str, environment: Mapping[str, str]) -> PoolSettings:
    """Read the settings of pools; environment variables override the table. Raises InvalidSettings."""
    if not isinstance(table, dict):
        raise InvalidSettings(f"expected a table [pool] in {where}, got pool = {short_repr(table)}")
    for name in table:
        if name not in POOL_VARIABLES:
            raise InvalidSettings(
                f"unknown setting {name!r} in the table [pool] of {where}; expected {', '.join(POOL_VARIABLES)}"
            )
    given = {**table, **{name: environment[each] for name, each in POOL_VARIABLES.items() if environment.get(each)}}
    return PoolSettings(
        middleware=_middleware(given.get("middleware", ())),
        large=_large(given.get("large")),
        max_inline=_size(given["max_inline"]) if "max_inline" in given else NO_POOL_SETTINGS.max_inline,
        log_format=check_log_format(given.get("log_format", NO_POOL_SETTINGS.log_format), "[pool] log_format"),
    )


def check_log_format(value: Any, name: str) -> str:
    """Return ``value`` if it is a log format. Raises InvalidSettings, with the ``name`` of the setting, if it is not."""
    if value not in LOG_FORMATS:
        raise InvalidSettings(f"expected {name} to be one of {', '.join(LOG_FORMATS)}, got {short_repr(value)}")
    return str(value)


def _middleware(value: Any) -> tuple[str, ...]:
    names = [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) and ":" in each for each in names):
        raise InvalidSettings(f'expected [pool] middleware to be a list such as ["module:object"], got {short_repr(value)}')
    return tuple(names)


def _large(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _PLACE.fullmatch(value):
        raise InvalidSettings(
            "expected [pool] large to be file:///FOLDER or s3://BUCKET/PREFIX?endpoint=URL, without a password (S3 uses "
            f"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), got {short_repr(str(value).partition('@')[2] or value)}"
        )
    return value


def _size(value: Any) -> int:
    found = _SIZE.fullmatch(str(value).strip()) if isinstance(value, str | int) and not isinstance(value, bool) else None
    size = int(found[1]) * _UNITS[(found[2] or "B").lower()] if found else 0
    if not _LEAST <= size <= _MOST:
        raise InvalidSettings(f"expected [pool] max_inline to be a size from 1KB to 1MB, such as 64KB, got {short_repr(value)}")
    return size
