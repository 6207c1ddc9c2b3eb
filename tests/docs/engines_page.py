"""Writes the part of docs/engines.md that lists every kind of engine and its settings: python tests/docs/engines_page.py"""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from drumbeat.composition.engine_kinds import KINDS, EngineKind

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
MARK = "<!-- From here on written by: python tests/docs/engines_page.py -->\n"
_SAID = re.compile(r"^    (\w+): .*?#: (.*)$", re.MULTILINE)


def meanings(kind: type[Any]) -> dict[str, str]:
    """What the source says of each field of a settings class."""
    found = dict(_SAID.findall(inspect.getsource(kind)))
    return {name: said.replace("``", "`").replace("|", "\\|") for name, said in found.items()}


def reference() -> str:
    """One section for each kind, with a table of its settings."""
    return "\n".join(["## Kinds", "", *(line for kind in KINDS.values() for line in _section(kind))])


def _section(kind: EngineKind) -> Iterator[str]:
    where = "on other machines" if kind.elsewhere else "on this machine"
    extra = f" Install with `pip install 'drumbeat[{kind.extra}]'`." if kind.extra else ""
    yield f"### {kind.name}"
    yield ""
    yield f"{kind.summary[0].upper()}{kind.summary[1:]}; workers run {where}.{extra}"
    yield from _table(kind.settings_class)


def _table(settings: type[Any]) -> Iterator[str]:
    said = meanings(settings)
    yield from ("", "| setting | default | meaning |", "|---|---|---|")
    for each in fields(settings):
        yield f"| `{each.name}` | {_default(each)} | {said.get(each.name, '')} |"
    yield ""
    for name, inner in _tables_within(settings).items():
        yield f"Each table of `{name}`:"
        yield from _table(inner)


def _tables_within(settings: type[Any]) -> Mapping[str, type[Any]]:
    """The settings classes that are tables within this one, as a list of hosts."""
    hints = get_type_hints(settings)
    found = {name: next((each for each in (hint, *get_args(hint)) if is_dataclass(each)), None) for name, hint in hints.items()}
    return {name: inner for name, inner in found.items() if isinstance(inner, type)}


def _default(each: Field[Any]) -> str:
    value = each.default if each.default is not MISSING else None
    if each.default_factory is not MISSING:
        value = each.default_factory()
    elif each.default is MISSING:
        return "must be set"
    return _spelt(value)


def _spelt(value: Any) -> str:
    match value:
        case None | () | "":
            return "–"
        case dict() if not value:
            return "–"
        case bool():
            return f"`{str(value).lower()}`"
        case timedelta():
            return f"{value.total_seconds():g} s"
        case Enum():
            return f"`{value.value}`"
        case tuple():
            return ", ".join(_spelt(one) for one in value)
        case int() | float():
            return f"{value:g}"
        case _ if is_dataclass(value):
            return "–"
        case _:
            return f"`{value}`"


def main() -> None:
    """Write the page anew; what stands above the mark is left as it is."""
    by_hand, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"expected the line {MARK.strip()!r} in {PAGE}; put it where the kinds should begin")
    PAGE.write_text(by_hand + mark + "\n" + reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
