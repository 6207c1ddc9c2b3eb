"""Lines to a reader who may not read: none is waited for, none is torn, what is left out is counted."""

import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.given import filled_pipe
from drumbeat.cli.output import NonBlockingHandler, NonBlockingOutput


@pytest.fixture
def full() -> Iterator[tuple[int, NonBlockingOutput]]:
    """A pipe without any room, and an outlet into it."""
    with filled_pipe() as (reader, writer), os.fdopen(os.dup(writer), "w") as stream:
        yield reader, NonBlockingOutput(stream)


def read(reader: int) -> str:
    """All that is there."""
    text = b""
    while True:
        try:
            text += os.read(reader, 65536)
        except BlockingIOError:
            return text.decode()


def lines(reader: int) -> list[str]:
    """Without the empty ones that filled the pipe."""
    return [line for line in read(reader).split("\n") if line]


def test_what_finds_no_room_is_left_out_and_counted_until_there_is_some(full: tuple[int, NonBlockingOutput]) -> None:
    reader, outlet = full

    assert [outlet.write(f"line {n}") for n in range(3)] == [False] * 3
    assert outlet.missed == 3
    assert lines(reader) == []
    assert outlet.write("heard")
    assert outlet.missed == 0
    assert lines(reader) == ["heard"]


def test_a_line_that_was_begun_is_finished_before_the_next(full: tuple[int, NonBlockingOutput]) -> None:
    reader, outlet = full
    long = "x" * 300_000
    read(reader)

    begun, too_soon = outlet.write(long), outlet.write("too soon")
    heard = read(reader)
    while not outlet.write("last"):
        heard += read(reader)
    heard += read(reader)

    assert (begun, too_soon) == (True, False)
    assert heard == f"{long}\nlast\n"


def test_a_reader_who_is_gone_is_not_written_to() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        outlet = NonBlockingOutput(stream)

        assert not outlet.write("hello")
        assert outlet.missed == 1


def test_files_and_streams_in_memory_get_every_line(tmp_path: Path) -> None:
    memory = io.StringIO()
    with (tmp_path / "out").open("w") as stream:
        assert all(NonBlockingOutput(each).write("a line – " + "y" * 9000) for each in (stream, memory))

    assert (tmp_path / "out").read_text() == memory.getvalue() == "a line – " + "y" * 9000 + "\n"


def test_the_first_log_line_after_a_gap_says_how_many_are_missing(full: tuple[int, NonBlockingOutput]) -> None:
    reader, outlet = full
    handler = NonBlockingHandler(outlet)
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "it is %s", ("noon",), None)

    handler.emit(record)
    handler.emit(record)
    read(reader)
    handler.emit(record)

    assert lines(reader) == ["(2 lines were dropped: the output was not read)", "it is noon"]
