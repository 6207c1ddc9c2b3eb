"""Traces: both formats are read, order does not matter, and what is no trace is named with its line."""

from pathlib import Path

import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.trace import load_of, read_trace


def test_arrivals_and_durations_are_read_in_the_order_of_arrival(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("\ufeffarrival,duration\r\n5,2.5\r\n1.5,10\r\n\r\n", encoding="utf-8")

    found = read_trace(file)

    assert (list(found.arrivals), list(found.durations)) == ([1.5, 5.0], [10.0, 2.5])


def test_an_azure_trace_is_read_as_it_is() -> None:
    lines = [
        "TIMESTAMP,ContextTokens,GeneratedTokens\n",
        "2023-11-16 18:17:03.9799600,4808,10\n",
        "2023-11-16 18:17:05.2299600,100,100\n",
    ]

    found = load_of(lines)

    assert list(found.arrivals) == pytest.approx([0.0, 1.25])
    assert list(found.durations) == pytest.approx([0.8808, 4.01])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "to begin with arrival,duration or TIMESTAMP"),
        ("a,b\n1,2\n", "got 'a,b'"),
        ("arrival,duration\n", "got only a header"),
        ("arrival,duration\n1,2\n3\n", r"line 3: expected arrival and duration in seconds, got '3'"),
        ("arrival,duration\n1,soon\n", "line 2"),
        ("arrival,duration\n1,-2\n", "line 2: expected finite seconds"),
        ("arrival,duration\nnan,2\n", "line 2: expected finite seconds"),
        ("arrival,duration\n1763230000000,2\n", "line 2: expected finite seconds, .* milliseconds must be divided by 1000"),
        ("arrival,duration\n1,1e13\n", "line 2: expected finite seconds"),
        (f"arrival,duration\n1,{'2' * 140_000}\n", "expected CSV in the trace, got invalid CSV: field larger"),
        (f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,{'9' * 400},2\n", "line 2: expected a timestamp"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "line 2: expected a timestamp"),
    ],
)
def test_what_is_no_trace_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_of(text.splitlines(keepends=True))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nothing\.csv: No such file"):
        read_trace(tmp_path / "nothing.csv")
