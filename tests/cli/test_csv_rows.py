"""Rows of CSV: those of Python's own reader, with fields as long as they may be, and nothing of the process changed."""

import csv
import io

import pytest
from hypothesis import example, given, strategies as st

from drumbeat.cli.csv_rows import CsvRows
from drumbeat.core.errors import InvalidInput


def rows_of(text: str, longest: int = 1000) -> list[list[str]]:
    return list(CsvRows(io.StringIO(text, newline=""), longest))


@given(st.text(alphabet='ab ",\n\r\0ü', max_size=40))
@example('"x"y"z,"\n')
@example('""\n\n"a"""')
def test_the_rows_are_those_of_pythons_own_reader(text: str) -> None:
    ours, theirs = CsvRows(io.StringIO(text, newline=""), 1000), csv.reader(io.StringIO(text, newline=""))

    found, expected = list(ours), list(theirs)

    assert (found, ours.line_number) == (expected, theirs.line_num)


@pytest.mark.parametrize("field", ["x" * 300_000, '"' + "x" * 300_000 + '"', '"' + "x,\r\n" * 75_000 + '"'])
def test_a_field_may_be_longer_than_the_limit_of_pythons_own_reader(field: str) -> None:
    assert rows_of(f"a,{field}\nb,c\n", longest=300_000) == [["a", field.strip('"')], ["b", "c"]]


@pytest.mark.parametrize(
    "field", ["x" * 11, '"' + "x" * 11 + '"', '"' + "x\n" * 6 + '"', '"' + '""' * 11 + '"', '"xxxxxx"xxxxx']
)
def test_a_field_above_the_limit_is_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match="a field of more than 10 characters"):
        rows_of(f"a,{field}\n", longest=10)


def test_a_quotation_that_is_never_closed_is_not_read_to_the_files_end() -> None:
    file = io.StringIO('"' + "x\n" * 1000, newline="")

    with pytest.raises(InvalidInput, match="a field of more than"):
        list(CsvRows(file, longest=10))

    assert file.tell() < 20
