"""The page on the command line knows every command, option, exit code and setting."""

import typer

from docs.cli_page import COMPLETION, MARK, commands, options, reference
from docs.pages import page, quoted, rows, section
from drumbeat.cli import main
from drumbeat.core.retention import FOR_EVER, USUAL, read_retention
from drumbeat.settings import DEFAULT_FILE, DEFAULT_STORE, RETENTION_VARIABLE, STATE_DIR_VARIABLE, STORE_VARIABLE


def test_the_commands_are_written_as_they_are() -> None:
    _, mark, written = page("cli").partition(MARK)

    assert mark
    assert written.strip() == reference().strip(), "run: .venv/bin/python tests/docs/cli_page.py"


def test_every_command_and_option_is_there() -> None:
    found = dict(commands())

    assert {"drumbeat store init", "drumbeat workers list", "drumbeat worker", "drumbeat demo"} <= set(found)
    for name, command in found.items():
        told = section(page("cli"), next(line for line in page("cli").splitlines() if line.startswith(f"### `{name}")))
        assert {spelt for option in options(command) for spelt in option.opts if spelt.startswith("-")} <= quoted(told)


def test_the_options_of_all_commands_are_there() -> None:
    root = typer.main.get_command(main.app)

    told = page("cli")

    assert {spelt for each in root.params for spelt in each.opts} == {"--version", *COMPLETION}
    assert f"drumbeat {COMPLETION[0]}" in told
    assert "drumbeat --help" in told
    assert "drumbeat --version" in told


def test_every_exit_code_is_there() -> None:
    codes = {str(value) for name, value in vars(main).items() if name.startswith("EXIT_")}

    assert {row[0] for row in rows(section(page("cli"), "## Exit codes"))} == codes | {"0"}


def test_every_setting_is_there() -> None:
    told = section(page("cli"), "## Settings")

    assert {STORE_VARIABLE, STATE_DIR_VARIABLE, DEFAULT_STORE, str(DEFAULT_FILE)} <= quoted(told)
    wanted = {"store": STORE_VARIABLE, "state_dir": STATE_DIR_VARIABLE, "retention": RETENTION_VARIABLE}
    assert [row[:2] for row in rows(told)] == [[f"`{name}`", f"`{variable}`"] for name, variable in wanted.items()]
    assert read_retention(rows(told)[2][2].strip("`"), FOR_EVER) == USUAL
