"""How the command line is put together: no more of it than is asked for."""

import pytest

from drumbeat.cli.commands import COMMANDS, GROUPS, asked, whole


@pytest.mark.parametrize("name", [*GROUPS, *COMMANDS])
def test_what_is_named_at_once_is_all_that_is_put_together(name: str) -> None:
    app = asked([name, "--help"])

    names = [group.name for group in app.registered_groups] + [command.name for command in app.registered_commands]
    assert names == [name]


@pytest.mark.parametrize("words", [[], ["--help"], ["nonsense"], ["--install-completion"]])
def test_for_anything_else_all_of_it_is(words: list[str]) -> None:
    assert asked(words) is whole()
