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
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from process_state import Guard, changes, snapshot

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

    assert found == name
    assert changes(before, snapshot()) == {}


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

    assert found == "the logger drumbeat.made_and_set_up"


def test_a_file_whose_tests_leave_a_change_behind_fails_and_the_test_is_named() -> None:
    guard = Guard()
    assert _passed(guard, "test_one.py::test_innocent", "test_one.py") is None
    csv.field_size_limit(7)
    try:
        assert _passed(guard, "test_one.py::test_guilty", "test_one.py") is None
        failed = _passed(guard, "test_one.py::test_last", "test_two.py")
    finally:
        csv.field_size_limit(131_072)

    assert str(failed).endswith(": csv.field_size_limit was 131072 and is 7, since test_one.py::test_guilty")
    assert _passed(guard, "test_two.py::test_first", None) is None


def test_a_change_that_is_undone_within_its_file_fails_nothing() -> None:
    guard = Guard()
    assert _passed(guard, "test_one.py::test_first", "test_one.py") is None
    csv.field_size_limit(7)
    try:
        assert _passed(guard, "test_one.py::test_in_between", "test_one.py") is None
    finally:
        csv.field_size_limit(131_072)
    assert _passed(guard, "test_one.py::test_last", None) is None


def _passed(guard: Guard, nodeid: str, next_file: str | None) -> BaseException | None:
    """Lets the guard see a test come and go; what it fails the test with."""
    item: Any = SimpleNamespace(nodeid=nodeid, path=nodeid.partition("::")[0])
    following: Any = next_file and SimpleNamespace(path=next_file)
    try:
        for step in (guard.pytest_runtest_setup(item), guard.pytest_runtest_teardown(item, following)):
            list(step)
    except pytest.fail.Exception as exc:
        return exc
    return None
