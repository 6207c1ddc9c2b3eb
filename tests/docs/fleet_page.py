"""Writes the part of docs/fleet.md that lists every field and variable of a policy: python tests/docs/fleet_page.py"""

import inspect
import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.fleet.model import FleetPolicy
from drumbeat.fleet.settings import LEGACY, VARIABLES, Variable

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"
MARK = "<!-- From here on written by: python tests/docs/fleet_page.py -->\n"
_SAID = re.compile(r"^    (\w+): .*?#: (.*)$", re.MULTILINE)
_UNITS = {None: "", 1.0: " s", 60.0: " min"}


def meanings() -> dict[str, str]:
    """What the source says of each field."""
    found = dict(_SAID.findall(inspect.getsource(FleetPolicy)))
    return {name: said.replace("``", "`").replace("None:", "none:") for name, said in found.items()}


def reference() -> str:
    """A table of fields, and one of variables."""
    said = meanings()
    rows = [f"| `{each.name}` | {_spelt(each.default)} | {said[each.name]} |" for each in fields(FleetPolicy)]
    names = [f"| `{each.name}` | `{each.field}` | {_default(each)} | {_origin(each)} |" for each in VARIABLES]
    return "\n".join(
        [
            "## Every field",
            "",
            "| field | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
            "## Variables",
            "",
            "| variable | field | default | of |",
            "|---|---|---|---|",
            *names,
            "",
        ]
    )


def _spelt(value: Any) -> str:
    if value is None or value == ():
        return "–"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    return f"`{str(value).lower()}`" if isinstance(value, bool | str) else f"{value:g}"


def _default(variable: Variable) -> str:
    return f"{variable.default:g}{_UNITS[variable.unit]}" if isinstance(variable.default, int | float) else "–"


def _origin(variable: Variable) -> str:
    if variable in LEGACY:
        return "earlier orchestrator"
    return "Drumbeat" if variable.name.startswith("DRUMBEAT_") else "its successor"


def main() -> None:
    """Write the page anew; what stands above the mark is left as it is."""
    by_hand, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"expected the line {MARK.strip()!r} in {PAGE}; put it where the fields should begin")
    PAGE.write_text(by_hand + mark + "\n" + reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
