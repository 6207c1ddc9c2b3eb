"""Parses the options of ``worker`` and ``pool work`` without importing Typer and Rich, so that workers start fast.

Only plain spellings are parsed; everything else (--help, mistakes, unusual spellings) is left to the full command line. A test
compares the tables below with the options of the commands.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class _UseFullParser(Exception):
    """Raised for arguments that only the full (slower) parser of the command line can parse."""


def _text(value: str) -> str:
    if value.startswith("-"):
        raise _UseFullParser
    return value


def _positive(value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 9 or int(value) < 1:
        raise _UseFullParser
    return int(value)


def _index(value: str) -> int:
    return int(value) if value == "0" else _positive(value)


def _executor(value: str) -> str:
    if value not in ("async", "threads", "processes"):
        raise _UseFullParser
    return value


Readers = Mapping[str, tuple[str, Callable[[str], Any] | None]]  #: by option: parameter name, and value parser (None: a flag)

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
    "--middleware": ("middleware", _text),
    "--log-format": ("log_format", _text),
    "--worker-id": ("worker_id", _text),
    "--tasks": ("tasks", None),
    "--reload": ("reload", None),
    "--store": ("store", _text),
    "--json": ("as_json", None),
}
_REPEATABLE = frozenset({"handlers", "capabilities", "middleware"})
_NOT_IN_PLAN = ("once", "drain", "grace", "worker_id", "tasks", "reload", "store", "as_json", "log_format")


def command(words: Sequence[str]) -> Callable[[], int] | None:
    """Return a function that runs the command in these arguments; None if only the full (slower) parser can parse them."""
    if list(words) == ["--version"]:
        return _version
    try:
        if list(words[:1]) == ["worker"]:
            return _worker(words[1:])
        if list(words[:2]) == ["pool", "work"]:
            return _pool_work(words[2:])
    except _UseFullParser:
        return None
    return None


def _version() -> int:
    from drumbeat import __version__

    print(f"drumbeat {__version__}")
    return 0


def _worker(words: Sequence[str]) -> Callable[[], int]:
    found, rest = read(words, WORKER)
    if rest or len(found) < len(WORKER):
        raise _UseFullParser

    def start() -> int:
        from drumbeat.cli.run_worker import run_spawned_worker

        return run_spawned_worker(**found)

    return start


def _pool_work(words: Sequence[str]) -> Callable[[], int]:
    found, rest = read(words, POOL_WORK)
    if len(rest) != 1:
        raise _UseFullParser
    more = {name: found.pop(name) for name in _NOT_IN_PLAN if name in found}

    def start() -> int:
        from drumbeat.cli.run_worker import run_job_worker

        return run_job_worker(rest[0], found, **more)

    return start


def read(words: Sequence[str], readers: Readers) -> tuple[dict[str, Any], list[str]]:
    """Parse arguments into options (by parameter name) and positional arguments. Raises _UseFullParser if it cannot."""
    found: dict[str, Any] = {}
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            rest.append(word)
            continue
        name, reader = readers.get(option, (None, None))
        if name is None or (name in found and name not in _REPEATABLE) or (reader is None and equals):
            raise _UseFullParser
        given = True if reader is None else reader(value if equals else next(remaining, "-"))
        if name in _REPEATABLE:
            found.setdefault(name, []).append(given)
        else:
            found[name] = given
    return found, rest
