"""What pages are made of, without a browser."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.errors import DrumbeatError, NotFound, StoreUnavailable
from drumbeat.core.job import format_count
from drumbeat.web.pages.auto_refresh import Outage, refresh
from drumbeat.web.pages.paging import LAST_PAGE, page_number
from drumbeat.web.pages.run_live.panels import knee_words
from drumbeat.web.pages.runs.filters import RunFilters
from drumbeat.web.pages.sorting import sort_key


@pytest.mark.parametrize(
    ("value", "number", "ranked"),
    [
        (1200, False, 1200.0),
        (True, False, 1.0),
        (None, True, None),
        (timedelta(minutes=3), True, 180.0),
        (datetime(2026, 1, 1, tzinfo=UTC), False, datetime(2026, 1, 1, tzinfo=UTC).timestamp()),
        ("1,200 ms", True, 1200.0),
        (format_count(10_000), True, 10_000.0),
        ("3.50 of 40.00", True, 3.5),
        ("-1.2 %", True, -1.2),
        ("2.5e-05", True, 2.5e-05),
        ("–", True, None),
        ("Mail", False, "mail"),
        ("9 lives", False, "9 lives"),
    ],
)
def test_a_table_is_sorted_by_what_a_value_is(value: object, number: bool, ranked: object) -> None:
    assert sort_key(value, number=number) == ranked


@pytest.mark.parametrize(
    ("text", "number"), [("3", 3), ("0", 1), ("", 1), ("²", 1), ("-4", 1), ("٣", 1), ("9" * 5_000, LAST_PAGE)]
)
def test_an_address_names_a_page_or_means_the_first(text: str, number: int) -> None:
    assert page_number(text) == number


def test_until_the_last_day_there_is_means_until_ever() -> None:
    assert RunFilters(until="9999-12-31").filters()["until"] is None
    assert RunFilters(until="9999-12-30").filters()["until"] == datetime(9999, 12, 31, tzinfo=UTC)


class _Noted:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def warn(self, of: object, error: DrumbeatError) -> None:
        self.heard.append(str(error))

    def clear(self, of: object) -> None:
        self.heard.append("")


async def test_a_store_that_is_silent_is_told_on_each_page_and_logged_once_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    notice, outage, answers = _Noted(), Outage(), iter(["", "down", "down", "", "gone", "down"])

    async def show() -> None:
        said = next(answers)
        if said:
            raise (StoreUnavailable(said) if said == "down" else NotFound(said))

    with caplog.at_level(logging.WARNING, "drumbeat.web.pages.auto_refresh"):
        for _ in range(6):
            await refresh(show, notice, outage)  # type: ignore[arg-type]

    assert notice.heard == ["", "down", "down", "", "gone", "down"]
    assert len(caplog.records) == 2


FOUND = {"connections": 40, "method": "bisection", "saturation": 36.25}
BEST = {"connections": 40, "qps": 900.0}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, None),
        ({"best": BEST}, "40 connections or more"),
        (
            {"best": BEST, "steps": [(30, "STABLE"), (60, "DEGRADED"), (50, "DEGRADED"), (20, "DEGRADED")]},
            "40 to 49 connections",
        ),
        ({"best": BEST, "steps": [(41, "DEGRADED")]}, "40 connections"),
        (
            {"best": BEST, "knee": FOUND, "result": {"knee": FOUND}},
            "40 connections (with linear scaling, 36.2 would give the same throughput)",
        ),
        ({"best": BEST, "result": {"knee": None}, "badge": "BOUNDED_MAX"}, "not reached"),
        ({"result": {"knee": None}}, None),
    ],
)
def test_the_knee_is_told_as_far_as_it_is_known(told: dict[str, Any], words: str | None) -> None:
    steps = [{"to_target": level, "outcome": outcome} for level, outcome in told.get("steps", [])]

    assert knee_words({"knee": None, "best": None, "result": None, "badge": None, **told, "steps": steps}) == words
