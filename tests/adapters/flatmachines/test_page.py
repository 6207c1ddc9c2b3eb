"""What docs/flatmachines.md lists is what there is."""

import re

from docs.pages import page, quoted, rows, section
from drumbeat.adapters.flatmachines.actions import ACTIONS
from drumbeat.adapters.flatmachines.runner import parser


def test_the_page_lists_every_action() -> None:
    listed = [row[0].strip("`") for row in rows(section(page("flatmachines"), "## Hooks"))]
    assert sorted(listed) == sorted(ACTIONS)


def test_the_page_lists_every_flag() -> None:
    words = " ".join(quoted(section(page("flatmachines"), "## The runner")))
    flags = {option for action in parser()._actions for option in action.option_strings if option.startswith("--")}
    assert set(re.findall(r"--[a-z-]+", words)) == flags - {"--help"}
