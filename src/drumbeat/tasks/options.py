"""The options of a task, and how they become the fields of its jobs."""

import hashlib
import inspect
import json
import re
import string
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Backoff, NewJob, RateLimit
from drumbeat.core.plain import short_repr
from drumbeat.pool.job_options import new_job
from drumbeat.tasks.queue import DEFAULT_POOL as DEFAULT_POOL

_OTHER_OPTIONS = frozenset({"pool", "name", "store", "unique", "rate", "cron", "every", "tz", "missed"})
_RATE_UNITS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


class PushOptions(TypedDict, total=False):
    """Options of a task's jobs, for ``with_options``."""

    pool: str  #: the pool that the jobs are pushed to
    store: str  #: the store's URL; default: DRUMBEAT_STORE or the settings file
    priority: int  #: higher first
    max_attempts: int  #: after this many failures the job is poisoned (not tried again)
    max_crashes: int  #: after this many lost workers the job is poisoned
    backoff: Backoff  #: how long a failed job waits before it is tried again
    timeout: timedelta | float  #: an attempt that takes longer fails
    unique: bool | str  #: one unfinished job for the same arguments (True), or for the same key, such as "mail:{to}"
    rate: RateLimit | str  #: how many of the task's jobs may start per unit of time, such as "10/s", "100/m" or "5/h"
    group: str  #: jobs of one group share the limits; default: the task's name, if there is a limit
    group_limit: int  #: how many jobs of the group may run at the same time
    capability: str  #: only a worker with this capability may run the job


class TaskOptions(PushOptions, total=False):
    """Options of the decorator ``task``."""

    name: str  #: the type of the task's jobs; default: module and function name
    cron: str  #: push a job at the times of this cron expression, such as "0 3 * * *"
    every: timedelta | float  #: push a job at this interval, instead of ``cron``
    tz: str  #: the time zone of ``cron``, such as "Europe/Berlin"; default: UTC
    missed: Literal["skip", "once", "all"]  #: what to do with ticks that no process was there to push; default: once


def template(name: str, options: Mapping[str, Any]) -> NewJob:
    """Return the template of a task's jobs. Raises InvalidInput that names an unknown or wrong option."""
    fields = {option: value for option, value in options.items() if option not in _OTHER_OPTIONS}
    if "rate" in options:
        fields["group_rate"] = _rate(options["rate"])
    if fields.keys() & {"group_rate", "group_limit"}:
        fields.setdefault("group", name)
    if unknown := sorted(fields.keys() - _FIELDS):
        known = ", ".join(sorted(TaskOptions.__optional_keys__ | PushOptions.__optional_keys__))
        raise InvalidInput(f"task {name}: unknown option {unknown[0]!r}; expected one of {known}")
    for option in ("pool", "name", "store"):
        if not isinstance(options.get(option, ""), str) or options.get(option) == "":
            raise InvalidInput(f"task {name}: expected {option} to be text, got {short_repr(options[option])}")
    try:
        return new_job(None, type=name, **fields)
    except InvalidInput as exc:
        raise InvalidInput(f"task {name}: {exc}") from exc


def check_unique(name: str, unique: Any, parameters: Mapping[str, inspect.Parameter]) -> bool | str:
    """Return the option ``unique``. Raises InvalidInput if it is neither a bool nor a key that names parameters."""
    if isinstance(unique, bool):
        return unique
    expected = f"task {name}: expected unique to be True or a key with parameters, such as 'mail:{{to}}'"
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(unique) if field is not None]
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"{expected}; got {short_repr(unique)}") from exc
    for field in fields:
        if field not in parameters:
            raise InvalidInput(f"{expected}; got the field {field!r}, but the parameters are {', '.join(parameters)}")
    return str(unique)


def unique_key(name: str, unique: bool | str, signature: inspect.Signature, payload: Mapping[str, Any]) -> str | None:
    """Return the unique key of a job with this payload; None if the task's jobs need not be unique."""
    if unique is False:
        return None
    bound = signature.bind(*payload["args"], **payload["kwargs"])
    bound.apply_defaults()
    if isinstance(unique, str):
        return unique.format(**bound.arguments)
    written = json.dumps(bound.arguments, sort_keys=True, default=repr)
    return f"{name}:{hashlib.sha256(written.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _rate(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([0-9]{1,9})/([smhd])", value.strip())
    if found is None or int(found[1]) < 1:
        raise InvalidInput(f"expected rate to be a RateLimit or text such as 10/s, 100/m or 5/h, got {value!r}")
    return RateLimit(count=int(found[1]), per=_RATE_UNITS[found[2]])


_FIELDS = frozenset(
    {"priority", "max_attempts", "max_crashes", "backoff", "timeout", "group", "group_limit", "group_rate", "capability"}
)
