"""What belongs to the whole process. Tests that leave it changed fail: the tests of other files would depend on them."""

import asyncio
import csv
import decimal
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

_SIGNALS = tuple(
    number for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM)
)  # which pytest-timeout sets
_OF_PYTEST = b"PYTEST_CURRENT_TEST"  #: pytest sets this variable itself, for each phase of a test
_LOGGER = "the logger "
_UNTOUCHED = (logging.NOTSET, True, False, (), ())  #: how a logger is made
_STATUS = "/proc/self/status"

_READERS: Mapping[str, Callable[[], Any]] = {
    "the asyncio event loop policy": asyncio.get_event_loop_policy,
    "csv.field_size_limit": csv.field_size_limit,
    "the current folder": os.getcwd,
    "the decimal context": lambda: repr(decimal.getcontext()).partition(", flags")[0],
    "faulthandler": faulthandler.is_enabled,
    "the garbage collector": lambda: (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0),
    "the locale": lambda: locale.setlocale(locale.LC_ALL),
    "logging.disable": lambda: logging.root.manager.disable,
    "the multiprocessing start method": lambda: multiprocessing.get_start_method(allow_none=True),
    "the limit on open files": lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
    "the limit on core files": lambda: resource.getrlimit(resource.RLIMIT_CORE),
    "the scheduling priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "socket.setdefaulttimeout": socket.getdefaulttimeout,
    "sys.argv": lambda: tuple(sys.argv),
    "sys.dont_write_bytecode": lambda: sys.dont_write_bytecode,
    "sys.excepthook": lambda: sys.excepthook,
    "sys.path": lambda: tuple(sys.path),
    "sys.setrecursionlimit": sys.getrecursionlimit,
    "sys.setswitchinterval": sys.getswitchinterval,
    "tempfile.tempdir": lambda: tempfile.tempdir,
    "threading.excepthook": lambda: threading.excepthook,
    "the umask": lambda: _umask(),
}

Snapshot = Mapping[str, Mapping[Any, Any]]


def snapshot() -> Snapshot:
    """Everything that belongs to the process, in groups; taken after each test, so it must be quick."""
    return {
        "": {name: read() for name, read in _READERS.items()},
        "the handler of ": dict(zip(_SIGNALS, map(signal.getsignal, _SIGNALS), strict=True)),
        "the variable ": {name: value for name, value in _variables().items() if name != _OF_PYTEST},
        _LOGGER: {each.name: _set_up(each) for each in _loggers()},
    }


def changes(before: Snapshot, after: Snapshot) -> Mapping[str, str]:
    """What is not as it was, by its name. A new logger of another package is no change: importing the package sets it up."""
    return {
        f"{group}{getattr(name, 'name', name)}": f"was {was.get(name)!r} and is {now.get(name)!r}"
        for group, was in before.items()
        if was != (now := after[group])
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name) and (name in was or not _is_new(group, name, now[name]))
    }


class Guard:
    """Fails the last test of a file that leaves something changed, and names the test after which it was first seen."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._since: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        if self._before is None:
            self._before, self._since = snapshot(), {}
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        yield
        assert self._before is not None
        found = changes(self._before, snapshot())
        for name in found:
            self._since.setdefault(name, item.nodeid)
        if nextitem is None or nextitem.path != item.path:
            self._before = None
            self._expect_none(found)

    def _expect_none(self, found: Mapping[str, str]) -> None:
        told = [f"{name} {how}, since {self._since[name]}" for name, how in found.items()]
        if told:
            pytest.fail("tests of this file leave changed what belongs to the whole process: " + "; ".join(told), pytrace=False)


def _umask() -> str:
    """As the kernel tells it: os.umask cannot read without setting. Elsewhere than on Linux nobody looks."""
    if not os.path.exists(_STATUS):
        return ""
    with open(_STATUS, encoding="ascii", errors="replace") as status:
        return next(line for line in status if line.startswith("Umask"))


def _variables() -> Mapping[bytes, bytes]:
    return os.environ._data  # type: ignore[attr-defined,no-any-return]  # what os.environ decodes at each reading


def _loggers() -> Iterator[logging.Logger]:
    yield logging.root
    yield from (each for each in list(logging.root.manager.loggerDict.values()) if isinstance(each, logging.Logger))


def _is_new(group: str, name: Any, value: Any) -> bool:
    """Whether it is a logger that was only made, or set up by a package of others."""
    return group == _LOGGER and (value == _UNTOUCHED or not name.startswith("drumbeat"))


def _set_up(logger: logging.Logger) -> tuple[Any, ...]:
    return (logger.level, logger.propagate, logger.disabled, tuple(logger.handlers), tuple(logger.filters))
