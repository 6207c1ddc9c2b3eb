"""The pages of the documentation, as text and as tables."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def page(name: str) -> str:
    """The text of ``docs/NAME.md``."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next of its rank or above."""
    rank = heading.index(" ")
    found = re.search(rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{rank}}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"expected the heading {heading!r}"
    return found.group(1)


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their headings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rules = [n for n, row in enumerate(cells) if set(row[0]) == {"-"}]
    headings = {n - 1 for n in rules}
    return [row for n, row in enumerate(cells) if n not in headings and n not in rules]


def quoted(text: str) -> set[str]:
    """The words in backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))
