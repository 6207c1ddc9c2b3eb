"""The short way reads exactly the options that the commands have, and leaves everything odd to the whole command line."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli.given import ran
from drumbeat.cli.commands import full_app
from drumbeat.cli.fast_start import POOL_WORK, WORKER, Readers, command

GIVEN = ("worker", "--run-id", "p", "--worker-id", "w", "--worker-group-id", "0", "--worker-group-count", "2")


def options(*path: str) -> set[str]:
    found: Any = typer.main.get_command(full_app())
    for name in path:
        found = found.commands[name]
    return {spelt for each in found.params for spelt in each.opts if spelt.startswith("--")} - {"--help"}


@pytest.mark.parametrize(("readers", "path"), [(WORKER, ("worker",)), (POOL_WORK, ("pool", "work"))])
def test_every_option_has_a_short_way(readers: Readers, path: tuple[str, ...]) -> None:
    assert set(readers) == options(*path)


@pytest.mark.parametrize("words", [GIVEN, ("pool", "work", "p", "--once", "--handler=m:f", "--concurrency", "4", "--json")])
def test_what_is_plain_goes_the_short_way(words: tuple[str, ...]) -> None:
    assert command(words) is not None


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("pool", "list"),
        (*GIVEN, "--help"),
        GIVEN[:-1],
        GIVEN[:-2],
        (*GIVEN, "--unknown", "x"),
        (*GIVEN[:-1], "many"),
        ("pool", "work"),
        ("pool", "work", "p", "q"),
        ("pool", "work", "p", "--concurrency", "0"),
        ("pool", "work", "p", "--executor", "magic"),
        ("pool", "work", "p", "--once=yes"),
        ("pool", "work", "p", "--lease"),
        ("pool", "work", "p", "--lease", "9s", "--lease", "8s"),
    ],
)
def test_anything_else_goes_the_long_way(words: tuple[str, ...]) -> None:
    assert command(words) is None


def test_a_one_shot_worker_loads_little(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/drumbeat.db"
    assert ran("pool", "push", "p", "1", cwd=tmp_path, DRUMBEAT_STORE=store).code == 0
    program = (
        "import sys; sys.argv = ['drumbeat', 'pool', 'work', 'p', '--once', '--handler', 'command:cat']\n"
        "from drumbeat.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as exc: print(exc.code, *sorted(name for name in sys.modules if '.' not in name))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"DRUMBEAT_STORE": store}, capture_output=True, text=True, check=True
    )

    code, *modules = done.stdout.split()
    assert code == "0", done.stderr
    assert {"sqlite3"} <= set(modules)
    assert not {"numpy", "pyarrow", "rich", "asyncpg", "typer", "pydantic", "redis", "flatmachines"} & set(modules)
