from datetime import UTC, datetime, timedelta, timezone

import pytest

from drumbeat.bench.results.report import words
from drumbeat.bench.results.report.escape import cell, label, markdown, markup


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (1234567.8, "1,234,568"),
        (12.345, "12.3"),
        (0.001234, "0.00123"),
        (100.0, "100"),
        (-2.5, "-2.5"),
        (99.99, "100"),
    ],
)
def test_numbers_have_three_digits_that_matter(value: float | None, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 s"), (59, "59 s"), (65, "1 min 05 s"), (3600, "1 h 00 min"), (7380, "2 h 03 min")]
)
def test_lengths_of_time_are_read_aloud(seconds: float, text: str) -> None:
    assert words.duration(timedelta(seconds=seconds)) == text


def test_moments_are_in_utc() -> None:
    there = datetime(2026, 1, 1, 2, 0, tzinfo=timezone(timedelta(hours=2)))

    assert words.when(there) == words.when(datetime(2026, 1, 1, 0, 0, tzinfo=UTC)) == "2026-01-01 00:00:00 UTC"


@pytest.mark.parametrize(("offset", "text"), [(0, "+0:00"), (65.4, "+1:05"), (-3, "-0:03"), (3600, "+60:00")])
def test_offsets_are_minutes_and_seconds(offset: float, text: str) -> None:
    assert words.at(offset) == text


def test_text_is_safe_where_it_goes() -> None:
    assert markup("<a href='x'>&\x00") == "&lt;a href=&#39;x&#39;&gt;&amp;�"
    assert markdown("a|b\n[x](y)") == r"a\|b \[x\]\(y\)"
    assert label('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
    assert cell('=x,"y"') == '"\'=x,""y"""'
    assert cell(-1.5) == "-1.5"
