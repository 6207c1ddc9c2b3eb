"""JSON is read within a depth, wherever it comes from, and values are shown within a length."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drumbeat.adapters.flatmachines.machine_files import load_machine
from drumbeat.adapters.flatmachines.runner import read_arguments
from drumbeat.bench.templates.parse import read
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import DEEPEST, printable, read_json, short_repr, whole_number
from drumbeat.pool.payload import as_json
from drumbeat.settings import load_settings
from drumbeat.web.pages.pools_push import parse_payload

DEPTHS = [DEEPEST + 1, 900, 100_000]


def nested(depth: int) -> str:
    return '{"a":' + "[" * (depth - 1) + "1" + "]" * (depth - 1) + "}"


def from_file(text: str, folder: Path) -> Any:
    file = folder / "machine.json"
    file.write_text(text)
    return load_machine(file)


def pushed(text: str, _: Path) -> Any:
    """As a Python program pushes it."""
    value: Any = 1
    for _level in range(text.count("[") + 1):
        value = [value]
    return as_json(value)


READERS: list[tuple[str, Callable[[str, Path], Any]]] = [
    ("any text", lambda text, _: read_json(text, "a text")),
    ("a template", lambda text, _: read(text)),
    ("a machine", from_file),
    ("the input of a machine", lambda text, _: read_arguments(["--config", "x", "--input", text])),
    ("a form", lambda text, _: parse_payload(text)),
    ("a payload", pushed),
]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("reader", [pytest.param(reader, id=name) for name, reader in READERS])
def test_what_is_nested_too_deep_is_refused(reader: Callable[[str, Path], Any], depth: int, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nested at most 100 deep, got more; flatten it"):
        reader(nested(depth), tmp_path)


def test_a_machine_in_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "machine.yml"
    file.write_bytes("name: für".encode("latin-1"))

    with pytest.raises(InvalidInput, match=r"machine\.yml to be UTF-8 text, got an invalid byte at 7"):
        load_machine(file)


def test_brackets_in_text_do_not_count() -> None:
    assert read_json('{"a": "' + "[" * 1000 + '"}', "a text") == {"a": "[" * 1000}
    assert as_json({"a": ["[" * 1000]}) == {"a": ["[" * 1000]}
    assert read_json(nested(DEEPEST), "a text").keys() == {"a"}
    assert read_json("[" + ",".join(["[]"] * 1000) + "]", "a text") == [[]] * 1000


def test_what_a_program_prints_is_text_where_it_is_nested_too_deep() -> None:
    from drumbeat.pool.worker.command import _result

    assert _result(bytearray(b"[" * 100_000)) == "[" * 100_000


def test_settings_nested_too_deep_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "drumbeat.toml"
    file.write_text("store = " + "[" * 10_000 + "]" * 10_000)

    with pytest.raises(InvalidInput, match="expected TOML in"):
        load_settings({}, file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected a text in JSON, got line 1, column 2: Expecting property name"),
        ("9" * 5000, "expected a text in JSON, got Exceeds the limit"),
        (b'"\xff"', "expected a text in UTF-8, got an invalid byte at position 1"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str | bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_json(text, "a text")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("abc", "'abc'"),
        ([1, "b", None], "[1, 'b', None]"),
        ({"a": [1]}, "{'a': [1]}"),
        ({"a": [[1]]}, "{'a': […]}"),
        ((1, 2), "(1, 2)"),
        (1.5, "1.5"),
        ("x" * 100, "'" + "x" * 58 + "…"),
    ],
)
def test_a_value_is_shown_as_it_is_written_but_short(value: Any, text: str) -> None:
    assert short_repr(value) == text


def test_a_number_too_long_to_be_written_is_described() -> None:
    assert short_repr([10**5000]) == "[a number of hundreds of digits]"


class Counted(list[Any]):
    """A list that counts how many of its members were read."""

    read = 0

    def __iter__(self) -> Any:
        for each in super().__iter__():
            Counted.read += 1
            yield each


def test_what_is_left_out_of_a_message_is_never_read() -> None:
    inner: list[Any] = Counted(["x" * 10] * 1000)
    Counted.read = 0

    assert len(short_repr([inner] * 1000)) <= 60
    assert 0 < Counted.read <= 36


@pytest.mark.parametrize(
    ("text", "one_line", "lines"),
    [
        ("plain", "plain", "plain"),
        (" a  b\tc ", "a b c", "a b c"),
        ("a\nb\r\n\n c", "a b c", "a\nb\nc"),
        ("\x1b[31mred\x00\x07", "[31mred", "[31mred"),
        ("left\u202eright\u200b!", "left right !", "left right !"),
        ("a\u2028b\x85c", "a b c", "a\nb\nc"),
        ("Straße 🥁", "Straße 🥁", "Straße 🥁"),
        ("\ud800x", "x", "x"),
        ("", "", ""),
    ],
)
def test_what_a_terminal_would_obey_is_left_out(text: str, one_line: str, lines: str) -> None:
    assert printable(text) == one_line
    assert printable(text, lines=True) == lines


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("042", 42), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("0" * 5_000, None)]
    + [(text, None) for text in ("", "²", "٣", "-1", "+1", " 1", "1_0", "1.0", "one")],
)
def test_a_whole_number_is_ascii_digits_and_not_too_many(text: str, number: int | None) -> None:
    assert whole_number(text) == number
