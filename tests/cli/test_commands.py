"""How the command line is put together: no more of it than is asked for."""

import logging
import sys
from pathlib import Path

import pytest

from cli.given import ran
from drumbeat.cli.commands import COMMANDS, GROUPS, app_for, full_app


@pytest.mark.parametrize("name", [*GROUPS, *COMMANDS])
def test_what_is_named_at_once_is_all_that_is_put_together(name: str) -> None:
    app = app_for([name, "--help"])

    names = [group.name for group in app.registered_groups] + [command.name for command in app.registered_commands]
    assert names == [name]


@pytest.mark.parametrize("words", [[], ["--help"], ["nonsense"], ["--install-completion"]])
def test_for_anything_else_all_of_it_is(words: list[str]) -> None:
    assert app_for(words) is full_app()


def test_a_command_leaves_nothing_behind_in_the_process_that_runs_it(tmp_path: Path) -> None:
    handlers, places = list(logging.getLogger("drumbeat").handlers), list(sys.path)

    assert ran("--help", cwd=tmp_path).code == 0

    assert (logging.getLogger("drumbeat").handlers, sys.path) == (handlers, places)


def test_what_a_handler_imports_while_it_works_is_found_in_the_commands_folder(url: str, tmp_path: Path) -> None:
    (tmp_path / "handler_that_imports.py").write_text(
        "def work(payload):\n    import imported_late\n    return imported_late.ANSWER\n"
    )
    (tmp_path / "imported_late.py").write_text("ANSWER = 42\n")
    assert ran("pool", "push", "p", "1", "--store", url, cwd=tmp_path).code == 0

    said = ran("pool", "work", "p", "--once", "--handler", "handler_that_imports:work", "--store", url, cwd=tmp_path)

    assert (said.code, said.errors) == (0, "1 attempt ended: 1 job is done, 0 failed\n")


def test_a_worker_tells_that_a_job_waits_for_an_event(url: str, tmp_path: Path) -> None:
    (tmp_path / "handler_that_waits.py").write_text(
        "from drumbeat import JobContext\nasync def work(context: JobContext) -> None:\n    await context.wait_for('paid')\n"
    )
    assert ran("pool", "push", "p", "1", "--store", url, cwd=tmp_path).code == 0

    said = ran("pool", "work", "p", "--drain", "--handler", "handler_that_waits:work", "--store", url, cwd=tmp_path)

    assert (said.code, said.errors) == (0, "1 attempt ended: 0 jobs are done, 0 failed, 1 suspended\n")
