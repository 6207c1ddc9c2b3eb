"""Every command explains itself, and can be completed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from cli.given import drumbeat, invoke, ran
from drumbeat import __version__
from drumbeat.cli.main import app
from drumbeat.core.worker import ExitCode


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The full names of all commands below one."""
    for name, child in getattr(command, "commands", {}).items():
        if hasattr(child, "commands"):
            yield from commands(child, (*path, name))
        else:
            yield " ".join((*path, name))


COMMANDS = tuple(commands(typer.main.get_command(app)))
READING = tuple(name for name in COMMANDS if name.endswith((" list", " show", " check")))


def help_of(*path: str) -> str:
    """The help of a command, as on a wide terminal, without its frames."""
    done = CliRunner().invoke(app, [*path, "--help"], prog_name="drumbeat", env={"TERMINAL_WIDTH": "300", "COLUMNS": "300"})
    assert done.exit_code == 0
    return " ".join(done.stdout.replace("│", " ").split())


def test_the_seeds_and_the_stores_commands_are_there() -> None:
    assert {"worker", "demo", "store init", "store migrate", "store check", "store prune"} < set(COMMANDS)
    assert len(READING) >= 9


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    said = help_of(*name.split())

    assert f"Usage: drumbeat {name} [OPTIONS]" in said
    assert "--help" in said


@pytest.mark.parametrize("group", ["", *sorted({name.split()[0] for name in COMMANDS if " " in name})])
def test_every_group_lists_its_commands(group: str) -> None:
    said = help_of(*group.split())

    assert all(name.removeprefix(group).split()[0] in said for name in COMMANDS if name.startswith(group))


@pytest.mark.parametrize("name", [*READING, "store prune"])
def test_every_reading_command_can_speak_json(name: str) -> None:
    assert "--json" in help_of(*name.split())


@pytest.mark.parametrize("name", [*READING, "store init", "store migrate", "store prune", "demo"])
def test_a_store_can_be_given(name: str) -> None:
    assert "--store" in help_of(*name.split())


def test_a_workers_store_is_never_on_its_command_line() -> None:
    said = help_of("worker")

    assert "--store" not in said
    assert "DRUMBEAT_STORE" in said


def test_exit_codes_are_documented() -> None:
    assert "Exit codes: 0 done, 1 bad input, unknown name or store not ready" in help_of()
    assert "2 the store did not answer, 130 interrupted" in help_of()
    assert "Exit code 1 when something is wrong" in help_of("store", "check")


def test_every_exit_code_of_a_worker_is_documented() -> None:
    _, _, codes = help_of("worker").partition("Exit codes: ")

    assert [int(part.split()[0]) for part in codes.partition(".")[0].split(", ")] == [int(code) for code in ExitCode]


def test_the_version_is_told() -> None:
    assert invoke("--version").output == f"drumbeat {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(tmp_path: Path, shell: str) -> None:
    said = ran(cwd=tmp_path, _DRUMBEAT_COMPLETE=f"source_{shell}")

    assert said.code == 0
    assert "_DRUMBEAT_COMPLETE=complete_" in said.output


def test_completion_can_be_shown_and_installed(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    shown = drumbeat("--show-completion", "bash", cwd=tmp_path, **variables)
    installed = drumbeat("--install-completion", "bash", cwd=tmp_path, **variables)

    assert (shown.code, installed.code) == (0, 0)
    assert "complete -o default -F _drumbeat_completion drumbeat" in shown.output
    assert "drumbeat" in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("drumbeat st", ["store"]),
        ("drumbeat store ", ["init", "migrate", "check", "prune", "copy"]),
        ("drumbeat beats sh", ["show"]),
    ],
)
def test_words_are_completed(tmp_path: Path, words: str, expected: list[str]) -> None:
    position = str(len(words.split(" ")) - 1)

    said = ran(cwd=tmp_path, _DRUMBEAT_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=position)

    assert said.output.split() == expected
