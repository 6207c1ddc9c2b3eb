"""The page on fleets knows every field and variable of a policy, and is right in its example and its rules."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from docs.fleet_page import MARK, meanings, reference
from docs.pages import page, quoted, section
from drumbeat.core.errors import InvalidSettings
from drumbeat.fleet.model import FleetPolicy
from drumbeat.fleet.model.bounds import NEVER_ZERO
from drumbeat.fleet.settings import _SCHEDULE, load_policy, read_policy
from drumbeat.web.api.metrics_fleet import FLEET_HELP

SETTINGS = section(page("fleet"), "## Settings")
(EXAMPLE,) = re.findall(r"```yaml\n(.*?)```", SETTINGS, re.DOTALL)


def test_the_fields_and_variables_are_written_as_they_are() -> None:
    _, mark, written = page("fleet").partition(MARK)

    assert mark
    assert written.strip() == reference().strip(), "run: .venv/bin/python tests/docs/fleet_page.py"


def test_every_field_says_what_it_means() -> None:
    assert meanings().keys() == {each.name for each in fields(FleetPolicy)}


def test_the_example_is_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text(EXAMPLE, encoding="utf-8")

    policy = load_policy({}, file)

    assert (policy.max_workers, len(policy.schedules), policy.max_per_day) == (20, 2, 40)


def test_everything_a_schedule_has_is_there() -> None:
    assert quoted(SETTINGS) >= _SCHEDULE


def test_what_the_page_says_of_times_is_so() -> None:
    assert read_policy({"graceful_shutdown_timeout": 0, "idle_timeout": 0, "cooldown_up": 0, "every": 0.1}).every
    for name in (*NEVER_ZERO, "every"):
        with pytest.raises(InvalidSettings, match=name):
            read_policy({name: 0})


def test_every_metric_of_a_fleet_is_there() -> None:
    told = quoted(section(page("fleet"), "## Metrics"))

    assert sorted(FLEET_HELP) == sorted(name for name in told if name in FLEET_HELP)
