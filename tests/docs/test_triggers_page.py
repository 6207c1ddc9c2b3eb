"""The page on triggers knows every action, type, machine, key, header and limit; its example is taken as it stands."""

import re
from typing import get_args

from docs.pages import page, quoted, rows, section
from drumbeat.pool import decide
from drumbeat.pool.beats import MAX_WAIT
from drumbeat.pool.model import Action, PoolPolicy
from drumbeat.triggers import webhook
from drumbeat.triggers.deliveries import PATH
from drumbeat.triggers.file import _KINDS, _SPELLINGS, Input, parse_triggers
from drumbeat.triggers.model import BeatKind, TriggerType

TEXT = page("triggers")


def first_cells(heading: str) -> set[str]:
    return {row[0].strip("`") for row in rows(section(TEXT, heading))}


def test_every_machine_is_there() -> None:
    assert {row[0].strip("`") for row in rows(TEXT.partition("## ")[0])} == set(BeatKind)


def test_every_action_is_there() -> None:
    assert first_cells("## What a beat decides") == {getattr(action, "TYPE", action.__name__) for action in get_args(Action)}


def test_every_type_and_key_is_there() -> None:
    told = section(TEXT, "## triggers.yml")

    assert {*TriggerType, *_SPELLINGS, *BeatKind} <= quoted(told)
    assert first_cells("## triggers.yml") == {field for kind in _KINDS.values() for field in kind.model_fields}
    assert set(Input.model_fields) <= quoted(told)


def test_the_example_is_taken_as_it_stands() -> None:
    found = re.search(r"```yaml\n(.*?)```", TEXT, re.DOTALL)

    assert found
    assert len(parse_triggers(found[1])) == 4


def test_every_header_is_there() -> None:
    assert {webhook.TIMESTAMP, webhook.SIGNATURE, webhook.KEY} <= first_cells("## Webhook")
    assert f"POST {PATH}NAME" in section(TEXT, "## Webhook")


def test_the_limits_are_as_they_are() -> None:
    assert f"{webhook.LARGEST_BODY // 1024} KiB at most" in TEXT
    assert f"at most {webhook.WINDOW.total_seconds() / 60:g} minutes from now" in TEXT
    assert f"at least {webhook.LEAST_SECRET} characters" in TEXT
    assert f"at most {decide.MOST_REAPED} a beat" in TEXT
    assert f"no instance for {decide.SHOW_WITHIN.total_seconds():g} seconds" in TEXT
    assert f"waits up to {MAX_WAIT.total_seconds():g} seconds" in TEXT
    assert f"`max_workers` in the pool's policy, {PoolPolicy().max_workers} at first" in TEXT
