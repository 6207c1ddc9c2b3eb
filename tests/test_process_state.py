"""The guard over what belongs to the whole process: each change is named, and a test that leaves one behind fails."""

import csv
import decimal
import gc
import locale
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from process_state import changes, pytest_runtest_setup, pytest_runtest_teardown, snapshot

LOGGER = logging.getLogger("drumbeat.test_process_state")
FOREIGN = logging.getLogger("somebody.else")
NOTHING = logging.NullHandler()

_RECURSION, _FOLDER = sys.getrecursionlimit(), Path.cwd()
_UMASK = os.umask(0o022)
os.umask(_UMASK)

Step = Callable[[], object]

CASES: list[tuple[str, Step, Step]] = [
    ("csv.field_size_limit", lambda: csv.field_size_limit(7), lambda: csv.field_size_limit(131_072)),
    ("sys.setswitchinterval", lambda: sys.setswitchinterval(0.5), lambda: sys.setswitchinterval(0.005)),
    ("sys.setrecursionlimit", lambda: sys.setrecursionlimit(5000), lambda: sys.setrecursionlimit(_RECURSION)),
    ("socket.setdefaulttimeout", lambda: socket.setdefaulttimeout(9), lambda: socket.setdefaulttimeout(None)),
    ("the variable b'LEFT_BEHIND'", lambda: os.environ.update(LEFT_BEHIND="1"), lambda: os.environ.pop("LEFT_BEHIND")),
    (
        "the handler of SIGUSR1",
        lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
        lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL),
    ),
    ("the umask", lambda: os.umask(0o123), lambda: os.umask(_UMASK)),
    ("the logger drumbeat.test_process_state", lambda: LOGGER.setLevel(7), lambda: LOGGER.setLevel(logging.NOTSET)),
    ("the logger somebody.else", lambda: FOREIGN.addHandler(NOTHING), lambda: FOREIGN.removeHandler(NOTHING)),
    ("sys.path", lambda: sys.path.append("/nowhere"), lambda: sys.path.remove("/nowhere")),
    (
        "the decimal context",
        lambda: setattr(decimal.getcontext(), "prec", 5),
        lambda: setattr(decimal.getcontext(), "prec", 28),
    ),
    ("the garbage collector", gc.disable, gc.enable),
    ("the locale", lambda: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8"), lambda: locale.setlocale(locale.LC_NUMERIC, "C")),
    ("logging.disable", lambda: logging.disable(5), lambda: logging.disable(logging.NOTSET)),
    ("the current folder", lambda: os.chdir("/"), lambda: os.chdir(_FOLDER)),
]


@pytest.mark.parametrize(("name", "change", "undo"), CASES, ids=[name for name, _, _ in CASES])
def test_a_change_is_named(name: str, change: Step, undo: Step) -> None:
    before = snapshot()
    change()
    try:
        [found] = changes(before, snapshot())
    finally:
        undo()

    assert found.startswith(f"{name} was ")
    assert changes(before, snapshot()) == []


def test_a_logger_of_ours_that_is_new_and_set_up_is_named_and_others_are_not() -> None:
    before = snapshot()
    logging.getLogger("another.package").setLevel(logging.INFO)
    logging.getLogger("drumbeat.only_made")
    new = logging.getLogger("drumbeat.made_and_set_up")
    new.setLevel(logging.INFO)
    try:
        [found] = changes(before, snapshot())
    finally:
        new.setLevel(logging.NOTSET)

    assert found.startswith("the logger drumbeat.made_and_set_up was None and is ")


def test_a_test_that_leaves_a_change_behind_fails() -> None:
    item: Any = SimpleNamespace(stash=pytest.Stash())
    _all(pytest_runtest_setup(item))
    csv.field_size_limit(7)
    try:
        with pytest.raises(pytest.fail.Exception, match=r"the whole process: csv\.field_size_limit was 131072 and is 7$"):
            _all(pytest_runtest_teardown(item))
    finally:
        csv.field_size_limit(131_072)
    _all(pytest_runtest_teardown(item))


def _all(steps: Iterator[None]) -> None:
    for _ in steps:
        continue
