"""Values as people and programs read them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from drumbeat.cli.render import sentence, table, text, to_json
from drumbeat.core.histogram import Histogram
from drumbeat.core.worker import WorkerStatus


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (3, "3"),
        (2.25, "2.2"),
        (True, "True"),
        ("", ""),
        (WorkerStatus.ACTIVE, "active"),
        (datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), "2026-01-02 03:04:05"),
        (timedelta(seconds=1.5), "1.5 s"),
    ],
)
def test_a_value_at_a_glance(value: object, shown: str) -> None:
    assert text(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.0004, "0 ms"),
        (0.25, "250 ms"),
        (1, "1.0 s"),
        (119, "119.0 s"),
        (120, "2 min"),
        (7200, "2 h"),
        (65969 * 60, "46 days"),
    ],
)
def test_a_duration_at_a_glance(seconds: float, shown: str) -> None:
    assert text(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"type": "Spawn", "worker_id": "w", "reason": "why"}, "Spawn w: why"),
        ({"type": "MarkLost", "worker": {"worker_id": "w"}, "reason": "why"}, "MarkLost w: why"),
        ({"type": "Reap", "worker_id": "w", "reason": "why", "error": "no"}, "Reap w: why  [not done: no]"),
        ({"type": "Wait", "reason": "why"}, "Wait: why"),
    ],
)
def test_an_action_is_a_sentence(action: dict[str, Any], said: str) -> None:
    assert sentence(action) == said


def test_json_keeps_times_and_durations_readable() -> None:
    value = {"at": datetime(2026, 1, 1, tzinfo=UTC), "took": timedelta(seconds=1.5), "status": WorkerStatus.LOST, 1: (2, None)}

    assert json.loads(to_json(value)) == {"at": "2026-01-01T00:00:00Z", "took": "PT1.5S", "status": "lost", "1": [2, None]}


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert json.loads(to_json(Histogram())) == {
        "count": 0,
        "mean_ms": None,
        "p50_ms": None,
        "p95_ms": None,
        "p99_ms": None,
    }


def test_what_has_no_json_is_shown_as_its_text() -> None:
    assert json.loads(to_json({"odd": object})) == {"odd": "<class 'object'>"}


@pytest.mark.parametrize("awkward", ["[red]x[/]", "[/closing]", ":smile:", "[link=x]", "\\[x]"])
def test_a_cell_is_shown_as_it_is(awkward: str) -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(table([awkward], {"what": lambda row: row}))

    assert capture.get().splitlines()[1].rstrip() == awkward


def test_a_cell_may_have_a_style() -> None:
    drawn = table(["x"], {"what": lambda row: Text(row, style="red")})

    assert list(drawn.columns[0].cells) == [Text("x", style="red")]
