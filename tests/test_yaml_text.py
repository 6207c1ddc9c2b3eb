"""YAML is read in one place, which refuses what would grow when it is read, before it grows."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import drumbeat
from drumbeat.adapters.flatmachines.machine_files import load_machine
from drumbeat.bench.templates.parse import parse, read, with_settings
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import DEEPEST, MOST_VALUES
from drumbeat.fleet.settings import load_policy
from drumbeat.triggers.file import load_triggers
from drumbeat.yaml_text import LARGEST, read_yaml

SOURCE = Path(drumbeat.__file__).parent

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
GROWING = [
    pytest.param(LAUGHS, "alias or anchor 'a'; write its value out", id="aliases of aliases"),
    pytest.param("a: &a 1\n", "alias or anchor 'a'", id="anchor"),
    pytest.param("a: *a\n", "alias or anchor 'a'", id="alias"),
    pytest.param("a: &a [*a]\n", "alias or anchor 'a'", id="a list within itself"),
    pytest.param("a: " + "[" * 100_000, "values nested more than 100 deep; flatten them", id="lists in lists"),
    pytest.param("a: " + "{a: " * 50_000, "nested more than 100 deep", id="objects in objects"),
    pytest.param("".join(f"{' ' * n}a:\n" for n in range(500)), "nested more than 100 deep", id="block in block"),
    pytest.param("a: 1" + ":1" * 100_000, "a number that is 200001 characters long", id="a number in sixties"),
    pytest.param("a: " + "9" * 5_000, "a number that is 5000 characters long", id="a number of many digits"),
    pytest.param("a: !!float 1" + ":1" * 1_000, "a number that is 2001 characters long", id="a number that says so"),
    pytest.param("a: 2026-99-99\n", "put quotes around", id="a day that is none"),
    pytest.param("a: !!bool maybe\n", "put quotes around", id="a truth that is none"),
    pytest.param("a: !!timestamp x\n", "put quotes around", id="a moment that is none"),
    pytest.param("a: !!int ''\n", "put quotes around", id="a whole number that is none"),
    pytest.param("a: !!float ''\n", "put quotes around", id="a number that is none"),
    pytest.param(f"a: [{'1, ' * MOST_VALUES}1]", f"more than {MOST_VALUES} values", id="too many values"),
    pytest.param("a: b\n" * LARGEST, f"at most {LARGEST} characters", id="too long"),
]


def setting(file: Path) -> Any:
    """The text as the value of a template's setting on the command line."""
    value = file.read_text().removeprefix("a: ")
    return with_settings(parse({"name": "x", "target": {"url": "sqlite:///x"}}), [f"description={value}"])


READERS: list[tuple[str, Callable[[Path], Any]]] = [
    ("a template", lambda file: read(file.read_bytes())),
    ("a setting", setting),
    ("fleet.yml", lambda file: load_policy({}, file)),
    ("triggers.yml", load_triggers),
    ("a machine", load_machine),
]


@pytest.mark.parametrize(("text", "said"), GROWING)
@pytest.mark.parametrize("reader", [pytest.param(reader, id=name) for name, reader in READERS])
def test_every_reader_refuses_what_grows(reader: Callable[[Path], Any], text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "given.yml"
    file.write_text(text)

    with pytest.raises(InvalidInput, match=said) as caught:
        reader(file)

    assert len(str(caught.value)) < 500


def test_the_first_alias_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    built: list[object] = []
    construct = yaml.SafeLoader.construct_object

    def counted(self: Any, node: Any, deep: bool = False) -> Any:
        built.append(node)
        return construct(self, node, deep)

    monkeypatch.setattr(yaml.SafeLoader, "construct_object", counted)

    assert read_yaml("a: [1, 2]", "a text") == {"a": [1, 2]}
    assert len(built) > 0
    built.clear()
    with pytest.raises(InvalidInput, match="expected a text, got line 1, column 4: the alias or anchor 'a'"):
        read_yaml(LAUGHS, "a text")
    assert built == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1e3", {"a": 1000.0}),
        ("a: {<<: {b: 1}, c: 2}", {"a": {"b": 1, "c": 2}}),
        ("a: 'x & y * z'", {"a": "x & y * z"}),
        ("a: SELECT * FROM t", {"a": "SELECT * FROM t"}),
        ("", None),
    ],
)
def test_what_does_not_grow_is_read(text: str, value: Any) -> None:
    found = read_yaml(text, "a text")

    assert value is None or found == value


def test_depth_counts_lists_and_objects() -> None:
    assert read_yaml("[" * DEEPEST + "]" * DEEPEST, "a text") is not None
    with pytest.raises(InvalidInput, match="nested more than 100 deep"):
        read_yaml("[" * (DEEPEST + 2) + "]" * (DEEPEST + 2), "a text")


def test_yaml_is_read_nowhere_else() -> None:
    """No other file calls a function of yaml that reads; writing is free."""
    found = {
        f"{path.relative_to(SOURCE)}: yaml.{node.attr}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml"
    }

    reading = {each for each in found if not each.endswith("yaml.safe_dump")}
    assert "yaml_text.py: yaml.load" in reading
    assert {each for each in reading if not each.startswith("yaml_text.py")} == set()
