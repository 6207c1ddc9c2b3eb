"""Builds jobs to push: parses and checks the options given by the caller, and converts the payload to JSON."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Backoff, IfFailed, Job, JobId, JobsWithTemplate, NewJob, RateLimit
from drumbeat.core.plain import short_repr
from drumbeat.pool.envelope import open_envelope
from drumbeat.pool.payload import MOST_BYTES, as_json
from drumbeat.store.job_ids import number_of

_MOST = 2**31 - 1
MOST_TEXT_BYTES = 1024  #: of each text option in UTF-8: PostgreSQL's indexes cannot hold more than about 2,700 bytes
_LONGEST = timedelta(days=36_500)
_TOO_LATE = datetime(9000, 1, 1, tzinfo=UTC)  #: times from here on do not fit every time zone
_DEFAULTS = NewJob(payload=None)


def new_job(payload: Any, most_bytes: int = MOST_BYTES, **options: Any) -> NewJob:
    """Build a job from a payload and options. Raises InvalidInput that names the invalid option or field of the payload."""
    return NewJob(payload=as_json(payload, "payload", most_bytes), **_read_options(options))


def one_job(payload: Any, most_bytes: int = MOST_BYTES, **options: Any) -> JobsWithTemplate:
    """Like ``new_job``, but returns the job as a sequence of length one, which is faster to build. Raises InvalidInput."""
    return JobsWithTemplate([as_json(payload, "payload", most_bytes)], _template(options))


def new_jobs(payloads: Iterable[Any], most_bytes: int = MOST_BYTES, **options: Any) -> JobsWithTemplate:
    """Build many jobs with the same options. Raises InvalidInput that names the option, or the job's index and the field."""
    like, read = _template(options), list[Any]()
    try:
        for payload in payloads:
            read.append(as_json(payload, "payload", most_bytes))
    except InvalidInput as exc:
        raise InvalidInput(f"job {len(read)}: {exc}") from exc
    return JobsWithTemplate(read, like)


def _template(options: Mapping[str, Any]) -> NewJob:
    return NewJob(payload=None, **_read_options(options)) if options else _DEFAULTS


def _read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options and convert them to fields of NewJob. Raises InvalidInput that names the first invalid option."""
    read = {name: _read(name, value) for name, value in options.items()}
    if options.keys() & _IN_COMPANY and (useless := options_without_effect(options)):
        missing, meaning = _IN_COMPANY[useless[0]]
        raise InvalidInput(
            f"{useless[0]} {meaning}: expected the option {missing} too, got none; add it, or leave {useless[0]} out"
        )
    return read


def options_without_effect(options: Mapping[str, Any]) -> list[str]:
    """Return the options that have no effect: limits of a group without ``group``; after_any or if_failed without ``after``."""
    limits = ("group_limit", "group_rate") if options.get("group") is None else ()
    flow = () if "after" in options else ("after_any", "if_failed")
    return [name for name in (*limits, *flow) if options.get(name)]


def check_key(option: str, key: str) -> str:
    """Return a key that is the value of this option, such as ``unique_key`` or ``workflow_id``. Raises InvalidInput if it is
    empty or too long, or contains a character that a store cannot hold."""
    return str(_read(option, key))


def job_from_line(line: Any, most_bytes: int = MOST_BYTES) -> NewJob:
    """Build a job from an object ``{"payload": …, option: …}``, as printed by ``pool list --json``.

    Fields that a store sets, such as the status, are ignored, also a job id that a store assigned: the job gets a new id.
    """
    if not isinstance(line, Mapping) or "payload" not in line:
        raise InvalidInput(f"expected a job as an object with the field payload, got {str(line)[:80]!r}")
    if (large := open_envelope(line["payload"]).large) is not None:
        raise InvalidInput(
            f"expected the payload of a job, got a reference to a payload of {large.size} bytes, as a list shows it; "
            "read the payload with: drumbeat pool show POOL JOB --json"
        )
    given = {name: value for name, value in line.items() if name not in _STORE_FIELDS and value is not None}
    if line.get("not_before") is not None and not given.keys() & {"run_at", "delay"}:
        given["run_at"] = line["not_before"]
    if number_of(str(given.get("job_id", ""))) is not None:
        del given["job_id"]
    if "status" in line:  # the job was listed; a listed job has no parents' ids
        given = {name: value for name, value in given.items() if name not in options_without_effect(given)}
    return new_job(given.pop("payload", None), most_bytes, **given)


def _read(name: str, value: Any) -> Any:
    reader = _OPTIONS.get(name)
    if reader is None:
        raise InvalidInput(f"unknown option {name!r}; expected one of {', '.join(_OPTIONS)}")
    try:
        return reader(value)
    except (TypeError, ValueError, OverflowError, KeyError) as exc:
        raise InvalidInput(f"expected {name} to be {_EXPECTED.get(name) or _expected(value)}, got {short_repr(value)}") from exc


def _expected(value: Any) -> str:
    if isinstance(value, str) and not value:
        return "text that is not empty (leave the option out for a job without one)"
    is_long = isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) > MOST_TEXT_BYTES
    return f"text of at most {MOST_TEXT_BYTES} bytes (use a hash of a longer text)" if is_long else "text"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    written = value.encode()
    if b"\0" in written or len(written) > MOST_TEXT_BYTES:
        raise ValueError(value)
    return str.__str__(value)  # a store may refuse a subclass of str, such as Django's SafeString


def _key(value: Any) -> str:
    if not (key := _text(value)):
        raise ValueError(value)
    return key


def _maybe(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else reader(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or int(value) != value or abs(int(value)) > _MOST:
        raise ValueError(value)
    return int(value)


def _count(value: Any) -> int:
    if (count := _whole(value)) < 1:
        raise ValueError(value)
    return count


def duration(value: Any) -> timedelta:
    """Convert seconds, a timedelta or ISO 8601 text (PT90S) to a duration. Raises ValueError unless it is 0 to 100 years."""
    if isinstance(value, str):
        return _from_iso(value)
    given = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if not timedelta() <= given <= _LONGEST:
        raise ValueError(value)
    return given


def _from_iso(value: str) -> timedelta:
    import msgspec

    try:
        return duration(msgspec.convert(value, timedelta))
    except msgspec.ValidationError as exc:
        raise ValueError(value) from exc


def _positive(value: Any) -> timedelta:
    if (given := duration(value)) <= timedelta():
        raise ValueError(value)
    return given


def _moment(value: Any) -> datetime:
    given = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return in_utc(given if given.tzinfo else given.replace(tzinfo=UTC))


def in_utc(moment: datetime) -> datetime:
    """Convert a time with a time zone to UTC. Raises ValueError or OverflowError unless it is in the years 1 to 8999."""
    if (found := moment.astimezone(UTC)) >= _TOO_LATE:
        raise ValueError(moment)
    return found


def _backoff(value: Any) -> Backoff:
    default = dataclasses.asdict(Backoff())
    given = dataclasses.asdict(value) if isinstance(value, Backoff) else value
    if not isinstance(given, Mapping) or not set(given) <= set(default):
        raise ValueError(value)
    read = {name: duration(each) if name in ("first", "most") else float(each) for name, each in given.items()}
    backoff = Backoff(**{**default, **read})
    if not (1 <= backoff.factor <= _MOST and 0 <= backoff.jitter <= 1):
        raise ValueError(value)
    return backoff


def _parents(value: Any) -> tuple[JobId, ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(value)
    return tuple(JobId(_text(each)) for each in value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _rate(value: Any) -> RateLimit:
    if isinstance(value, RateLimit):
        value = dataclasses.asdict(value)
    return RateLimit(count=_count(value["count"]), per=_positive(value["per"]))


_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "type": _text,
    "job_id": _maybe(_key),
    "priority": _whole,
    "delay": duration,
    "run_at": _maybe(_moment),
    "max_attempts": _count,
    "max_crashes": _count,
    "backoff": _backoff,
    "timeout": _maybe(_positive),
    "unique_key": _maybe(_key),
    "group": _maybe(_key),
    "group_limit": _maybe(_count),
    "group_rate": _maybe(_rate),
    "capability": lambda value: None if value is None else _text(value) or None,  # no worker has an empty capability
    "after": _parents,
    "after_any": _flag,
    "if_failed": lambda value: IfFailed(_text(value)),
    "workflow_id": _maybe(_key),
}
_EXPECTED = {
    "priority": "a whole number",
    "delay": "a timedelta or seconds, 0 or more and at most a hundred years",
    "run_at": "a datetime or an ISO time before the year 9000",
    "max_attempts": "a whole number, 1 or more",
    "max_crashes": "a whole number, 1 or more",
    "backoff": "a Backoff, or an object of first, factor (1 or more), most and jitter (0 to 1)",
    "timeout": "a timedelta or seconds, above 0 and at most a hundred years",
    "group_limit": "a whole number, 1 or more",
    "group_rate": "a RateLimit, or an object of count and per (seconds)",
    "after": "a list of job ids",
    "after_any": "true or false",
    "if_failed": f"one of {', '.join(IfFailed)}",
}
_GROUP, _PARENTS = ("group", "limits the jobs of a group"), ("after", "says how to wait for other jobs")
#: Options that need another option, with that option and what the first one does.
_IN_COMPANY = {"group_limit": _GROUP, "group_rate": _GROUP, "after_any": _PARENTS, "if_failed": _PARENTS}
_STORE_FIELDS = frozenset(field.name for field in dataclasses.fields(Job)) - set(_OPTIONS) - {"payload"}
