"""Lists the differences between the configurations of two runs, and hides secrets. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SECRET = re.compile(r"passw|secret|token|credential|api_?key|private_?key|dsn$", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)([^/@\s:]*):[^/\s]*@")  #: matches up to the last @, as a password may contain one
_IN_QUERY = re.compile(r"(?i)([?&;](?:[^=&;\s]*(?:passw|secret|token|key)[^=&;\s]*)=)[^&;\s]*")
_DERIVED = frozenset({"plan", "document", "config_hash", "highest_keys"})
HIDDEN = "•••"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDifference:
    """A setting that differs between two runs; ``before`` or ``after`` is None if the run does not have the setting."""

    path: str
    before: str | None
    after: str | None


def user_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the template document that the user wrote, if stored with the run, else the run's configuration."""
    document = config.get("document")
    return document if isinstance(document, Mapping) else config


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[ConfigDifference, ...]:
    """Return the settings that differ between two configurations, sorted by path."""
    old, new = flattened(_without_derived(before)), flattened(_without_derived(after))
    paths = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
    return tuple(ConfigDifference(path=path, before=old.get(path), after=new.get(path)) for path in paths)


def _without_derived(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration without the parts computed from it, such as the plan and the hash."""
    written = {name: value for name, value in config.items() if name not in _DERIVED}
    return written or config


def flattened(config: Mapping[str, Any]) -> dict[str, str]:
    """Return every value by its path, for example ``workload.operations[0].weight``, with secrets hidden."""
    return {path: HIDDEN if _SECRET.search(path) else without_secrets(str(value)) for path, value in _leaves("", config)}


def redacted(value: Any, name: str = "") -> Any:
    """Return a copy of a configuration with passwords, tokens and other secrets hidden."""
    if isinstance(value, Mapping):
        return {key: redacted(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner, name) for inner in value]
    if value is not None and _SECRET.search(name):
        return HIDDEN
    return without_secrets(value) if isinstance(value, str) else value


def without_secrets(text: str) -> str:
    """Return the text with passwords inside URLs hidden."""
    return _IN_QUERY.sub(rf"\g<1>{HIDDEN}", _IN_URL.sub(rf"\g<1>:{HIDDEN}@", text))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), inner)
    elif isinstance(value, list | tuple) and value:
        for number, inner in enumerate(value):
            yield from _leaves(f"{path}[{number}]", inner)
    else:
        yield path, value
