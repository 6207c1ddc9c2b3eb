"""The planted bugs of benchmarks/planted.py still fit the source, and the tests that should see them are there."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS = ("src/drumbeat/store/contract", "src/drumbeat/spawn", "src/drumbeat/bench/targets/contract")


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])


def named_in(path: Path) -> set[str]:
    return set(re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.M))


def test_every_planted_bug_still_fits_the_source() -> None:
    from kit.planting import listed

    bugs = listed()
    assert len(bugs) >= 200
    for bug in bugs:
        text = (ROOT / "src" / "drumbeat" / bug.file).read_text()
        assert bug.planted_in(text) != text, bug.name


def test_every_planted_bug_names_tests_that_are_there() -> None:
    from kit.planting import listed

    shared = {name for folder in CONTRACTS for path in (ROOT / folder).glob("*.py") for name in named_in(path)}
    own = {path: named_in(ROOT / path) for path in {test.partition("::")[0] for bug in listed() for test in bug.tests}}
    for bug in listed():
        assert bug.tests, bug.name
        for test in bug.tests:
            path, _, name = test.partition("::")
            assert not name or name in own[path] | shared, f"{bug.name}: {test}"


@pytest.mark.parametrize(
    ("file", "within", "find", "says"),
    [
        ("a.py", None, "return 3", "found it 0 times"),
        ("a.py", None, "return", "found it 2 times"),
        ("a.py", "third", "return", "has no third"),
        ("a.sql", "first", "B", "found it 0 times"),
    ],
)
def test_a_bug_whose_text_is_not_there_once_cannot_be_planted(file: str, within: str | None, find: str, says: str) -> None:
    from kit.planting import Bug, CannotPlant

    texts = {
        "a.py": "def first(\n    a: int,\n) -> int:\n    return 1\n\n\ndef second() -> int:\n    return 2\n",
        "a.sql": "-- name: first\nA;\n\n-- name: second\nB;\n",
    }
    bug = Bug(area="a", name="b", file=file, find=find, put="", breaks="", tests=(), within=within)

    with pytest.raises(CannotPlant, match=says):
        bug.planted_in(texts[file])


def test_a_bug_is_planted_in_the_function_it_names() -> None:
    from kit.planting import Bug

    text = "def first(\n    a: int,\n) -> int:\n    return 1\n\n\ndef second() -> int:\n    return 2\n"
    bug = Bug(area="a", name="b", file="a.py", find="return", put="yield", breaks="", tests=(), within="second")

    assert bug.planted_in(text) == text.replace("return 2", "yield 2")
