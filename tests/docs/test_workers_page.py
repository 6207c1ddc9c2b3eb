"""The page on workers knows every status, event, exit code and threshold."""

from dataclasses import fields

import pytest

from docs.pages import page, quoted, rows, section
from drumbeat.core.event import EventType, Scope
from drumbeat.core.log import LONGEST_MESSAGE
from drumbeat.core.pool import PRESETS, PoolKind, Thresholds
from drumbeat.core.worker import ExitCode, Health, WorkerStatus
from drumbeat.runtime.event_handler import RECONCILE_EVERY
from drumbeat.runtime.logs import CAPACITY, FLUSH_EVERY
from drumbeat.runtime.sampling import MOST_KEPT
from drumbeat.runtime.store_connection import FIRST_PAUSE, LONGEST_PAUSE
from drumbeat.store.interface import BATCH

TEXT = page("workers")


def first_cells(heading: str) -> list[str]:
    return [row[0] for row in rows(section(TEXT, heading))]


def test_every_status_is_there() -> None:
    assert first_cells("## A worker's life") == [f"`{status}`" for status in WorkerStatus]


def test_every_health_is_there() -> None:
    assert {str(health) for health in Health} <= quoted(section(TEXT, "## A worker's life"))


def test_every_event_type_and_scope_is_there() -> None:
    assert first_cells("## Events") == [f"`{kind}`" for kind in EventType]
    assert {str(scope) for scope in Scope} <= quoted(section(TEXT, "## Events"))


def test_every_exit_code_is_there() -> None:
    told = [row[:2] for row in rows(section(TEXT, "## Exit codes"))]

    assert told == [[str(code.value), code.name.lower().replace("_", " ")] for code in ExitCode]


def test_every_threshold_is_there_with_its_defaults() -> None:
    kinds = (PoolKind.BENCH, PoolKind.JOBS, PoolKind.FLEET)
    defaults = [
        [f"`{field.name}`", *(f"{getattr(PRESETS[kind], field.name).total_seconds():g}" for kind in kinds)]
        for field in fields(Thresholds)
    ]

    assert [row[:4] for row in rows(section(TEXT, "## Thresholds"))] == defaults


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("## A worker's life", f"up to {BATCH} events"),
        ("## Events", f"Every {RECONCILE_EVERY.total_seconds():g} seconds"),
        ("## While the store is away", f"up to {MOST_KEPT} samples"),
        ("## While the store is away", f"from {FIRST_PAUSE.total_seconds():g} s to {LONGEST_PAUSE.total_seconds():g} s"),
        ("## Logs", f"INFO every {FLUSH_EVERY.total_seconds():g} seconds"),
        ("## Logs", f"Up to {CAPACITY:,} lines"),
        ("## Logs", f"cut at {LONGEST_MESSAGE:,} characters"),
    ],
)
def test_the_numbers_are_those_of_the_code(heading: str, said: str) -> None:
    assert said in section(TEXT, heading).replace("\n", " ")
