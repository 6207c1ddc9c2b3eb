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
from drumbeat.pool.job_options import check_key, new_job
from drumbeat.pool.typed_values import Convert
from drumbeat.pool.worker.task_call import TaskParameters
from drumbeat.tasks.queue import DEFAULT_POOL as DEFAULT_POOL

_OTHER_OPTIONS = frozenset({"pool", "name", "store", "unique", "rate", "cron", "every", "tz", "missed"})
_CONVERSIONS = (None, "r", "s", "a")  #: of a field in the key of ``unique``
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
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
    missed: Literal["skip", "once", "all"]  #: what to do with ticks at which no process was running; default: once


def template(name: str, options: Mapping[str, Any]) -> NewJob:
    """Return the template of a task's jobs. Raises InvalidInput that names an unknown or wrong option."""
    fields = {option: value for option, value in options.items() if option not in _OTHER_OPTIONS}
    if "rate" in options:
        fields["group_rate"] = _rate(name, options["rate"])
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
        problem = str(exc).replace("group_rate", "rate") if "rate" in options else str(exc)
        raise InvalidInput(f"task {name}: {problem}") from exc


def check_unique(name: str, unique: Any, parameters: Mapping[str, inspect.Parameter]) -> bool | str:
    """Return the option ``unique``. Raises InvalidInput unless it is a bool, or a key in which each {field} is a parameter."""
    if isinstance(unique, bool):
        return unique
    expected = f"task {name}: expected unique to be True or a key with parameters, such as 'mail:{{to}}'"
    try:
        fields = [field for field in string.Formatter().parse(unique) if field[1] is not None]
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"{expected}; got {short_repr(unique)}") from exc
    if unique == "":
        raise InvalidInput(f"{expected}; got '', which all jobs would share; leave unique out for jobs that need not be unique")
    for _, field, form, conversion in fields:
        if field not in parameters:
            raise InvalidInput(f"{expected}; got the field {field!r}, but the parameters are {', '.join(parameters)}")
        if "{" in str(form):
            raise InvalidInput(f"{expected}; got a field within the format of the field {field!r}; write the format itself")
        if conversion not in _CONVERSIONS:
            raise InvalidInput(
                f"{expected}; got the conversion !{conversion} of the field {field!r}, but there are only !r, !s and !a"
            )
    return str(unique)


def unique_key(name: str, unique: bool | str, parameters: TaskParameters, payload: Mapping[str, Any]) -> str | None:
    """Return the unique key of a job with this payload; None if the task's jobs need not be unique. Raises InvalidInput if
    an argument does not fit the format of its field, or the key is too long."""
    if unique is False:
        return None
    bound = parameters.signature.bind(*payload["args"], **payload["kwargs"])
    given = dict(bound.arguments)
    bound.apply_defaults()
    if isinstance(unique, str):
        arguments = {each: value if each in given else _stable(value) for each, value in bound.arguments.items()}
        return _formatted_key(name, unique, arguments, {each: parameters.by_name.get(each) for each in given})
    written = json.dumps(bound.arguments, sort_keys=True, default=_stable_repr)
    return f"{name}:{hashlib.sha256(written.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _stable(default: Any) -> Any:
    """Return a parameter's default; if its text differs from process to process, return a text that does not."""
    differs = isinstance(default, set | frozenset) or (not isinstance(default, str) and _ADDRESS.search(str(default)))
    return _stable_repr(default) if differs else default


def _stable_repr(default: Any) -> str:
    """Return the repr of a default as it is in every process: without memory addresses, with the members of a set sorted."""
    if isinstance(default, set | frozenset) and len(default) > 1 and any(type(each) is not int for each in default):
        members = ", ".join(sorted(map(_stable_repr, default)))
        return f"{{{members}}}" if type(default) is set else f"{type(default).__name__}({{{members}}})"
    return _ADDRESS.sub("", repr(default))


def _formatted_key(name: str, unique: str, arguments: Mapping[str, Any], converts: Mapping[str, Convert | None]) -> str:
    """Return a unique key with these arguments. If their JSON does not fit the key's formats, as in ``{day:%Y}``, they are
    converted to the types of the parameters; ``converts`` has a converter for each argument that is no default. Raises
    InvalidInput."""
    try:
        key = unique.format(**arguments)
    except (TypeError, ValueError):
        key = _typed_key(name, unique, arguments, converts)
    try:
        return check_key("unique_key", key)
    except InvalidInput as exc:
        raise InvalidInput(f"task {name}: {exc}; or set unique to True, which makes a short key of all arguments") from exc


def _typed_key(name: str, unique: str, arguments: Mapping[str, Any], converts: Mapping[str, Convert | None]) -> str:
    typed = dict(arguments)
    try:
        for each, convert in converts.items():
            if convert is not None:
                typed[each] = convert(arguments[each])
        return unique.format(**typed)
    except (TypeError, ValueError, InvalidInput) as exc:
        got = short_repr([*arguments.values()])
        raise InvalidInput(
            f"task {name}: the unique key {unique!r} cannot be made of the arguments {got}: {exc}; "
            "leave the formats out of the key, or annotate the parameters with types that have them"
        ) from exc


def _rate(name: str, value: Any) -> Any:
    if isinstance(value, RateLimit | Mapping):
        return value
    found = re.fullmatch(r"([0-9]{1,9})/([smhd])", value.strip()) if isinstance(value, str) else None
    if found is None or int(found[1]) < 1:
        raise InvalidInput(
            f"task {name}: expected rate to be a RateLimit or text such as 10/s, 100/m or 5/h, got {short_repr(value)}"
        )
    return RateLimit(count=int(found[1]), per=_RATE_UNITS[found[2]])


_FIELDS = frozenset(
    {"priority", "max_attempts", "max_crashes", "backoff", "timeout", "group", "group_limit", "group_rate", "capability"}
)
