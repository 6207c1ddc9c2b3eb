"""The page on the loop knows every action."""

from typing import get_args

from docs.pages import page, rows, section
from drumbeat.fleet.model import Action


def test_every_action_of_a_fleet_is_there() -> None:
    told = {row[0].strip("`") for row in rows(section(page("loop"), "## What a fleet decides"))}

    assert told == {action.__name__ for action in get_args(Action)}
