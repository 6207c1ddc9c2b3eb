"""The specification of a worker's service, in YAML, and how each of the worker's variables reaches its container.

No secret is in a statement or a specification, because Snowflake stores statements in its query history, and the owner of a
service can read its specification. A variable reaches the container in one of three ways:

- a variable named in ``secrets`` comes from a SECRET object. Snowflake gives it to the container; Drumbeat does not read it;
- a variable that is marked as public (``public``, ``environment``, and Drumbeat's own without secrets) is in the specification;
- all others are encrypted with the key in ``key_variable``. The container gets the same key from the SECRET object in
  ``key_secret``. Without a key, the worker is not started.
"""

import base64
import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from drumbeat.core.errors import SpawnCause, SpawnFailed
from drumbeat.spawn.interface import Order
from drumbeat.spawn.names import POOL, WORKER
from drumbeat.spawn.spcs import unpack
from drumbeat.spawn.spcs.settings import SpcsSettings
from drumbeat.spawn.spcs.statements import CONTAINER

_STATE_DIR: Final = {"DRUMBEAT_STATE_DIR": "/tmp/drumbeat"}  # noqa: S108  (the container's own)
_MOST_VARIABLE: Final = 130_000  #: characters of a variable: Linux takes no more than 128 KiB
_MOST_SPECIFICATION: Final = 900_000  #: characters: a statement of Snowflake takes 1 MB
_SHORTEST_KEY: Final = 16
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def specification(order: Order, settings: SpcsSettings, base: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Return the specification of a worker's service. ``base``: variables of all workers; ``here``: variables of this process.

    Raises SpawnFailed if a variable is invalid, if the text is too long, or if a variable may be a secret and there is no key.
    """
    secret, public = _variables(order, settings, base)
    command = order.command_line(settings.command)
    key = _key(settings, here) if secret else ""
    objects = dict(settings.secrets)
    if key or _has_dollar([*command, *public.values()]):
        plain = {name: value for name, value in public.items() if not _has_dollar([value])}
        hidden = {name: value for name, value in public.items() if name not in plain} | secret
        public = {**plain, unpack.TASK: _task(command, hidden, key)}
        objects |= {unpack.KEY: settings.key_secret} if key else {}
        command = (settings.python, "-I", "-c", _unpacker())
    if max(map(len, public.values())) > _MOST_VARIABLE:
        raise _refused(
            order,
            "expected a command and environment of at most 90,000 bytes (passed as one variable), got more; shorten them",
        )
    text = yaml({"spec": _spec(command, public, objects, settings)})
    if len(text) > _MOST_SPECIFICATION:
        raise _refused(order, f"expected a specification of at most {_MOST_SPECIFICATION} characters, got {len(text)}")
    return text


def _variables(order: Order, settings: SpcsSettings, base: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables that may be secrets, and the others. Leaves out the variables that come from SECRET objects."""
    own = {POOL: order.pool_id, WORKER: order.worker_id}
    given = {**base, **_STATE_DIR, **settings.environment, **order.environment, **own}
    given = {name: value for name, value in given.items() if name not in settings.secrets}
    for name, value in given.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise _refused(order, f"expected variables of letters, digits and _, and no NUL in them, got {name!r}")
    ours = {*settings.environment, *_STATE_DIR} - {*order.environment}
    known = {*settings.public_variables, *own, *ours}
    secret = {name: value for name, value in given.items() if name not in known}
    if secret and not settings.key_variable:
        raise _refused(
            order,
            f"expected {', '.join(sorted(secret))} in secrets, with the name of a SECRET object of Snowflake; or in public, if "
            f"it holds no secret; or a key in key_variable and key_secret; got none of them, see docs/engines.md",
        )
    return secret, {name: value for name, value in given.items() if name in known}


def _key(settings: SpcsSettings, here: Mapping[str, str]) -> str:
    found = here.get(settings.key_variable, "")
    if len(found) < _SHORTEST_KEY:
        got = "a shorter one" if found else "none"
        raise SpawnFailed(
            f"expected a key of at least {_SHORTEST_KEY} characters in the environment variable {settings.key_variable}, got "
            f"{got}; create one with: openssl rand -base64 32",
            cause=SpawnCause.AUTH,
        )
    return found


def _task(command: Sequence[str], environment: Mapping[str, str], key: str) -> str:
    """Return command and environment, encrypted if there is a key, as the text that ``unpack`` reads in the container."""
    data = json.dumps({"command": [*command], "environment": dict(environment)}).encode()
    if key:
        nonce = os.urandom(unpack.NONCE)
        rest = nonce + unpack.encrypted(data, key.encode(), nonce)
        data = unpack.signed(rest, key.encode()) + rest
    return base64.b64encode(data).decode()


def _spec(
    command: Sequence[str], environment: Mapping[str, str], objects: Mapping[str, str], settings: SpcsSettings
) -> Mapping[str, Any]:
    requests = {"memory": settings.memory, "cpu": settings.cpu, "nvidia.com/gpu": settings.gpus or ""}
    limits = {"memory": settings.memory, "cpu": settings.cpu_limit, "nvidia.com/gpu": settings.gpus or ""}
    resources = {"requests": _filled(requests), "limits": _filled(limits)}
    container = {
        "name": CONTAINER,
        "image": settings.image,
        "command": [*command],
        "env": dict(environment),
        "resources": _filled(resources),
        "secrets": [
            {
                "snowflakeSecret": {"objectName": ".".join(part.plain for part in settings.secret_name(name))},
                "secretKeyRef": "secret_string",
                "envVarName": variable,
            }
            for variable, name in objects.items()
        ],
    }
    exporters = {"eventTableConfig": {"logLevel": settings.log_level}} if settings.log_level else {}
    return _filled({"containers": [_filled(container)], "logExporters": exporters})


def _filled(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value not in ("", {}, [])}


def _has_dollar(words: Sequence[str]) -> bool:
    """Whether a word contains a $. In a specification, Snowflake takes $ as the start of a variable, and $$ as the end."""
    return any("$" in word for word in words)


@cache
def _unpacker() -> str:
    return files("drumbeat.spawn.spcs").joinpath("unpack.py").read_text(encoding="utf-8")


def _refused(order: Order, message: str) -> SpawnFailed:
    return SpawnFailed(f"worker {order.worker_id} of {order.pool_id}: {message}", cause=SpawnCause.BAD_REQUEST)


# YAML


def yaml(value: Mapping[str, Any], indent: str = "") -> str:
    """Return a mapping as YAML, in ASCII. Every text is quoted, so that it is not read as a number, a tag or a variable."""
    return "".join(f"{indent}{_scalar(name)}:{_value(each, indent)}" for name, each in value.items())


def _value(value: Any, indent: str) -> str:
    if isinstance(value, Mapping):
        return f"\n{yaml(value, indent + '  ')}"
    if isinstance(value, list):
        return "\n" + "".join(_item(each, indent) for each in value)
    return f" {_scalar(value)}\n"


def _item(value: Any, indent: str) -> str:
    """Return one item of a list as YAML: a mapping or a single value."""
    if isinstance(value, Mapping):
        return f"{indent}- {yaml(value, indent + '  ').lstrip()}"
    return f"{indent}- {_scalar(value)}\n"


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    return '"' + "".join(map(_character, value)) + '"'


def _character(each: str) -> str:
    if " " <= each <= "~" and each not in '"\\$':
        return each
    code = ord(each)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
