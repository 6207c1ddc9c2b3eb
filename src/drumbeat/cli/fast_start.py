"""The short way to commands that must start fast: their options are read here, and a fraction of the imports is saved.

Only what is spelt plainly is read. For anything else (help, a mistake, an unusual spelling) the whole command line is loaded,
and says what it has to say. A test holds the tables below against the commands' own options.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class _Unclear(Exception):
    """Not spelt plainly."""


def _text(value: str) -> str:
    if value.startswith("-"):
        raise _Unclear
    return value


def _positive(value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 9 or int(value) < 1:
        raise _Unclear
    return int(value)


def _index(value: str) -> int:
    return int(value) if value == "0" else _positive(value)


def _executor(value: str) -> str:
    if value not in ("async", "threads", "processes"):
        raise _Unclear
    return value


Readers = Mapping[str, tuple[str, Callable[[str], Any] | None]]  #: an option's name, and how its value is read; None: a flag

WORKER: Readers = {
    "--run-id": ("run_id", _text),
    "--worker-id": ("worker_id", _text),
    "--worker-group-id": ("worker_group_id", _index),
    "--worker-group-count": ("worker_group_count", _positive),
}
POOL_WORK: Readers = {
    "--handler": ("handlers", _text),
    "--once": ("once", None),
    "--drain": ("drain", None),
    "--concurrency": ("concurrency", _positive),
    "--executor": ("executor", _executor),
    "--capability": ("capabilities", _text),
    "--lease": ("lease", _text),
    "--timeout": ("timeout", _text),
    "--max-jobs": ("max_jobs", _positive),
    "--max-memory": ("max_memory_mb", _positive),
    "--grace": ("grace", _text),
    "--worker-id": ("worker_id", _text),
    "--store": ("store", _text),
    "--json": ("as_json", None),
}
_MANY = frozenset({"handlers", "capabilities"})
_NOT_THE_PLANS = ("once", "drain", "grace", "worker_id", "store", "as_json")


def command(words: Sequence[str]) -> Callable[[], int] | None:
    """What the words ask for, if it is one of these commands and spelt plainly."""
    if list(words) == ["--version"]:
        return _version
    try:
        if list(words[:1]) == ["worker"]:
            return _worker(words[1:])
        if list(words[:2]) == ["pool", "work"]:
            return _pool_work(words[2:])
    except _Unclear:
        return None
    return None


def _version() -> int:
    from drumbeat import __version__

    print(f"drumbeat {__version__}")
    return 0


def _worker(words: Sequence[str]) -> Callable[[], int]:
    found, rest = read(words, WORKER)
    if rest or len(found) < len(WORKER):
        raise _Unclear

    def live() -> int:
        from drumbeat.cli.run_worker import be_worker

        return be_worker(**found)

    return live


def _pool_work(words: Sequence[str]) -> Callable[[], int]:
    found, rest = read(words, POOL_WORK)
    if len(rest) != 1:
        raise _Unclear
    more = {name: found.pop(name) for name in _NOT_THE_PLANS if name in found}

    def live() -> int:
        from drumbeat.cli.run_worker import be_job_worker

        return be_job_worker(rest[0], found, **more)

    return live


def read(words: Sequence[str], readers: Readers) -> tuple[dict[str, Any], list[str]]:
    """Options by name, and what is left. Raises _Unclear."""
    found: dict[str, Any] = {}
    rest: list[str] = []
    left = iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            rest.append(word)
            continue
        name, reader = readers.get(option, (None, None))
        if name is None or (name in found and name not in _MANY) or (reader is None and equals):
            raise _Unclear
        given = True if reader is None else reader(value if equals else next(left, "-"))
        if name in _MANY:
            found.setdefault(name, []).append(given)
        else:
            found[name] = given
    return found, rest
