"""The page on engines lists every kind and setting as it is, and its example can be read."""

import re
import tomllib
from dataclasses import fields
from textwrap import dedent

from docs.engines_page import MARK, meanings, reference
from docs.pages import page, section
from drumbeat.composition.engine_kinds import KINDS
from drumbeat.composition.engine_settings import read_settings
from drumbeat.composition.worker_check import MOST_CLOCK_OFFSET


def test_the_kinds_and_settings_are_written_as_they_are() -> None:
    _, mark, written = page("engines").partition(MARK)

    assert mark
    assert written.strip() == reference().strip(), "run: .venv/bin/python tests/docs/engines_page.py"


def test_every_setting_says_what_it_means() -> None:
    for kind in KINDS.values():
        said = meanings(kind.settings_class)
        assert [each.name for each in fields(kind.settings_class) if each.name not in said] == [], kind.name


def test_the_example_can_be_read() -> None:
    examples = re.findall(r"```toml\n(.*?)\n *```", page("engines"), re.DOTALL)
    tables = [pair for text in examples for pair in tomllib.loads(dedent(text))["engines"].items()]
    for name, table in tables:
        kind = KINDS[table.pop("kind")]
        read_settings(kind.settings_class, table, f"engine {name}")
    assert {name for name, _ in tables} >= {"here", "box", "cluster", "hpc", "k8s", "rays", "snow"}


def test_every_step_of_a_check_is_explained() -> None:
    checks = section(page("engines"), "## Checking an engine")

    steps = re.findall(r"^ok    (\w+(?: up)?) ", checks, re.MULTILINE)
    assert steps == ["settings", "reach", "start", "join", "clock", "drain", "leave", "clean up"]
    assert all(f"`{step}`" in checks for step in steps)
    assert f"more than {MOST_CLOCK_OFFSET.total_seconds():g} s" in checks
