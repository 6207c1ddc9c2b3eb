"""Which tasks a module has, and whether a name is that of a module with tasks."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.tasks.discover import defines_tasks, is_module, tasks_of

WriteModule = Callable[[str, str], Path]


def test_tasks_are_found_by_pool() -> None:
    found = {pool: sorted(task.__name__ for task in tasks) for pool, tasks in tasks_of("tasks.examples").items()}

    assert found["mail"] == ["send", "send_last"]
    assert found["orders"] == ["ship"]
    assert "add" in found["default"]


def test_a_copy_of_a_task_for_another_pool_is_found_too(write_module: WriteModule, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import drumbeat\n@drumbeat.task\ndef send(): ...\nurgent = send.with_options(pool='urgent', priority=9)"
    monkeypatch.syspath_prepend(write_module("two_pools", text).parent)

    assert {pool: [task.task_name for task in tasks] for pool, tasks in tasks_of("two_pools").items()} == {
        "default": ["two_pools.send"],
        "urgent": ["two_pools.send"],
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "expected a module with tasks, got 'odd_tasks', which has none"),
        ("import nothing_of_this_name", "cannot import module 'odd_tasks': ModuleNotFoundError: No module named"),
        ("def f(:", "cannot import module 'odd_tasks': SyntaxError"),
        ("raise SystemExit(3)", "cannot import module 'odd_tasks': SystemExit: 3"),
        ("x = 1\n\nx.y", r"AttributeError: 'int' object has no attribute 'y' \(.*odd_tasks\.py, line 3\)"),
        (
            "import drumbeat\n@drumbeat.task(name='a')\ndef f(): ...\n@drumbeat.task(name='a')\ndef g(): ...",
            "module 'odd_tasks' has two tasks with the name 'a': odd_tasks:f and odd_tasks:g",
        ),
    ],
)
def test_a_module_that_cannot_be_used_is_named(
    write_module: WriteModule, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.syspath_prepend(write_module("odd_tasks", text).parent)

    with pytest.raises(InvalidInput, match=says):
        tasks_of("odd_tasks")


def test_a_name_that_is_no_module_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"expected the name of a module, such as app\.tasks, got 'a b'"):
        tasks_of("a b")
    assert [is_module(name) for name in ("a b", "nothing.of.this", "nothing", "json", "os.path")] == [False] * 3 + [True] * 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import drumbeat\n@drumbeat.task\ndef f(): ...", True),
        ("from drumbeat import task\n@task(pool='x')\nasync def f(): ...", True),
        ("import drumbeat\ndef f(task): ...", False),
        ("raise RuntimeError('it must not be imported')", False),
        ("def f(:", False),
    ],
)
def test_a_file_is_looked_through_without_importing_it(
    write_module: WriteModule, tmp_path: Path, text: str, found: bool
) -> None:
    write_module("shop.jobs", text)

    assert defines_tasks("shop.jobs", tmp_path) is found
    assert not defines_tasks("shop", tmp_path)
    assert not defines_tasks("../shop", tmp_path)
