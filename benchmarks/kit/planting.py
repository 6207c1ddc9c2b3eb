"""The list of planted bugs: each is a text change in the source, the guarantee it breaks, and the tests that should fail."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LISTS = Path(__file__).parents[1] / "planted"  #: one file for each area


class CannotPlant(Exception):
    """An entry no longer fits the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One change of the source, and what it breaks."""

    area: str  #: the name of its TOML file
    name: str
    file: str  #: under src/drumbeat
    find: str  #: must occur exactly once, in the file or in the part named by ``within``
    put: str
    breaks: str  #: the guarantee, in one sentence
    tests: tuple[str, ...]  #: "tests/file.py", or "tests/file.py::test_name" for every test of that name in the file
    within: str | None = None  #: a named query, function or class
    hangs: bool = False  #: the guarantee is that something ends, so tests that hang count as having caught the bug

    def planted_in(self, text: str) -> str:
        """Return the file's text with the bug planted. Raises CannotPlant."""
        first, last = _section(self, text)
        part = text[first:last]
        if part.count(self.find) != 1:
            where = f"{self.within} in {self.file}" if self.within else self.file
            raise CannotPlant(f"{self.name}: expected its text once in {where}, found it {part.count(self.find)} times")
        return text[:first] + part.replace(self.find, self.put) + text[last:]


def _section(bug: Bug, text: str) -> tuple[int, int]:
    """Start and end of the part named by ``within``, or of the whole file."""
    if bug.within is None:
        return 0, len(text)
    name, kind = re.escape(bug.within), Path(bug.file).suffix
    if kind == ".sql":
        found = re.search(rf"^-- name: {name}$.*?(?=^-- name: |\Z)", text, re.M | re.S)
    elif kind == ".py":
        head = re.search(rf"^( *)(?:async )?(?:def|class) {name}\b", text, re.M)
        deep = len(head[1]) if head else 0
        found = re.compile(rf".+?(?=^ {{0,{deep}}}[^\s)]|\Z)", re.M | re.S).match(text, head.end()) if head else None
    else:
        found = re.search(rf"^[^\n;]*\b{name}\([^\n;]*$.*?^(?:end|\}})", text, re.M | re.S)
    if found is None:
        raise CannotPlant(f"{bug.name}: {bug.file} has no {bug.within}")
    return found.span()


def listed(folder: Path = LISTS) -> Sequence[Bug]:
    """Return all planted bugs, area by area. Raises CannotPlant if an area uses a name twice."""
    bugs = [
        Bug(area=path.stem, **{**entry, "tests": tuple(entry["tests"])})
        for path in sorted(folder.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["bug"]
    ]
    names = [f"{bug.area}: {bug.name}" for bug in bugs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise CannotPlant(f"these names are used twice: {', '.join(twice)}")
    return bugs
