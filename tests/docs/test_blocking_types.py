"""The types of a pool without await are those of the class Pool, and the blocking connection has every method of the other."""

import inspect

from docs.blocking_types import TARGET, generated
from drumbeat.blocking_pool import BlockingPool, BlockingSchedules
from drumbeat.client import BlockingConnection, Connection, Pool, Schedules


def public(kind: type) -> set[str]:
    return {name for name, value in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


def test_the_types_of_a_pool_without_await_are_current() -> None:
    assert TARGET.read_text(encoding="utf-8") == generated(), "run: .venv/bin/python tests/docs/blocking_types.py"


def test_every_method_has_a_counterpart_without_await() -> None:
    assert public(BlockingPool) == public(Pool)
    assert public(BlockingSchedules) == public(Schedules)
    assert public(BlockingConnection) == public(Connection)
